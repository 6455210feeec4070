//! What the settings of a model come from beside its archive: what its caller gives when registering it,
//! the same for query parameters, flags and files; and what applies to all models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_settings::torchserve::UNREGISTER_MODEL_TIMEOUT;
use jitney_settings::{SettingSource, Values};

use crate::call::SequenceHeaders;
use crate::store::{DeclaredTensors, PythonBackend, Sha256};

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
    /// Most workers that a model may be given, by whomever; none: no limit.
    pub workers_limit: Option<u32>,
    /// The timeouts of an archive with a `model-config.yaml` that gives none, whoever else gives
    /// some: TorchServe's rule.
    pub silent_yaml_timeout: Option<Duration>,
    /// The handler of archives that name none.
    pub handler: Option<String>,
    /// Whether that handler is for a folder; any other is for who reads its format.
    pub handles_folder: fn(&Path) -> bool,
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
            workers_limit: None,
            silent_yaml_timeout: None,
            handler: None,
            handles_folder: |_| true,
            models: serde_json::Map::new(),
            models_source: SettingSource::Default,
            unregister_timeout: UNREGISTER_MODEL_TIMEOUT.default_value(),
            sequence_headers: Arc::default(),
        }
    }
}

/// What a caller gives when registering a model; everything but the url may be left out.
#[derive(Clone, Debug, Default)]
pub struct RegisterOptions {
    /// File in the store, directory, `file://` URL, or a path to an `.onnx` file.
    pub url: String,
    /// Overrides the archive's own name.
    pub model_name: Option<String>,
    /// Overrides the archive's own version (only `jitney serve` offers it).
    pub version: Option<String>,
    /// Overrides the manifest's handler.
    pub handler: Option<String>,
    /// Overrides the manifest's runtime.
    pub runtime: Option<String>,
    /// The settings that the caller gives.
    pub settings: Values,
    /// What single endpoints of a definition take, where it is not what the model does.
    pub endpoints: BTreeMap<String, EndpointOptions>,
    /// Whether the server itself loads it at start-up.
    pub at_startup: bool,
    /// Whether a snapshot is restored: its workers win over the archive's.
    pub restored: bool,
    /// Whether it is a part of an application: flags of the command line are about the application itself.
    pub part: bool,
    /// The workflow that the model is a node of.
    pub workflow: Option<String>,
    /// The sum its file must have.
    pub sha256: Option<Sha256>,
    /// Fetch it from S3 with the server's own credentials, although its url is an `https://` one.
    pub s3_sse_kms: bool,
    /// Whether what is downloaded for it lies apart from the model store and goes with it, so that another
    /// file of the same name can be beside it.
    pub apart: bool,
    /// Where its file or directory is, when the server itself found it in a repository; the url is only
    /// shown then.
    pub path: Option<PathBuf>,
    /// Its requests run whole and alone: it has no batch dimension, whatever its shapes look like.
    pub whole: bool,
    /// How it is run, if it is a model of Triton's Python backend.
    pub python: Option<Arc<PythonBackend>>,
    /// What a configuration beside it says of its inputs and outputs, where it is one of a repository.
    pub declared: Option<Arc<DeclaredTensors>>,
    /// The names of classes, by output.
    pub labels: Arc<BTreeMap<String, Vec<String>>>,
}

/// What is asked of one endpoint of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Most items in a batch of its own; never more than the model's batches take.
    pub batch_size: Option<u32>,
    /// The latency target in milliseconds; 0 for none.
    pub max_latency_ms: Option<u64>,
}
