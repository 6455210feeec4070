//! What an engine is made of: plain values, which its owner puts together. Nothing here acts.

use std::path::PathBuf;

use jitney_settings::Values;

use crate::admission::AdmissionLimits;
use crate::local::LocalRuntime;
use crate::model::GpuMemoryConfig;
use crate::python::PythonConfig;
use crate::settings::ModelDefaults;
use crate::store::StoreConfig;

/// What an engine is made of.
pub struct EngineConfig {
    /// What applies to models that set nothing else.
    pub defaults: ModelDefaults,
    /// The most that may be under way.
    pub limits: AdmissionLimits,
    /// Bytes of memory for models that are loaded on demand, beside those that are not.
    pub memory: u64,
    /// How workers are placed by the memory of GPUs; without it they get GPUs in turn.
    pub gpu_memory: Option<GpuMemoryConfig>,
    /// Where archives come from and are unpacked to.
    pub store: StoreConfig,
    /// The same for workflows; without it they come from where models come from.
    pub workflow_store: Option<StoreConfig>,
    /// Where models are loaded from by their names.
    pub repository: RepositoryConfig,
    /// How Python workers are started.
    pub python: PythonConfig,
    /// This very program: it is started once more to end the workers if this process is killed, and for
    /// every worker of a model without Python.
    pub program: Option<PathBuf>,
    /// Serves models without Python; `None` if only Python workers run models.
    pub local: Option<LocalRuntime>,
    /// What `local` is told when it loads a model, beside the model's own settings.
    pub local_options: serde_json::Map<String, serde_json::Value>,
    /// The id of the first worker; later ones count up and are never used again.
    pub first_worker_id: u32,
}

/// A directory whose models are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// What its one model is called; without it any number of models keep their own names.
    pub name: Option<String>,
}

/// Where the models of a repository come from.
#[derive(Clone, Debug, Default)]
pub struct RepositoryConfig {
    /// Directories whose models are served; of two models with one name the first directory's is served.
    pub directories: Vec<ServedDirectory>,
    /// A directory whose models are loaded when somebody asks for them.
    pub store: Option<PathBuf>,
    /// What was typed for all models; it wins over what their configurations say.
    pub settings: Values,
}
