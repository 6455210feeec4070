//! Changes to a live model: what is not named stays. A change is checked as a whole before any of it
//! is done.

use std::sync::Arc;

use jitney_settings::model::{MAX_BATCH_SIZE, MAX_LATENCY_MS};
use jitney_settings::SettingSource;

use super::{Control, Model};
use crate::settings::Reconfigure;

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
