//! What a policy is played in: workers, their speed and failures, and the load.

use jitney_batcher::Nanos;

use crate::curve::ServiceCurve;
use crate::job::Job;
use crate::noise::Noise;

/// Workers and their speed.
#[derive(Clone, Debug)]
pub struct World {
    /// How long a batch takes; its largest size is the largest batch a policy may form.
    pub curve: ServiceCurve,
    /// How many workers there are.
    pub workers: usize,
    /// What chance adds to the curve.
    pub noise: Noise,
    /// Workers that die and come back.
    pub losses: Vec<Loss>,
    /// The seed of all that happens to the workers.
    pub seed: u64,
}

impl World {
    /// A world without chance or misfortune.
    #[must_use]
    pub fn new(curve: ServiceCurve, workers: usize) -> Self {
        Self { curve, workers, noise: Noise::NONE, losses: Vec::new(), seed: 1 }
    }

    /// The same world with chance in its service times.
    #[must_use]
    pub fn with_noise(self, noise: Noise) -> Self {
        Self { noise, ..self }
    }
}

/// A worker that dies, with whatever it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which one.
    pub worker: usize,
    /// When.
    pub at: Nanos,
    /// When it is back; `u64::MAX` is never.
    pub back: Nanos,
}

/// The requests that come.
#[derive(Clone, Debug)]
pub enum Load {
    /// Requests that come whatever happens to those before them, in order of time.
    Open(Vec<Job>),
    /// Clients that ask again when they were answered.
    Closed(Clients),
}

/// A fixed set of clients, each with one request at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clients {
    /// How many.
    pub count: usize,
    /// Time between an answer and the next request that every client needs at least.
    pub turn: Nanos,
    /// Mean of the exponential time that comes on top.
    pub think: Nanos,
    /// Time to answer each request; `u64::MAX` is no deadline.
    pub deadline: Nanos,
    /// When they stop asking.
    pub until: Nanos,
    /// The seed of their thinking.
    pub seed: u64,
}
