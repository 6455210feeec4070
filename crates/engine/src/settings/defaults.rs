//! What applies to models beyond what their callers and archives give.

use std::sync::Arc;
use std::time::Duration;

use jitney_settings::{SettingSource, Values};

use crate::call::SequenceHeaders;

/// Whose value wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// Caller, operator, archive, default: what is typed wins over what was packed.
    #[default]
    Jitney,
    /// TorchServe's: caller, archive, `models={...}`, operator, default; but the archive comes first
    /// for workers and timeouts.
    TorchServe,
}

/// What applies to every model of an engine.
#[derive(Clone, Debug)]
pub struct ModelDefaults {
    /// Whose value wins.
    pub precedence: Precedence,
    /// What the operator set for all models: flags, variables and files.
    pub settings: Values,
    /// Workers of models loaded at start-up without a number; later ones have none.
    pub startup_workers: u32,
    /// The timeouts of an archive with a `model-config.yaml` that gives none, whoever else gives
    /// some: TorchServe's rule.
    pub silent_yaml_timeout: Option<Duration>,
    /// The handler of archives that name none.
    pub handler: Option<String>,
    /// The operator's settings of single models: `models={...}` of config.properties.
    pub models: serde_json::Map<String, serde_json::Value>,
    /// Where `models` was set.
    pub models_source: SettingSource,
    /// How long an unregistered model may take to finish what it admitted.
    pub unregister_timeout: Duration,
    /// How requests and answers name their sequences.
    pub sequence_headers: Arc<SequenceHeaders>,
}

impl Default for ModelDefaults {
    fn default() -> Self {
        Self {
            precedence: Precedence::Jitney,
            settings: Values::default(),
            startup_workers: 1,
            silent_yaml_timeout: None,
            handler: None,
            models: serde_json::Map::new(),
            models_source: SettingSource::Default,
            unregister_timeout: Duration::from_secs(120),
            sequence_headers: Arc::default(),
        }
    }
}
