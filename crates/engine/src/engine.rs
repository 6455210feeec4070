//! The engine as its owner holds it: one value with the registry, the limits and the means to
//! start workers. Doors call [`Engine::model`] on the hot path; management calls the rest.

mod draft;
mod plugin;
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
use crate::admission::{Admission, Limits};
use crate::changes::Changes;
use crate::error::{LookupError, RegisterError, UnregisterError};
use crate::model::{Endpoints, Intake, Model, SequenceHeaders};
use crate::observer::Observer;
use crate::onnx::{OnnxLauncher, OnnxModel, SessionOptions};
use crate::python::{
    Devices, DialIn, Environment, LoadOrder, PythonConfig, PythonLauncher, unpack_runtime,
};
use crate::registry::Registry;
use crate::resolve;
use crate::settings::{Defaults, PolicyName, Settings, Wishes};
use crate::store::{Ask, Fetched, Found, Package, Sha256, Store, StoreConfig, StoreError};
use crate::workflow::Table as Workflows;

/// What an engine is made of.
pub struct EngineConfig {
    /// What applies to models that do not say otherwise.
    pub defaults: Defaults,
    /// The most that may be under way.
    pub limits: Limits,
    /// Where archives come from and are unpacked to.
    pub store: StoreConfig,
    /// The same for workflows; without it they come from where models come from.
    pub workflow_store: Option<StoreConfig>,
    /// How Python workers are started.
    pub python: PythonConfig,
    /// The id of the first worker; later ones count up and are never used again.
    pub first_worker_id: u32,
}

