//! Registers models: found, fetched, checked, opened, described by a draft, and entered into the
//! registry; and removes them again.
//!
//! Nothing here is on a request's way, all of it may fail, and a failure leaves nothing behind. It starts
//! no worker: whoever registers also scales.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use jitney_settings::model::{
    ISOLATION, MEMORY_LIMIT, ONNX_ENGINE, ONNX_LIBRARY, ONNX_PROVIDERS, ONNX_THREADS,
    STARTUP_TIMEOUT,
};
use jitney_settings::{Isolation, Values};
use tokio::runtime::Handle;

use crate::admission::{Admission, AdmissionLimits};
use crate::changes::Changes;
use crate::error::{RegisterError, UnregisterError};
use crate::local::process::{LocalLauncher, LocalLoad, LocalProcesses};
use crate::local::thread::ThreadLauncher;
use crate::local::whole::WholeModel;
use crate::local::{LoadedModel, LocalModel, LocalRuntime, LocalSession};
use crate::model::draft::Draft;
use crate::model::endpoint_tensors::signature;
use crate::model::task::Task;
use crate::model::{Endpoints, Intake, Model, ModelIdentity};
use crate::observer::Observer;
use crate::outcome::LaunchError;
use crate::pool::Launcher;
use crate::process::ProcessThread;
use crate::python::{Environment, LoadCommand, PythonConfig, PythonLauncher, PythonWorkers};
use crate::registry::Registry;
use crate::resolve;
use crate::settings::{ModelDefaults, ModelSettings, PolicyName, RegisterOptions};
use crate::store::{
    DownloadRequest, FetchedFile, ModelSource, Package, Sha256, ShownUrl, Store, StoreConfig,
    StoreError,
};

