//! Changes to a live model: what is not named stays. A change is checked as a whole before any of it
//! is done.

use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS};
use jitney_settings::{Setting, SettingSource, SettingValue, Values};

/// A change of a live model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconfigure {
    /// The endpoint of a definition whose batch size or latency target changes; all of them if none
    /// is named.
    pub endpoint: Option<String>,
    /// The settings that change.
    pub settings: Values,
}

impl Reconfigure {
    /// A change of one setting of the model.
    pub fn of(setting: &Setting, value: impl Into<SettingValue>) -> Self {
        Self {
            endpoint: None,
            settings: Values::default().with(setting, value, SettingSource::Live),
        }
    }

    /// The most items in a batch, if they change.
    pub(crate) fn batch_size(&self) -> Option<u32> {
        self.settings.read(&MAX_BATCH_SIZE)
    }

    /// The latency target, if it changes; zero for none.
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.settings.read(&MAX_LATENCY_MS)
    }
}
