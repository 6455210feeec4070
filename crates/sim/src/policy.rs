//! The policies that can be compared, and the names by which users ask for them: `adaptive`,
//! `opportunistic`, `window:5`. All of them run in the batcher that serves. Models of other servers'
//! policies are in `bench/lab` and must not come here: they would be part of the program.

use std::fmt;

use jitney_batcher::{Adaptive, Config, Nanos, Policy};

use crate::curve::ms;
use crate::jitney::JitneyScheduler;
use crate::world::World;

/// A policy of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedPolicy {
    /// Nothing to set.
    Adaptive,
    /// An idle worker takes what is there.
    Opportunistic,
    /// A batch is dispatched when its oldest request has waited so long.
    Window(Nanos),
}

impl SimulatedPolicy {
    /// The scheduler for a world.
    #[must_use]
    pub fn build(self, world: &World) -> JitneyScheduler {
        let policy = match self {
            Self::Adaptive => Policy::Adaptive(Adaptive::default()),
            Self::Opportunistic => Policy::Opportunistic,
            Self::Window(delay) => Policy::Window { delay },
        };
        let max_items = world.curve.max() as u32;
        let sizes = world.sizes.clone();
        let config = Config { policy, max_items, sizes, ..Config::default() };
        JitneyScheduler::with_slots(config, world.workers, world.slots())
    }

    /// Reads a policy; `eager` is another name of `opportunistic`.
    ///
    /// # Errors
    /// No policy is called so, or its number is none.
    pub fn parse(text: &str) -> Result<Self, NoPolicy> {
        let window = |number: &str| {
            let delay: f64 = number.trim().trim_end_matches("ms").trim().parse().ok()?;
            (delay.is_finite() && delay >= 0.0).then(|| Self::Window(ms(delay)))
        };
        let (name, number) = text.split_once(':').unwrap_or((text, ""));
        let policy = match (name.trim(), number) {
            ("adaptive", "") => Some(Self::Adaptive),
            ("eager" | "opportunistic", "") => Some(Self::Opportunistic),
            ("window", number) => window(number),
            _ => None,
        };
        policy.ok_or_else(|| NoPolicy(text.to_owned()))
    }
}

impl fmt::Display for SimulatedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => write!(f, "adaptive"),
            Self::Opportunistic => write!(f, "opportunistic"),
            Self::Window(delay) => write!(f, "window {} ms", (*delay as f64 / 1e4).round() / 100.0),
        }
    }
}

/// A name that no policy has, or a number it cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPolicy(String);

impl fmt::Display for NoPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.0;
        write!(f, "{name:?} is not a policy; there are adaptive, opportunistic and window:MS")
    }
}

impl std::error::Error for NoPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_name() {
        for (text, name) in [
            ("adaptive", "adaptive"),
            ("eager", "opportunistic"),
            ("opportunistic", "opportunistic"),
            ("window:2.5ms", "window 2.5 ms"),
        ] {
            assert_eq!(SimulatedPolicy::parse(text).expect(text).to_string(), name);
        }
    }

    #[test]
    fn what_is_no_policy_is_told_the_names() {
        for text in ["", "adaptve", "window", "window:-1", "window:x", "torchserve:16,5"] {
            let error = SimulatedPolicy::parse(text).expect_err(text);
            assert!(error.to_string().contains("window:MS"));
        }
    }
}