/// A model that was just registered, without workers yet.
pub struct Registered {
    /// The model.
    pub model: Arc<Model>,
    /// Workers it should be scaled to.
    pub workers_min: u32,
    /// Workers it may have.
    pub workers_max: u32,
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
    draining: Arc<AtomicBool>,
    defaults: Defaults,
    store: Arc<Store>,
    workflow_store: Arc<Store>,
    python: Arc<PythonConfig>,
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
            draining: Arc::default(),
            defaults: config.defaults,
            dial_in: DialIn::listen(scratch.join("workers.sock"), first)?,
            runtime_dir: unpack_runtime(&scratch)?,
            workflow_store: workflow_store.unwrap_or_else(|| Arc::clone(&store)),
            store,
            python: Arc::new(config.python),
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
        let mut loaded = self.models().into_iter().filter(|model| model.at_startup());
        match (loaded.next(), loaded.next()) {
            (Some(model), None) => Some(model),
            _ => None,
        }
    }

    /// Whether every model has the workers it wants, or is getting them.
    pub fn healthy(&self) -> bool {
        self.models().iter().all(|model| model.healthy())
    }

    /// Registers a model from the store, without workers.
    pub async fn register(&self, wishes: Wishes) -> Result<Registered, RegisterError> {
        if self.draining() {
            return Err(RegisterError::Draining);
        }
        resolve::check_runtime(&wishes)?;
        let (store, url) = (Arc::clone(&self.store), wishes.url.clone());
        let found = self.find(&wishes).await?;
        if found.file().is_some_and(|file| file.extension().is_some_and(|it| it == "onnx")) {
            return self.register_onnx_file(found, wishes).await;
        }
        if url.ends_with(".onnx") {
            return Err(StoreError::NotFound { url }.into());
        }
        let file = found.file().map(Path::to_owned);
        let package = blocking(move || store.open(&url, found)).await??;
        let operators = resolve::operators_sha256(&package, &wishes, &self.defaults)?;
        self.verify(&wishes.url, file.as_deref(), operators).await?;
        self.register_package(package, &wishes).await
    }

    /// Finds the model and, if it is on another machine, fetches it. A caller who goes away ends the
    /// download, and nothing is left of it.
    async fn find(&self, wishes: &Wishes) -> Result<Found, RegisterError> {
        let (store, url) = (Arc::clone(&self.store), wishes.url.clone());
        let at_startup = wishes.at_startup;
        let found = blocking(move || store.find(&url, at_startup)).await??;
        let ask = Ask { url: &wishes.url, signed: wishes.s3_sse_kms, resume: None };
        let found = self.store.fetch(ask, found).await?;
        self.verify(&wishes.url, found.file(), wishes.sha256).await?;
        Ok(found)
    }

    /// Reads the file once more if somebody said which sum it must have.
    async fn verify(
        &self,
        url: &str,
        file: Option<&Path>,
        sha256: Option<Sha256>,
    ) -> Result<(), RegisterError> {
        let Some(sha256) = sha256 else { return Ok(()) };
        let (store, url, file) =
            (Arc::clone(&self.store), url.to_owned(), file.map(Path::to_owned));
        Ok(blocking(move || store.verify(&url, file.as_deref(), sha256)).await??)
    }

    async fn register_onnx_file(
        &self,
        found: Found,
        wishes: Wishes,
    ) -> Result<Registered, RegisterError> {
        let path = found.file().unwrap_or(Path::new("")).to_owned();
        let model = blocking(move || OnnxModel::open(&path)).await?;
        let model = model.map_err(|error| RegisterError::Onnx(error.to_string()))?;
        self.install(self.onnx_draft(model, wishes, found.fetched())?)
    }

    async fn register_package(
        &self,
        mut package: Package,
        wishes: &Wishes,
    ) -> Result<Registered, RegisterError> {
        let (name, version) = resolve::name_and_version(&package, wishes)?;
        if self.registry.taken(&name, &version) {
            return Err(RegisterError::Conflict { model: name, version });
        }
        let mut settings = resolve::settings(&name, &version, &package, wishes, &self.defaults)?;
        let (python, models) = (&self.python, self.store.models());
        let environment =
            Environment::prepare(python, &self.runtime_dir, &models, &name, &mut package).await?;
        let devices = Devices::new(python.gpus, &package.yaml, &self.gpu_turn);
        (settings.declared.gpu, settings.declared.device_ids) = devices.declared();
        let mut message = resolve::load_message(&name, &version, &package, &settings, &self.python);
        message["model_metrics"] = self.observer.model_metrics();
        let order = LoadOrder {
            model: name.clone(),
            version: version.clone(),
            dir: package.dir.path().to_owned(),
            message,
        };
        let launcher = Arc::new(PythonLauncher {
            config: Arc::clone(&self.python),
            dial_in: Arc::clone(&self.dial_in),
            runtime: self.runtime_dir.clone(),
            order,
            environment,
            devices,
            crowd: AtomicU32::default(),
            observer: Arc::clone(&self.observer),
        });
        let draft = Draft {
            name,
            version,
            url: wishes.url.clone(),
            sha256: wishes.sha256,
            at_startup: wishes.at_startup,
            workflow: wishes.workflow.clone(),
            intake: match package.api {
                Some(api) => Intake::Defined(Endpoints::new(api, &settings, &wishes.endpoints)),
                None => Intake::Python,
            },
            settings,
            launcher,
            observer: Arc::clone(&self.observer),
            dir: Some(package.dir),
            fetched: package.downloaded,
        };
        self.install(draft)
    }

    /// Registers a model that runs in this process, without workers.
    pub async fn register_onnx(
        &self,
        model: Arc<OnnxModel>,
        wishes: Wishes,
    ) -> Result<Registered, RegisterError> {
        self.install(self.onnx_draft(model, wishes, None)?)
    }

    fn onnx_draft(
        &self,
        model: Arc<OnnxModel>,
        wishes: Wishes,
        fetched: Option<Fetched>,
    ) -> Result<Draft, RegisterError> {
        let settings = resolve::onnx_settings(&model, &wishes, &self.defaults)?;
        let name = wishes.model_name.unwrap_or_else(|| model.name().to_owned());
        let version = wishes.version.unwrap_or_else(|| model.version().to_owned());
        let options = SessionOptions {
            name: Some(name.clone()),
            version: Some(version.clone()),
            ..SessionOptions::default()
        };
        Ok(Draft {
            name,
            version,
            url: wishes.url,
            sha256: wishes.sha256,
            at_startup: wishes.at_startup,
            workflow: wishes.workflow,
            settings,
            launcher: Arc::new(OnnxLauncher::new(Arc::clone(&model), options)),
            intake: Intake::Onnx(model),
            observer: Arc::clone(&self.observer),
            dir: None,
            fetched,
        })
    }

    /// Brings a model to life: its task, then its entry in the registry.
    fn install(&self, draft: Draft) -> Result<Registered, RegisterError> {
        let (workers_min, workers_max) = (draft.settings.workers_min, draft.settings.workers_max);
        let (model, task) =
            draft.build(&self.admission, &self.draining, &self.worker_ids, &self.changes);
        self.registry.insert(Arc::clone(&model))?;
        self.changes.note();
        model.fetched.iter().for_each(Fetched::settle);
        let turn = self.next_data.fetch_add(1, Ordering::Relaxed) % self.data.len();
        self.data[turn].spawn(task.run());
        tracing::info!(
            model = model.name(),
            version = model.version(),
            policy = model.settings().policy.as_str(),
            batch_size = model.settings().batch_size,
            "model registered"
        );
        remark_on(&model.settings());
        Ok(Registered { model, workers_min, workers_max })
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
        self.draining.store(true, Ordering::Relaxed);
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

/// Says what a setting costs that was written for another server.
fn remark_on(settings: &Settings) {
    let delay_ms = settings.batch_delay.as_millis() as u64;
    match settings.policy {
        PolicyName::Window if settings.batch_size > 1 => tracing::info!(
            delay_ms,
            "a lone request waits out the whole delay although a worker is idle; policy=adaptive saves that"
        ),
        PolicyName::Adaptive if settings.items_max() > 1 && !settings.plans() => {
            tracing::info!(
                "its handler runs batches side by side, so there is nothing to plan: a free place takes what is there"
            );
        }
        PolicyName::Adaptive | PolicyName::Window | PolicyName::Opportunistic => {}
    }
}

/// What was downloaded for a model leaves the store with it.
async fn remove_fetched(model: &Arc<Model>) {
    if model.fetched.is_some() {
        let model = Arc::clone(model);
        // It cannot panic, and nobody waits for more than its end.
        let _ = blocking(move || model.fetched.iter().for_each(Fetched::remove)).await;
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
