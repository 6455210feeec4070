//! All registered models: a new one is opened, resolved, described by a draft and entered into the registry, in this
//! order; and removed again.
//!
//! Nothing here is on a request's way, all of it may fail, and a failure leaves nothing behind. It starts
//! no worker: whoever registers also scales.

use std::fs::DirEntry;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use jitney_settings::model::MEMORY_LIMIT;
use tokio::runtime::Handle;

use super::config::EngineConfig;
use super::opener::{LocalHome, ModelOpener, OpenedFiles, OpenedModel, blocking};
use super::rollouts;
use crate::admission::Admission;
use crate::cpus::CpuAssignment;
use crate::data_threads::DataThreads;
use crate::error::{RegisterError, ReplaceError, UnregisterError};
use crate::gpu_assignment::GpuAssignment;
use crate::local::LocalModel;
use crate::local::gpus::{GpuBytes, LocalGpus};
use crate::local::process::{LocalLoad, LocalProcesses};
use crate::local::thread::ThreadLauncher;
use crate::local::worker::LocalLauncher;
use crate::model::budget::MemoryBudget;
use crate::model::draft::Draft;
use crate::model::endpoint_tensors::signature;
use crate::model::{Endpoints, Intake, Model, ModelIdentity};
use crate::observer::Observer;
use crate::pool::Launcher;
use crate::process::ProcessThread;
use crate::python::{Environment, LoadCommand, PythonLauncher, PythonWorkers};
use crate::queue_slots::QueueSlots;
use crate::registry::Registry;
use crate::settings::{ModelDefaults, ModelSettings, PolicyName, Precedence, RegisterOptions};
use crate::store::{FetchedFile, Package, Store};
use crate::wiring::{WiredLauncher, WiredModel};

/// A model that was just registered, without workers yet.
pub struct Registered {
    /// The model.
    pub model: Arc<Model>,
    /// Workers it should be scaled to.
    pub workers_min: u32,
    /// Workers it may have.
    pub workers_max: u32,
}