/// What an engine is made of.
pub struct EngineConfig {
    /// What applies to models that set nothing else.
    pub defaults: ModelDefaults,
    /// The most that may be under way.
    pub limits: AdmissionLimits,
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

/// A model that was just registered, without workers yet.
pub struct Registered {
    /// The model.
    pub model: Arc<Model>,
    /// Workers it should be scaled to.
    pub workers_min: u32,
    /// Workers it may have.
    pub workers_max: u32,
}

/// A model without Python.
struct OpenedLocal {
    model: Arc<dyn LocalModel>,
    home: LocalHome,
}

/// Where the workers of a model without Python run.
enum LocalHome {
    /// In threads of this process.
    Threads(Arc<dyn LocalSession>),
    /// In processes that load this file with these options.
    Processes(Arc<LocalProcesses>, PathBuf, serde_json::Value),
}

impl From<LoadedModel> for OpenedLocal {
    fn from(loaded: LoadedModel) -> Self {
        Self { model: loaded.model, home: LocalHome::Threads(loaded.session) }
    }
}

/// A model whose files were read.
enum Opened {
    /// It needs no Python.
    Local(OpenedLocal, Option<FetchedFile>),
    /// It runs in Python workers.
    Package(Box<Package>),
}

/// All registered models, and what a new one is made with.
pub(crate) struct Registrar {
    pub(super) registry: Registry,
    pub(super) changes: Changes,
    pub(super) admission: Arc<Admission>,
    /// New requests are rejected.
    pub(super) rejecting: Arc<AtomicBool>,
    pub(super) defaults: ModelDefaults,
    pub(super) store: Arc<Store>,
    pub(super) python: Arc<PythonWorkers>,
    local: Option<LocalRuntime>,
    local_options: serde_json::Map<String, serde_json::Value>,
    /// What starts worker processes for `local`; without it its models run in threads.
    local_processes: Option<Arc<LocalProcesses>>,
    worker_ids: Arc<AtomicU32>,
    observer: Arc<dyn Observer>,
    /// The runtimes of the data plane; models take turns.
    pub(super) data: Vec<Handle>,
    next_data: AtomicUsize,
}

impl Registrar {
    pub(super) fn start(
        config: EngineConfig,
        data: Vec<Handle>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Self> {
        let scratch = config.store.scratch.clone();
        std::fs::create_dir_all(&scratch)?;
        let processes = Arc::new(ProcessThread::start(config.program.as_deref())?);
        let first = data.first().ok_or_else(|| io::Error::other("no data-plane runtime"))?;
        let python = PythonWorkers::start(config.python, processes, &scratch, first)?;
        let local_processes = config.program.zip(config.local).map(|(program, local)| {
            Arc::new(LocalProcesses {
                program,
                command: local.worker_command,
                env: python.config.env.clone(),
                processes: Arc::clone(&python.processes),
                listener: Arc::clone(&python.listener),
            })
        });
        Ok(Self {
            registry: Registry::default(),
            changes: Changes::default(),
            admission: Admission::new(config.limits),
            rejecting: Arc::default(),
            defaults: config.defaults,
            store: Arc::new(Store::new(config.store)),
            python,
            local: config.local,
            local_options: config.local_options,
            local_processes,
            worker_ids: Arc::new(AtomicU32::new(config.first_worker_id)),
            observer,
            data,
            next_data: AtomicUsize::new(0),
        })
    }

    /// Registers a model from the store, without workers.
    pub(super) async fn register(
        &self,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        match self.open(options).await? {
            Opened::Local(opened, fetched) => {
                self.install(self.local_draft(opened, options, fetched)?)
            }
            Opened::Package(package) => self.register_package(*package, options).await,
        }
    }

    /// Starts a model that nobody finds by its name yet, without workers: [`Registry::replace`] lets it be
    /// found, in place of another of the same name and version.
    pub(super) async fn start_unlisted(
        &self,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let draft = match self.open(options).await? {
            Opened::Local(opened, fetched) => self.local_draft(opened, options, fetched)?,
            Opened::Package(package) => self.package_draft(*package, options).await?,
        };
        let (registered, task) = self.build(draft);
        self.run(&registered, task);
        Ok(registered)
    }

    /// The name and the settings that a model would be registered with. Nothing is registered.
    pub(super) async fn preview(
        &self,
        options: &RegisterOptions,
    ) -> Result<(String, ModelSettings), RegisterError> {
        match self.open(options).await? {
            Opened::Local(opened, _) => {
                let draft = self.local_draft(opened, options, None)?;
                Ok((draft.identity.name, draft.settings))
            }
            Opened::Package(package) => {
                let (name, version) =
                    resolve::name_and_version(resolve::own_name(&package), options)?;
                let settings =
                    resolve::settings(&name, &version, &package, options, &self.defaults)?;
                Ok((name, settings))
            }
        }
    }

    /// Finds, fetches, verifies and opens a model.
    async fn open(&self, options: &RegisterOptions) -> Result<Opened, RegisterError> {
        resolve::check_runtime(options)?;
        let (store, url) = (Arc::clone(&self.store), options.url.clone());
        let found = self.find(options).await?;
        if let Some(local) = self.local {
            let is_local = |file: &Path| file.extension().is_some_and(|it| it == local.extension);
            if let Some(path) = found.file().filter(|file| is_local(file)).map(Path::to_owned) {
                let opened = self.open_local(local, path, options).await?;
                return Ok(Opened::Local(opened, found.fetched()));
            }
            if is_local(Path::new(&url)) {
                return Err(StoreError::NotFound(ShownUrl::of(&url)).into());
            }
        }
        let file = found.file().map(Path::to_owned);
        let turn = store.turn(&found).await;
        let opening = move || {
            let _turn = turn;
            store.open(&url, found)
        };
        let package = blocking(opening).await??;
        let operators = resolve::operators_sha256(&package, options, &self.defaults)?;
        self.verify(&options.url, file.as_deref(), operators).await?;
        Ok(Opened::Package(Box::new(package)))
    }

    /// Opens a model without Python: in a process that ends when it has told what the model takes and
    /// gives, or for good in this one. No file can harm the server that way, whatever is in it.
    async fn open_local(
        &self,
        local: LocalRuntime,
        path: PathBuf,
        options: &RegisterOptions,
    ) -> Result<OpenedLocal, RegisterError> {
        let defaults = &self.defaults;
        let isolation: Isolation =
            resolve::typed(&ISOLATION, options, defaults).unwrap_or_default();
        let processes = self.local_processes.clone().filter(|_| isolation == Isolation::Process);
        let Some(processes) = processes else {
            let told = self.local_options(options);
            let loaded = blocking(move || (local.load)(&path, &told)).await?;
            return Ok(loaded.map_err(RegisterError::NotLoadable)?.into());
        };
        let unreadable = |error: io::Error| RegisterError::NotLoadable(error.to_string());
        let load = LocalLoad {
            file: std::path::absolute(path).map_err(unreadable)?,
            name: options.model_name.clone().unwrap_or_default(),
            version: options.version.clone().unwrap_or_default(),
            memory_limit: resolve::typed(&MEMORY_LIMIT, options, defaults),
            options: self.local_options(options),
        };
        let time = resolve::typed(&STARTUP_TIMEOUT, options, defaults).unwrap_or_default();
        let loaded = tokio::time::timeout(time, processes.load(&load, None)).await;
        let loaded = loaded.unwrap_or(Err(LaunchError::TimedOut { seconds: time.as_secs() }));
        let loaded = loaded.map_err(not_loadable)?;
        tracing::info!(file = %load.file.display(), "runs in {}", loaded.engine);
        let signature = loaded.signature;
        let file = load.file.clone();
        let told = load.options.clone();
        let model = blocking(move || (local.describe)(&load.file, signature)).await?;
        let model = model.map_err(RegisterError::NotLoadable)?;
        Ok(OpenedLocal { model, home: LocalHome::Processes(processes, file, told) })
    }

    /// What the runtime of models without Python is told when it loads this one.
    fn local_options(&self, options: &RegisterOptions) -> serde_json::Value {
        let mut told = self.local_options.clone();
        for setting in [&ONNX_ENGINE, &ONNX_LIBRARY, &ONNX_THREADS, &ONNX_PROVIDERS] {
            let value: Option<String> = resolve::shown(setting, options, &self.defaults);
            told.extend(value.map(|value| (setting.name.to_owned(), value.into())));
        }
        told.into()
    }

    /// Finds the model and, if it is on another machine, fetches it. A caller who goes away ends the
    /// download, and nothing is left of it.
    async fn find(&self, options: &RegisterOptions) -> Result<ModelSource, RegisterError> {
        let (store, url) = (Arc::clone(&self.store), options.url.clone());
        let (at_startup, apart) = (options.at_startup, options.apart);
        if let Some(path) = options.path.clone() {
            let is_directory = path.is_dir();
            return Ok(if is_directory {
                ModelSource::Directory(path)
            } else {
                ModelSource::Archive(path)
            });
        }
        let find =
            move || if apart { store.find_apart(&url) } else { store.find(&url, at_startup) };
        let found = blocking(find).await??;
        let request =
            DownloadRequest { url: &options.url, signed: options.s3_sse_kms, resume: None };
        let found = self.store.fetch(request, found).await?;
        self.verify(&options.url, found.file(), options.sha256).await?;
        Ok(found)
    }

    /// Compares the sum of the file with the expected one, if there is one.
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

    pub(super) async fn register_package(
        &self,
        package: Package,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let (name, version) = resolve::name_and_version(resolve::own_name(&package), options)?;
        if self.registry.taken(&name, &version) {
            return Err(RegisterError::Conflict { model: name, version });
        }
        self.install(self.package_draft(package, options).await?)
    }

    async fn package_draft(
        &self,
        mut package: Package,
        options: &RegisterOptions,
    ) -> Result<Draft, RegisterError> {
        let (name, version) = resolve::name_and_version(resolve::own_name(&package), options)?;
        let mut settings = resolve::settings(&name, &version, &package, options, &self.defaults)?;
        let (python, models) = (&self.python, self.store.models());
        let environment = Environment::prepare(python, &models, &name, &mut package);
        let environment = environment.await?;
        let local_gpus = if python.placement.is_some() { 0 } else { python.config.gpus };
        let gpus = python.gpus(local_gpus, &settings.values);
        (settings.declared.gpu, settings.declared.device_ids) = gpus.declared();
        settings.declared.envelope =
            package.manifest.envelope.as_ref().or(python.config.envelope.as_ref()).cloned();
        let identity = ModelIdentity::settled(name, version, options);
        let metrics = self.observer.model_metrics();
        let compile_cache;
        (package, compile_cache) = self.compile_cache(package).await?;
        let config = &python.config;
        let command =
            LoadCommand::of(&identity, &package, &settings, config, metrics, compile_cache)
                .with_metric_ids(self.observer.wants_metric_ids());
        let observer = Arc::clone(&self.observer);
        let remote = command.placed(python, &settings);
        let launcher = PythonLauncher::new(python, command, environment, gpus, observer);
        let launcher = launcher.placed(remote);
        let intake = match package.api {
            Some(api) => {
                let endpoints = Endpoints::new(api, &settings, &options.endpoints);
                Intake::Defined(Box::new(endpoints.of_model(&identity.name)))
            }
            None => Intake::Python,
        };
        let declared = package.tensors.as_ref().and_then(signature);
        Ok(Draft {
            identity,
            settings,
            intake,
            launcher: Arc::new(launcher),
            observer: Arc::clone(&self.observer),
            dir: Some(package.dir),
            fetched: package.downloaded,
            declared,
        })
    }

    /// Where what compiling the model makes is kept, for a model that may be compiled.
    async fn compile_cache(
        &self,
        package: Package,
    ) -> Result<(Package, Option<PathBuf>), RegisterError> {
        if !package.may_compile() {
            return Ok((package, None));
        }
        let store = Arc::clone(&self.store);
        blocking(move || {
            let cache = store.compile_cache(&package);
            (package, cache)
        })
        .await
    }

    /// Registers a model that was loaded into this process, without workers.
    pub(super) fn register_loaded(
        &self,
        loaded: LoadedModel,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        self.install(self.local_draft(loaded.into(), options, None)?)
    }

    fn local_draft(
        &self,
        OpenedLocal { model, home }: OpenedLocal,
        options: &RegisterOptions,
        fetched: Option<FetchedFile>,
    ) -> Result<Draft, RegisterError> {
        let model = if options.whole { WholeModel::of(model) } else { model };
        let own = (Some(model.name()), model.version());
        let (name, version) = resolve::name_and_version(own, options)?;
        let isolation = match home {
            LocalHome::Threads(_) => Isolation::Thread,
            LocalHome::Processes(..) => Isolation::Process,
        };
        let names = (name.as_str(), version.as_str());
        let settings = resolve::local_settings(names, &*model, isolation, options, &self.defaults)?;
        let launcher: Arc<dyn Launcher> = match home {
            LocalHome::Threads(session) => Arc::new(ThreadLauncher {
                session,
                runtime: model.runtime(),
                name: name.clone(),
                version: version.clone(),
            }),
            LocalHome::Processes(processes, file, told) => {
                let memory_limit = settings.values.read(&MEMORY_LIMIT);
                let (name, version) = (name.clone(), version.clone());
                let load = Arc::new(LocalLoad { file, name, version, memory_limit, options: told });
                Arc::new(LocalLauncher { processes, model: Arc::clone(&model), load })
            }
        };
        Ok(Draft {
            identity: ModelIdentity::settled(name, version, options),
            settings,
            launcher,
            intake: Intake::Local(model),
            observer: Arc::clone(&self.observer),
            dir: None,
            fetched,
            declared: None,
        })
    }

    /// Starts a model: its entry in the registry, then its task.
    fn install(&self, draft: Draft) -> Result<Registered, RegisterError> {
        let (registered, task) = self.build(draft);
        self.registry.insert(Arc::clone(&registered.model))?;
        self.changes.note();
        self.run(&registered, task);
        Ok(registered)
    }

    fn build(&self, draft: Draft) -> (Registered, Task) {
        let (workers_min, workers_max) = (draft.settings.workers_min, draft.settings.workers_max);
        let (model, task) =
            draft.build(&self.admission, &self.rejecting, &self.worker_ids, &self.changes);
        (Registered { model, workers_min, workers_max }, task)
    }

    fn run(&self, Registered { model, .. }: &Registered, task: Task) {
        model.fetched.iter().for_each(FetchedFile::keep);
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
    }

    /// Removes a version, as [`Engine::unregister`](super::Engine::unregister) describes.
    pub(super) async fn unregister(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(), UnregisterError> {
        let model = self.registry.remove(name, version)?;
        self.changes.note();
        self.end(&model).await;
        tracing::info!(model = model.name(), version = model.version(), "model unregistered");
        Ok(())
    }

    /// Ends a model that is no longer found: its requests are answered, its workers end, and what was
    /// downloaded for it leaves the store.
    pub(super) async fn end(&self, model: &Arc<Model>) {
        model.close(self.defaults.unregister_timeout).await;
        if model.fetched.is_some() {
            let model = Arc::clone(model);
            // It cannot panic.
            let _ = blocking(move || model.fetched.iter().for_each(FetchedFile::remove)).await;
        }
    }
}

/// Why the file of a model without Python is not served, in the loader's words where it has some.
fn not_loadable(error: LaunchError) -> RegisterError {
    RegisterError::NotLoadable(match error {
        LaunchError::Load(fault) => fault.message,
        other @ (LaunchError::Spawn(_)
        | LaunchError::Ended { .. }
        | LaunchError::TimedOut { .. }
        | LaunchError::Memory(_)) => other.to_string(),
    })
}

/// Runs blocking work off the caller's runtime.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RegisterError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|panic| RegisterError::BadSettings(format!("reading the model failed: {panic}")))
}

/// Logs what a setting costs that was written for another server.
fn remark_on(settings: &ModelSettings) {
    let delay_ms = settings.batch_delay.as_millis() as u64;
    match settings.policy {
        PolicyName::Window if settings.batch_size > 1 => tracing::info!(
            delay_ms,
            "a lone request waits out the whole delay although a worker is idle; policy=adaptive saves that"
        ),
        PolicyName::Adaptive if settings.items_max() > 1 && !settings.plans() => {
            tracing::info!(
                "its handler runs batches side by side, so there is nothing to plan: a free slot takes what is there"
            );
        }
        PolicyName::Adaptive | PolicyName::Window | PolicyName::Opportunistic => {}
    }
}
