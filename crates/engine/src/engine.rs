//! The engine as its owner holds it: one value with the registry, the limits and the means to
//! start workers. Doors call [`Engine::model`] on the hot path; management calls the rest.

mod draft;
mod plugin;
mod registration;
mod workflows;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use self::draft::Draft;
pub use self::plugin::PluginPlan;
pub use self::registration::Registered;
use crate::admission::{Admission, AdmissionLimits};
use crate::call::SequenceHeaders;
use crate::changes::Changes;
use crate::error::{LookupError, RegisterError, UnregisterError};
use crate::local::LocalRuntime;
use crate::model::Model;
use crate::observer::Observer;
use crate::python::{DialIn, PythonConfig, unpack_runtime};
use crate::registry::Registry;
use crate::settings::Defaults;
use crate::store::{FetchedFile, Store, StoreConfig};
use crate::workflow::Table as Workflows;

/// What an engine is made of.
pub struct EngineConfig {
    /// What applies to models that do not say otherwise.
    pub defaults: Defaults,
    /// The most that may be under way.
    pub limits: AdmissionLimits,
    /// Where archives come from and are unpacked to.
    pub store: StoreConfig,
    /// The same for workflows; without it they come from where models come from.
    pub workflow_store: Option<StoreConfig>,
    /// How Python workers are started.
    pub python: PythonConfig,
    /// Serves models in this process, without Python; `None` if only Python workers run models.
    pub local: Option<LocalRuntime>,
    /// The id of the first worker; later ones count up and are never used again.
    pub first_worker_id: u32,
}

/// Everything that runs models.
pub struct Engine {
    registry: Registry,
    workflows: Workflows,
    changes: Changes,
    admission: Arc<Admission>,
    /// Readiness has fallen; requests are still served.
    leaving: AtomicBool,
    /// New requests are refused.
    refusing: Arc<AtomicBool>,
    defaults: Defaults,
    store: Arc<Store>,
    workflow_store: Arc<Store>,
    python: Arc<PythonConfig>,
    local: Option<LocalRuntime>,
    dial_in: Arc<DialIn>,
    runtime_dir: std::path::PathBuf,
    worker_ids: Arc<AtomicU32>,
    gpu_turn: Arc<AtomicU32>,
    observer: Arc<dyn Observer>,
    data: Vec<Handle>,
    next_data: AtomicUsize,
    /// The operator's own processes; they end with the models.
    plugins: Mutex<Vec<Arc<Model>>>,
}

impl Engine {
    /// Makes an engine whose model tasks run on the given runtimes of the data plane.
    pub fn start(config: EngineConfig, data: Vec<Handle>) -> io::Result<Arc<Self>> {
        Self::start_observed(config, data, Arc::new(()))
    }

    /// Like [`Engine::start`], with somebody who keeps books.
    pub fn start_observed(
        config: EngineConfig,
        data: Vec<Handle>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Arc<Self>> {
        let scratch = config.store.scratch.clone();
        std::fs::create_dir_all(&scratch)?;
        let first = data.first().ok_or_else(|| io::Error::other("no data-plane runtime"))?;
        let store = Arc::new(Store::new(config.store));
        let workflow_store = config.workflow_store.map(|config| Arc::new(Store::new(config)));
        Ok(Arc::new(Self {
            registry: Registry::default(),
            workflows: Workflows::default(),
            changes: Changes::default(),
            admission: Admission::new(config.limits),
            leaving: AtomicBool::new(false),
            refusing: Arc::default(),
            defaults: config.defaults,
            dial_in: DialIn::listen(scratch.join("workers.sock"), first)?,
            runtime_dir: unpack_runtime(&scratch)?,
            workflow_store: workflow_store.unwrap_or_else(|| Arc::clone(&store)),
            store,
            python: Arc::new(config.python),
            local: config.local,
            worker_ids: Arc::new(AtomicU32::new(config.first_worker_id)),
            gpu_turn: Arc::default(),
            observer,
            data,
            next_data: AtomicUsize::new(0),
            plugins: Mutex::default(),
        }))
    }

    /// Where our own Python packages lie, for whoever runs Python beside the workers.
    pub fn python_packages(&self) -> &Path {
        &self.runtime_dir
    }

    /// The model that answers to this name, and version if one is asked for.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, LookupError> {
        self.registry.find(name, version)
    }

    /// Every version of a model.
    pub fn versions(&self, name: &str) -> Result<Vec<Arc<Model>>, LookupError> {
        self.registry.versions(name)
    }

    /// The default version of every model, sorted by name.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.registry.defaults()
    }

    /// How requests and answers name their sequences.
    pub fn sequence_headers(&self) -> &SequenceHeaders {
        &self.defaults.sequence_headers
    }

    /// The model to take when a request names none: the only one loaded at start-up.
    pub fn sole_startup_model(&self) -> Option<Arc<Model>> {
        let mut loaded = self.models().into_iter().filter(|model| model.identity().at_startup);
        match (loaded.next(), loaded.next()) {
            (Some(model), None) => Some(model),
            _ => None,
        }
    }

    /// Whether every model has the workers it wants, or is getting them.
    pub fn healthy(&self) -> bool {
        self.models().iter().all(|model| model.healthy())
    }

    /// Lets another version of a model answer by default.
    pub fn set_default(&self, name: &str, version: &str) -> Result<(), LookupError> {
        self.registry.set_default(name, version)?;
        self.changes.note();
        Ok(())
    }

    /// Removes a version (the default one if none is named): new requests do not find it, admitted
    /// ones are answered, then its workers end.
    pub async fn unregister(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(), UnregisterError> {
        let model = self.registry.remove(name, version)?;
        self.changes.note();
        model.close(self.defaults.unregister_timeout).await;
        remove_fetched(&model).await;
        tracing::info!(model = model.name(), version = model.version(), "model unregistered");
        Ok(())
    }

    /// Requests that may wait for a model that says nothing else.
    pub fn queue_default(&self) -> u32 {
        self.defaults.queue_max
    }

    /// A counter that moves after every change of models, workers or batching.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.watch()
    }

    /// Whether the engine is on its way out.
    pub fn draining(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Readiness falls; requests are still served until [`Engine::drain`], so that load balancers
    /// have time to notice.
    pub fn begin_drain(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Refuses new requests, answers everything that was admitted and ends all workers; true if
    /// that took no force.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.begin_drain();
        self.refusing.store(true, Ordering::Relaxed);
        let started = tokio::time::Instant::now();
        self.finish_workflows(grace).await;
        let grace_left = grace.saturating_sub(started.elapsed());
        let mut models = self.registry.all();
        models.extend(std::mem::take(
            &mut *self.plugins.lock().unwrap_or_else(PoisonError::into_inner),
        ));
        let closing: Vec<_> = models
            .into_iter()
            .map(|model| tokio::spawn(async move { model.close(grace_left).await }))
            .collect();
        for task in closing {
            drop(task.await);
        }
        started.elapsed() < grace
    }
}

/// What was downloaded for a model leaves the store with it.
async fn remove_fetched(model: &Arc<Model>) {
    if model.fetched.is_some() {
        let model = Arc::clone(model);
        // It cannot panic, and nobody waits for more than its end.
        let _ = blocking(move || model.fetched.iter().for_each(FetchedFile::remove)).await;
    }
}

/// Runs blocking work off the caller's runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RegisterError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|panic| RegisterError::BadSettings(format!("reading the model failed: {panic}")))
}