/// All registered models, and what a new one is made with.
pub(crate) struct Registrar {
    pub(super) registry: Arc<Registry>,
    /// How many calls each model is given at a time.
    pub(super) queue_slots: Arc<QueueSlots>,
    pub(super) admission: Arc<Admission>,
    /// The server is no longer ready; requests are still served.
    pub(super) draining: AtomicBool,
    /// New requests are rejected.
    pub(super) rejecting: Arc<AtomicBool>,
    pub(super) opener: ModelOpener,
    pub(super) python: Arc<PythonWorkers>,
    memory: Arc<MemoryBudget>,
    gpu_bytes: GpuBytes,
    worker_ids: Arc<AtomicU32>,
    observer: Arc<dyn Observer>,
    pub(super) data: DataThreads,
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
        let data = DataThreads::new(data)?;
        let python = PythonWorkers::start(config.python, processes, &scratch, data.first())?;
        let local_processes = config.program.zip(config.local).map(|(program, local)| {
            Arc::new(LocalProcesses {
                program,
                command: local.worker_command,
                env: python.config.env.clone(),
                processes: Arc::clone(&python.processes),
                listener: Arc::clone(&python.listener),
            })
        });
        let opener = ModelOpener {
            store: Arc::new(Store::new(config.store)),
            defaults: config.defaults,
            local: config.local,
            local_options: config.local_options,
            local_processes,
            python: Arc::clone(&python),
        };
        let list = config.gpu_memory.as_ref().map(|gpus| Arc::clone(&gpus.list));
        let total = move |gpu| list.as_ref()?().iter().find(|reading| reading.id == gpu)?.total;
        Ok(Self {
            registry: Arc::default(),
            queue_slots: Arc::default(),
            admission: Admission::new(config.limits),
            draining: AtomicBool::default(),
            rejecting: Arc::default(),
            opener,
            python,
            memory: MemoryBudget::new(config.memory, config.gpu_memory),
            gpu_bytes: Arc::new(total),
            worker_ids: Arc::new(AtomicU32::new(config.first_worker_id)),
            observer,
            data,
        })
    }

    /// Lets versions go back and forward by themselves, where shares have rules for that.
    pub(super) fn watch_rollouts(&self) {
        let registry = Arc::downgrade(&self.registry);
        let changes = self.registry.changes.subscribe();
        self.data.first().spawn(rollouts::watch(registry, changes));
    }

    /// What applies to models that set nothing else.
    pub(super) fn defaults(&self) -> &ModelDefaults {
        &self.opener.defaults
    }

    /// Registers a model from the store, without workers.
    pub(super) async fn register(
        &self,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        self.register_opened(self.opener.open(options).await?, options).await
    }

    /// Registers a model that was opened, without workers.
    pub(super) async fn register_opened(
        &self,
        opened: OpenedModel,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let ModelIdentity { name, version, .. } = &opened.identity;
        if self.registry.taken(name, version) {
            // There the next registration of the file's name finds it.
            if self.defaults().precedence == Precedence::TorchServe {
                opened.keep_file();
            }
            return Err(RegisterError::Conflict { model: name.clone(), version: version.clone() });
        }
        let registered = self.build(self.draft(opened, options).await?);
        self.registry.exchange(None, &registered.model)?;
        note_registered(&registered.model);
        Ok(registered)
    }

    /// Starts a model that nobody finds by its name yet, without workers: [`Registry::replace`] lets it be
    /// found, in place of another of the same name and version.
    pub(super) async fn start_unlisted(
        &self,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let opened = self.opener.open(options).await?;
        let registered = self.build(self.draft(opened, options).await?);
        note_registered(&registered.model);
        Ok(registered)
    }

    /// The name and the settings that a model would be registered with. Nothing is registered.
    pub(super) async fn preview(
        &self,
        options: &RegisterOptions,
    ) -> Result<(String, ModelSettings), RegisterError> {
        let opened = self.opener.open(options).await?;
        let settings = opened.settings(options, self.defaults())?;
        Ok((opened.identity.name, settings))
    }

    /// Everything that is known of a model before it is built.
    async fn draft(
        &self,
        opened: OpenedModel,
        options: &RegisterOptions,
    ) -> Result<Draft, RegisterError> {
        let mut settings = opened.settings(options, self.defaults())?;
        if settings.on_demand() && settings.sequences().is_some() {
            let why = "A model that keeps sequences has workers all the time: not load=on_demand.";
            return Err(RegisterError::BadSettings(why.to_owned()));
        }
        let OpenedModel { identity, files } = opened;
        match files {
            OpenedFiles::Package(package) => {
                self.package_draft(identity, settings, *package, options).await
            }
            OpenedFiles::Local(model, home, fetched) => {
                let gpus = self.local_gpus(&mut settings);
                let cpus = self.cpus(&settings)?;
                Ok(Draft {
                    budget: match &home {
                        LocalHome::Threads(_) => None,
                        LocalHome::Processes(_, file, ..) => Some(self.budget(file)),
                    },
                    launcher: local_launcher(&identity, &settings, &model, (home, gpus, cpus)),
                    identity,
                    settings,
                    intake: Intake::Local(model, options.whole),
                    observer: Arc::clone(&self.observer),
                    dir: None,
                    fetched,
                    declared: None,
                })
            }
        }
    }

    /// The GPUs of a model without Python, if it runs on some.
    fn local_gpus(&self, settings: &mut ModelSettings) -> Option<LocalGpus> {
        let assignment = self.python.gpus(self.python.config.gpus, &settings.values)?;
        let gpus = LocalGpus::of(assignment, &settings.values, Arc::clone(&self.gpu_bytes))?;
        (settings.declared.gpu, settings.declared.device_ids) = (true, gpus.assignment.named());
        Some(gpus)
    }

    /// The processors that a model's workers are kept to, if any.
    fn cpus(&self, settings: &ModelSettings) -> Result<Option<Arc<CpuAssignment>>, RegisterError> {
        let cpus = CpuAssignment::of(&settings.values, &self.python.config.gpu_nodes);
        cpus.map_err(RegisterError::BadSettings)
    }

    async fn package_draft(
        &self,
        identity: ModelIdentity,
        mut settings: ModelSettings,
        mut package: Package,
        options: &RegisterOptions,
    ) -> Result<Draft, RegisterError> {
        let (python, models) = (&self.python, self.opener.store.models());
        let environment = Environment::prepare(python, &models, &identity.name, &mut package);
        let environment = environment.await?;
        let local_gpus = if python.placement.is_some() { 0 } else { python.config.gpus };
        let gpus = python.gpus(local_gpus, &settings.values);
        settings.declared.gpu = gpus.is_some();
        settings.declared.device_ids = gpus.as_ref().and_then(GpuAssignment::named);
        settings.declared.envelope =
            package.manifest.envelope.as_ref().or(python.config.envelope.as_ref()).cloned();
        let metrics = self.observer.model_metrics();
        let compile_cache;
        (package, compile_cache) = self.opener.compile_cache(package).await?;
        let config = &python.config;
        let mut command =
            LoadCommand::of(&identity, &package, &settings, config, metrics, compile_cache);
        command.metric_ids = self.observer.wants_metric_ids();
        let observer = Arc::clone(&self.observer);
        let remote = command.placed(python, &settings);
        // On other machines nobody is kept to processors of this one.
        let cpus = if remote.is_none() { self.cpus(&settings)? } else { None };
        let launcher =
            PythonLauncher::new(python, command, environment, gpus, observer).pinned(cpus);
        let api = package.api.as_ref();
        let wired = api.and_then(|api| WiredModel::of(api, &self.registry, &self.queue_slots));
        // The files of a definition are those of its program, whatever else lies there.
        let files = if api.is_none() { Some(package.dir.path()) } else { None };
        let budget = match wired.is_none() && remote.is_none() {
            true => Some(self.budget(files.unwrap_or(Path::new("")))),
            false => None,
        };
        let launcher: Arc<dyn Launcher> = match wired {
            Some(wired) => Arc::new(WiredLauncher(Arc::new(wired))),
            None => Arc::new(launcher.placed(remote)),
        };
        let intake = match package.api {
            Some(api) => {
                settings.declared.multiplexed = api.multiplexed;
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
            launcher,
            observer: Arc::clone(&self.observer),
            dir: Some(package.dir),
            fetched: package.downloaded,
            declared,
            budget,
        })
    }

    /// The memory that the workers of a model take part in, and the bytes of these files.
    fn budget(&self, files: &Path) -> (Arc<MemoryBudget>, u64) {
        (Arc::clone(&self.memory), file_bytes(files))
    }

    /// Starts the workers of a new model beside those of the one that it replaces, where there is one and memory for
    /// both, and waits until they are ready.
    pub(super) async fn load_beside(
        &self,
        old: Option<&Arc<Model>>,
        new: &Registered,
    ) -> Result<(), ReplaceError> {
        let Registered { model, workers_min, workers_max } = new;
        old.map_or(Ok(()), |old| self.check_memory(old, new))?;
        if *workers_max == 0 {
            return Ok(());
        }
        model.scale(*workers_min, *workers_max).await.map_err(|error| {
            let (model, version) = (model.name().to_owned(), model.version().to_owned());
            ReplaceError::Scale { model, version, error }
        })
    }

    /// Whether the workers of a new model fit into memory beside those of the one that it replaces.
    fn check_memory(&self, old: &Model, new: &Registered) -> Result<(), RegisterError> {
        let missing = self.memory.missing_beside(&old.gate.published, new.workers_min);
        missing.map_or(Ok(()), |(needed, free)| {
            let model = new.model.name().to_owned();
            Err(RegisterError::NoRoomBeside { model, needed, free })
        })
    }

    fn build(&self, draft: Draft) -> Registered {
        let (workers_min, workers_max) = (draft.settings.workers_min, draft.settings.workers_max);
        let (changes, threads) = (&self.registry.changes, self.data.take_turn());
        let model =
            draft.build(&self.admission, &self.rejecting, &self.worker_ids, changes, threads);
        Registered { model, workers_min, workers_max }
    }

    /// Removes a version, as [`Engine::unregister`](super::Engine::unregister) describes.
    pub(super) async fn unregister(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(), UnregisterError> {
        self.end_removed(&self.registry.remove(name, version)?).await;
        Ok(())
    }

    /// Ends exactly these models in the background, as [`Engine::retire`](super::Engine::retire) describes.
    pub(super) fn retire(self: &Arc<Self>, models: Vec<Arc<Model>>) {
        let registrar = Arc::clone(self);
        models.first().map(|model| registrar.registry.withdraw(model));
        tokio::spawn(async move {
            for model in models {
                registrar.registry.withdraw(&model);
                registrar.end_removed(&model).await;
            }
        });
    }

    /// Ends a model that was found until now, and logs that.
    pub(super) async fn end_removed(&self, model: &Arc<Model>) {
        self.end(model).await;
        tracing::info!(model = model.name(), version = model.version(), "model unregistered");
    }

    /// Ends a model that is no longer found: its requests are answered, its workers end, and what was
    /// downloaded for it leaves the store.
    pub(super) async fn end(&self, model: &Arc<Model>) {
        model.close(self.defaults().unregister_timeout).await;
        if model.fetched.is_some() {
            let model = Arc::clone(model);
            // It cannot panic.
            let _ = blocking(move || model.fetched.iter().for_each(FetchedFile::remove)).await;
        }
    }
}

