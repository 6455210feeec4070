//! What a policy is played in: workers, their speed and failures, and the load.

use jitney_batcher::Nanos;

use crate::connections::ConnectionUse;
use crate::curve::ServiceCurve;
use crate::dice::Dice;
use crate::job::Job;
use crate::noise::Noise;
use crate::pipeline::Stages;

/// Workers and their speed.
#[derive(Clone, Debug)]
pub struct World {
    /// How long a batch takes; its largest size is the largest batch a policy may form.
    pub curve: ServiceCurve,
    /// Sizes at which the model runs, ascending; empty: any. A batch runs at the next larger one.
    pub sizes: Vec<u32>,
    /// How batches are prepared while others run; none: a worker has one batch at a time.
    pub stages: Option<Stages>,
    /// How many workers there are.
    pub workers: usize,
    /// Processors that they share: a batch that begins while more of them run takes as much longer. None: each worker
    /// has its own.
    pub processors: Option<usize>,
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
        let (sizes, losses) = (Vec::new(), Vec::new());
        let (stages, processors, noise) = (None, None, Noise::NONE);
        Self { curve, sizes, stages, workers, processors, noise, losses, seed: 1 }
    }

    /// The same world with a model that runs at these sizes only.
    #[must_use]
    pub fn at_sizes(self, mut sizes: Vec<u32>) -> Self {
        sizes.retain(|&size| (1..=self.curve.max()).contains(&(size as usize)));
        sizes.sort_unstable();
        sizes.dedup();
        Self { sizes, ..self }
    }

    /// The same world with workers that prepare batches while they run others.
    #[must_use]
    pub fn with_stages(self, stages: Stages) -> Self {
        Self { stages: Some(stages), ..self }
    }

    /// The same world with workers that share so many processors.
    #[must_use]
    pub fn on_processors(self, processors: usize) -> Self {
        Self { processors: Some(processors.max(1)), ..self }
    }

    /// What a batch takes that begins while so many run, with it, over what it takes alone.
    pub(crate) fn slowed(&self, running: usize) -> f64 {
        self.processors.map_or(1.0, |processors| (running as f64 / processors as f64).max(1.0))
    }

    /// How long a batch of so many items takes to prepare, and to run.
    pub(crate) fn times(&self, items: usize) -> (Nanos, Nanos) {
        let fits = |size: &&u32| **size as usize >= items;
        let size = self.sizes.iter().find(fits).map_or(items, |&size| size as usize);
        let prepare = self.stages.as_ref().map_or(0, |stages| stages.prepare.time(items));
        (prepare, self.curve.time(size))
    }

    /// Batches that a worker may hold.
    pub(crate) fn slots(&self) -> usize {
        self.stages.as_ref().map_or(1, |stages| stages.slots.max(1))
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

/// The requests that come: some whatever happens, some because others were answered, or both.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Requests that come whatever happens to those before them, in order of time.
    pub open: Vec<Job>,
    /// Clients that ask again when they were answered.
    pub clients: Option<Clients>,
    /// Over which connections they come.
    pub connections: ConnectionUse,
    /// How these clients come for the first time.
    pub start: ClientStart,
}

/// How a fixed set of clients comes for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientStart {
    /// All together, a little apart, as connections are.
    #[default]
    AtOnce,
    /// One after another, over this time.
    Over(Nanos),
    /// In so many waves with this time between them.
    Waves(u64, Nanos),
}

impl ClientStart {
    /// When one of so many clients comes.
    pub(crate) fn time(self, client: u64, count: u64) -> Nanos {
        let apart = client * 10_000;
        match self {
            Self::AtOnce => apart,
            Self::Over(time) => time * client / count.max(1),
            Self::Waves(waves, gap) => apart + gap * (client * waves / count.max(1)),
        }
    }
}

impl Load {
    /// Requests that come whatever happens, each over a connection of its own.
    #[must_use]
    pub fn open(open: Vec<Job>) -> Self {
        Self { open, ..Self::default() }
    }

    /// Clients that ask again when they were answered.
    #[must_use]
    pub fn closed(clients: Clients) -> Self {
        Self { clients: Some(clients), ..Self::default() }
    }

    /// The same requests over these connections.
    #[must_use]
    pub fn over(self, connections: ConnectionUse) -> Self {
        Self { connections, ..self }
    }
}

/// A fixed set of clients, each with one request at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clients {
    /// How many.
    pub count: usize,
    /// Time between an answer and the next request that every client needs at least.
    pub turn: Nanos,
    /// Mean of the time that comes on top.
    pub think: Nanos,
    /// How that time is spread.
    pub spread: ThinkSpread,
    /// Time to answer each request; `u64::MAX` is no deadline.
    pub deadline: Nanos,
    /// When they stop asking.
    pub until: Nanos,
    /// The seed of their thinking.
    pub seed: u64,
}

/// How the time is spread that clients think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkSpread {
    /// Always the mean.
    Fixed,
    /// Exponential: how long a client has thought says nothing about how long it still will.
    #[default]
    Exponential,
    /// Pareto with exponent 1.5: most are quick, a few take very long.
    Heavy,
}

impl ThinkSpread {
    /// A time with mean 1.
    pub(crate) fn draw(self, dice: &mut Dice) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::Exponential => dice.exponential(),
            Self::Heavy => (dice.exponential() / 1.5).exp() / 3.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_think_for_the_mean_they_were_given() {
        for spread in [ThinkSpread::Fixed, ThinkSpread::Exponential, ThinkSpread::Heavy] {
            let (mut dice, n) = (Dice::new(1), 1_000_000);
            let mean = (0..n).map(|_| spread.draw(&mut dice)).sum::<f64>() / f64::from(n);
            assert!((mean - 1.0).abs() < 0.05, "{spread:?}: {mean}");
        }
    }
}
