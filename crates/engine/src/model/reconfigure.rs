//! Changes to a live model: what is not named stays. A change is checked as a whole before any of it
//! is done.

use std::sync::Arc;
use std::time::Duration;

use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS};
use jitney_settings::{Setting, SettingSource, SettingValue, Values};

use super::{Control, Model};

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

impl Model {
    /// Changes settings of the model, at once.
    pub async fn reconfigure(&self, change: Reconfigure) -> Result<(), String> {
        let now = self.settings();
        let tuning = self.intake.tune(&change, &now)?;
        let mut values = change.settings;
        if let Some(size) = tuning.batch_size {
            values.set(&MAX_BATCH_SIZE, size, SettingSource::Live);
        }
        if tuning.latency_max.is_some() {
            values.remove(&MAX_LATENCY_MS);
        }
        let mut settings = now.changed(&values)?;
        if let Some(latency) = tuning.latency_max {
            settings.latency_max = latency;
            let value = latency.unwrap_or_default();
            settings.values.set(&MAX_LATENCY_MS, value, SettingSource::Live);
        }
        if let Some(endpoints) = self.intake.endpoints() {
            endpoints.apply(&tuning);
        }
        let settings = Arc::new(settings);
        self.settings.store(Arc::clone(&settings));
        self.ask(|reply| Control::Reconfigure { settings, reply })
            .await
            .ok_or_else(|| "the model was removed".to_owned())?;
        self.changes.note();
        Ok(())
    }
}
