//! What a run of the generator is to do.

use std::time::Duration;

use crate::dial::Target;
use crate::payload::RequestPayload;
use crate::pool::PoolOrder;

/// A run of the generator.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Where the load goes.
    pub target: Target,
    /// The requests, sent in turn; at least one.
    pub payloads: Vec<RequestPayload>,
    /// When they are sent.
    pub mode: LoadMode,
    /// Requests at a time on a connection of HTTP/2.
    pub streams: usize,
    /// Time to the answer, after which a request is given up.
    pub timeout: Duration,
    /// Time within which an answer is good, if not any time is.
    pub objective: Option<Duration>,
    /// The seed of all chance.
    pub seed: u64,
    /// Threads that send.
    pub threads: usize,
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub enum LoadMode {
    /// So many clients, each sending its next request when the last one has ended.
    Closed {
        /// How many.
        clients: usize,
        /// Time between an answer and the next request.
        think: Option<ThinkTime>,
        /// Time before anything counts.
        warm_up: Duration,
        /// The length of what counts.
        length: Duration,
        /// Instead of the length: so many requests.
        requests: Option<u64>,
    },
    /// At given times, whatever the server does.
    Open {
        /// The times.
        phases: Vec<LoadPhase>,
        /// The pools that carry them.
        pool: PoolPlan,
    },
}

/// A while with one rate.
#[derive(Clone, Debug)]
pub struct LoadPhase {
    /// Requests per second that are wanted.
    pub rate: f64,
    /// How long it lasts.
    pub length: Duration,
    /// When requests are due: nanoseconds from its start, ascending.
    pub due: Vec<u64>,
    /// Whether it counts.
    pub counted: bool,
}

/// Pools of connections.
#[derive(Clone, Copy, Debug)]
pub struct PoolPlan {
    /// How many pools; each request takes one at random.
    pub pools: usize,
    /// Most connections of each; streams for HTTP/2.
    pub limit: usize,
    /// Which of the free connections is taken.
    pub order: PoolOrder,
}

/// The time between an answer and the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThinkTime {
    /// In the mean.
    pub mean: Duration,
    /// How it varies.
    pub kind: ThinkTimeKind,
}

/// How a time to think varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkTimeKind {
    /// Always the same.
    Fixed,
    /// Exponential.
    Exponential,
    /// Heavy-tailed: Pareto with shape 1.5.
    Pareto,
}

impl ThinkTime {
    pub(crate) fn draw(self, chance: &mut fastrand::Rng) -> Duration {
        let left = 1.0 - chance.f64();
        self.mean.mul_f64(match self.kind {
            ThinkTimeKind::Fixed => 1.0,
            ThinkTimeKind::Exponential => -left.ln(),
            // The mean of a Pareto variable is three times its least value.
            ThinkTimeKind::Pareto => (left.powf(-1.0 / 1.5) / 3.0).min(1e6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_think_have_their_mean() {
        let mut chance = fastrand::Rng::with_seed(3);
        for (kind, within) in [
            (ThinkTimeKind::Fixed, 1e-9),
            (ThinkTimeKind::Exponential, 0.02),
            (ThinkTimeKind::Pareto, 0.2),
        ] {
            let think = ThinkTime { mean: Duration::from_millis(5), kind };
            let sum: f64 = (0..200_000).map(|_| think.draw(&mut chance).as_secs_f64()).sum();
            let off = sum / 200_000.0 / 0.005 - 1.0;
            assert!(off.abs() <= within, "{kind:?}: {off}");
        }
    }
}
