//! The batch sizes at which a model runs: those that its operator set, else those that its workers say
//! when they have loaded it.

use jitney_batcher::Config;

/// What the settings say, and what the workers do.
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