/// A model is there from now on: its files stay, and the log says so.
fn note_registered(model: &Model) {
    model.fetched.iter().for_each(FetchedFile::keep);
    tracing::info!(
        model = model.name(),
        version = model.version(),
        policy = model.settings().policy.as_str(),
        batch_size = model.settings().batch_size,
        "model registered"
    );
    remark_on(&model.settings());
}

/// Bytes of a file, or of all files below a directory. Links to files count as what they lead to.
fn file_bytes(path: &Path) -> u64 {
    let of_entry = |entry: io::Result<DirEntry>| match entry.map(|it| it.path()) {
        // A link to a directory may lead back here.
        Ok(link) if link.is_symlink() && link.is_dir() => 0,
        Ok(path) => file_bytes(&path),
        Err(_) => 0,
    };
    match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => {
            std::fs::read_dir(path).map_or(0, |entries| entries.map(of_entry).sum())
        }
        Ok(about) => about.len(),
        Err(_) => 0,
    }
}

/// What starts the workers of a model without Python.
fn local_launcher(
    identity: &ModelIdentity,
    settings: &ModelSettings,
    model: &Arc<dyn LocalModel>,
    (home, gpus, cpus): (LocalHome, Option<LocalGpus>, Option<Arc<CpuAssignment>>),
) -> Arc<dyn Launcher> {
    let (name, version) = (identity.name.clone(), identity.version.clone());
    match home {
        LocalHome::Threads(session) => {
            Arc::new(ThreadLauncher { session, runtime: model.runtime(), name, version })
        }
        LocalHome::Processes(processes, file, options, tried) => {
            let model = Arc::clone(model);
            let memory_limit = settings.values.read(&MEMORY_LIMIT);
            let load = Arc::new(LocalLoad { file, name, version, memory_limit, options });
            Arc::new(LocalLauncher {
                processes,
                model,
                load,
                tried,
                gpus,
                cpus,
                workers: AtomicU32::new(settings.workers_max),
            })
        }
    }
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
