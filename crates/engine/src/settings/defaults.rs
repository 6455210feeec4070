//! What applies to models that say nothing: the operator's word, and TorchServe's numbers under it.

use std::sync::Arc;
use std::time::Duration;

use super::PolicyName;
use crate::call::SequenceHeaders;

/// What applies to every model unless something closer to it says otherwise.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Workers of models registered through the API without a number.
    pub workers: u32,
    /// Workers of models loaded at start-up without a number.
    pub startup_workers: u32,
    /// Seconds a batch may run.
    pub response_timeout_s: u64,
    /// Seconds a worker may take to load.
    pub startup_timeout_s: u64,
    /// What an archive with a `model-config.yaml` means that says nothing about its times, whoever
    /// else does: TorchServe's rule. Without it the caller and the operator decide.
    pub silent_yaml_timeout: Option<Duration>,
    /// Requests that may wait.
    pub queue_max: u32,
    /// Whether requests of different doors may meet in a batch of a model that does not say.
    pub mix_origins: bool,
    /// Switches all models at once (`batching_policy` in the configuration).
    pub policy: Option<PolicyName>,
    /// The handler of archives that name none.
    pub handler: Option<String>,
    /// The operator's word about single models: `models={...}` of config.properties.
    pub models: serde_json::Map<String, serde_json::Value>,
    /// How long an unregistered model may take to finish what it admitted.
    pub unregister_timeout: Duration,
    /// How requests and answers name their sequences.
    pub sequence_headers: Arc<SequenceHeaders>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            workers: 0,
            startup_workers: 1,
            response_timeout_s: 120,
            startup_timeout_s: 120,
            silent_yaml_timeout: None,
            queue_max: 100,
            mix_origins: false,
            policy: None,
            handler: None,
            models: serde_json::Map::new(),
            unregister_timeout: Duration::from_secs(120),
            sequence_headers: Arc::default(),
        }
    }
}
