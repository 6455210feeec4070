//! Changes to a live model: what may be changed, and what it comes to.
//!
//! Apart from how settings are resolved at first because here what is left out stays as it is.
//! A change is checked as a whole before any of it is done.

use std::time::Duration;

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
    /// When batches are dispatched.
    pub policy: Option<PolicyName>,
    /// Requests that may wait.
    pub queue_max: Option<u32>,
    /// Weights of tenants, in place of those there are.
    pub tenants: Option<Vec<(String, u32)>>,
}

impl Reconfigure {
    /// The settings of a live model with this self.
    pub(super) fn apply(&self, now: &Settings) -> Result<Settings, String> {
        let mut settings = now.clone();
        settings.batch_size = self.batch_size.unwrap_or(now.batch_size);
        if let Some(delay) = self.max_batch_delay_ms {
            settings.batch_delay = Duration::from_millis(delay);
            settings.wait_max = Some(settings.batch_delay);
            settings.policy = PolicyName::Window;
        }
        if let Some(latency) = self.max_latency_ms {
            settings.latency_max = (latency > 0).then(|| Duration::from_millis(latency));
            settings.policy = PolicyName::Adaptive;
        }
        settings.queue_max = self.queue_max.unwrap_or(now.queue_max);
        settings.policy = self.policy.unwrap_or(settings.policy);
        if let Some(tenants) = &self.tenants {
            settings.shares = settings.shares.weighing(tenants)?;
        }
        checked(settings).map_err(|error| error.to_string())
    }
}
