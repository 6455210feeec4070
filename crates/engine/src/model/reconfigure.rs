//! Changes to a live model: what may be changed, and what it comes to.
//!
//! Apart from how settings are resolved at first because here silence means that everything stays.
//! A change is checked as a whole before any of it is done.

use std::sync::Arc;
use std::time::Duration;

use super::{Control, Model};
use crate::resolve::checked;
use crate::settings::{PolicyName, Settings};

/// Changes to a live model; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconfigure {
    /// The endpoint of a definition whose batch size or objective changes; all of them if none is
    /// named.
    pub endpoint: Option<String>,
    /// Most items in a batch.
    pub batch_size: Option<u32>,
    /// The window in milliseconds.
    pub max_batch_delay_ms: Option<u64>,
    /// The latency objective in milliseconds; 0 for none.
    pub max_latency_ms: Option<u64>,
    /// When batches leave.
    pub policy: Option<PolicyName>,
    /// Requests that may wait.
    pub queue_max: Option<u32>,
    /// Weights of tenants, in place of those there are.
    pub tenants: Option<Vec<(String, u32)>>,
}

impl Model {
    /// Changes how batches leave, at once.
    pub async fn reconfigure(&self, change: Reconfigure) -> Result<(), String> {
        let now = self.settings();
        let tuning = self.intake.tune(&change, &now)?;
        let batch_size = tuning.batch_size.or(change.batch_size);
        let max_latency_ms = change.max_latency_ms.filter(|_| tuning.latency_max.is_none());
        let mut settings = now.changed(&Reconfigure { batch_size, max_latency_ms, ..change })?;
        settings.latency_max = tuning.latency_max.unwrap_or(settings.latency_max);
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

impl Settings {
    /// These settings with a live change applied.
    pub(crate) fn changed(&self, change: &Reconfigure) -> Result<Self, String> {
        let mut settings = self.clone();
        settings.batch_size = change.batch_size.unwrap_or(self.batch_size);
        if let Some(delay) = change.max_batch_delay_ms {
            settings.batch_delay = Duration::from_millis(delay);
            settings.wait_max = Some(settings.batch_delay);
            settings.policy = PolicyName::Window;
        }
        if let Some(latency) = change.max_latency_ms {
            settings.latency_max = (latency > 0).then(|| Duration::from_millis(latency));
            settings.policy = PolicyName::Adaptive;
        }
        settings.queue_max = change.queue_max.unwrap_or(self.queue_max);
        settings.policy = change.policy.unwrap_or(settings.policy);
        if let Some(tenants) = &change.tenants {
            settings.shares = settings.shares.weighing(tenants)?;
        }
        checked(settings).map_err(|error| error.to_string())
    }
}
