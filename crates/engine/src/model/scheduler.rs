//! What the batcher of a model version is asked with: its time, the sizes it may use, and when it wants to look again.
//!
//! The batcher decides and the task acts; this file holds only what passes between them.

use std::time::Duration;

use jitney_batcher::{Batcher, Config, Policy};
use tokio::time::Instant;

/// The batcher, and what the task remembers for it.
pub(super) struct ModelScheduler {
    pub(super) batcher: Batcher,
    pub(super) clock: ModelClock,
    pub(super) sizes: AllowedSizes,
    /// Whether the batcher still waits for a request that comes together with its last one.
    pub(super) undecided: bool,
    /// When the batcher wants to look again.
    pub(super) timer: Option<Instant>,
    /// The time for which the alarm has just rung.
    pub(super) rung: Option<Instant>,
}

impl ModelScheduler {
    pub(super) fn new(config: Config, clock: ModelClock) -> Self {
        Self {
            batcher: Batcher::new(config.clone()),
            clock,
            sizes: AllowedSizes::new(config),
            undecided: false,
            timer: None,
            rung: None,
        }
    }

    pub(super) fn is_adaptive(&self) -> bool {
        matches!(self.batcher.config().policy, Policy::Adaptive(_))
    }
}

/// The time of one model version as its batcher counts it: nanoseconds since the model was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelClock {
    start: Instant,
}

impl ModelClock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now(self) -> u64 {
        self.nanos(Instant::now())
    }

    pub(super) fn nanos(self, instant: Instant) -> u64 {
        u64::try_from(instant.duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    /// A deadline as the batcher has it: no deadline is the end of time.
    pub(super) fn deadline(self, deadline: Option<Instant>) -> u64 {
        deadline.map_or(u64::MAX, |deadline| self.nanos(deadline))
    }

    pub(super) fn instant(self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }
}

/// The batch sizes at which a model runs: those that its operator set, else those that its workers say when they have
/// loaded it.
#[derive(Debug)]
pub(super) struct AllowedSizes {
    /// The batcher's configuration as the settings have it.
    settings: Config,
    /// What the last worker said that said something.
    reported: Vec<u32>,
}

impl AllowedSizes {
    pub(super) fn new(settings: Config) -> Self {
        Self { settings, reported: Vec::new() }
    }

    /// The settings have changed: the configuration that is to be in force.
    pub(super) fn configure(&mut self, settings: Config) -> Config {
        self.settings = settings;
        self.config()
    }

    /// A worker says at which sizes it runs the model: the configuration that is to be in force, if that
    /// changes it.
    pub(super) fn report(&mut self, sizes: &[u32]) -> Option<Config> {
        if sizes.is_empty() || self.reported == sizes {
            return None;
        }
        self.reported = sizes.to_vec();
        self.settings.sizes.is_empty().then(|| self.config())
    }

    fn config(&self) -> Config {
        let mut config = self.settings.clone();
        if config.sizes.is_empty() {
            config.sizes.clone_from(&self.reported);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_say_counts_where_the_operator_says_nothing() {
        let base = Config { max_items: 8, ..Config::default() };
        let mut sizes = AllowedSizes::new(base.clone());
        assert_eq!(sizes.report(&[]), None);
        let config = sizes.report(&[1, 2, 8]).expect("a change");
        assert_eq!((config.sizes, config.max_items), (vec![1, 2, 8], 8));
        assert_eq!(sizes.report(&[1, 2, 8]), None, "no change");
        let set = Config { sizes: vec![4], ..base.clone() };
        assert_eq!(sizes.configure(set).sizes, [4]);
        assert_eq!(sizes.report(&[1, 8]), None);
        assert_eq!(sizes.configure(base).sizes, [1, 8], "the operator takes it back");
    }
}
