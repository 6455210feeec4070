//! How a model comes into the engine: found, fetched, checked, opened, described by a draft, and
//! entered into the registry.
//!
//! Apart from the engine's other duties because nothing here is on a request's way, all of it may
//! fail, and a failure must leave nothing behind. It starts no worker: whoever registers also scales.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Draft, Engine, blocking};
use crate::error::RegisterError;
use crate::local::thread::ThreadLauncher;
use crate::local::{LocalModel, LocalRuntime};
use crate::model::{Endpoints, Intake, Model, ModelIdentity};
use crate::observer::Observer;
use crate::python::{Devices, Environment, LoadOrder, PythonLauncher};
use crate::resolve;
use crate::settings::{PolicyName, Settings, Wishes};
use crate::store::{DownloadRequest, FetchedFile, ModelSource, Package, Sha256, StoreError};

/// A model that was just registered, without workers yet.
pub struct Registered {
    /// The model.
    pub model: Arc<Model>,
    /// Workers it should be scaled to.
    pub workers_min: u32,
    /// Workers it may have.
    pub workers_max: u32,
}

impl Engine {
    /// Registers a model from the store, without workers.
    pub async fn register(&self, wishes: Wishes) -> Result<Registered, RegisterError> {
        if self.draining() {
            return Err(RegisterError::Draining);
        }
        resolve::check_runtime(&wishes)?;
        let (store, url) = (Arc::clone(&self.store), wishes.url.clone());
        let found = self.find(&wishes).await?;
        if let Some(local) = self.local {
            let is_local = |file: &Path| file.extension().is_some_and(|it| it == local.extension);
            if found.file().is_some_and(is_local) {
                return self.register_local_file(local, found, wishes).await;
            }
            if is_local(Path::new(&url)) {
                return Err(StoreError::NotFound { url }.into());
            }
        }
        let file = found.file().map(Path::to_owned);
        let package = blocking(move || store.open(&url, found)).await??;
        let operators = resolve::operators_sha256(&package, &wishes, &self.defaults)?;
        self.verify(&wishes.url, file.as_deref(), operators).await?;
        self.register_package(package, &wishes).await
    }

    /// Finds the model and, if it is on another machine, fetches it. A caller who goes away ends the
    /// download, and nothing is left of it.
    async fn find(&self, wishes: &Wishes) -> Result<ModelSource, RegisterError> {
        let (store, url) = (Arc::clone(&self.store), wishes.url.clone());
        let at_startup = wishes.at_startup;
        let found = blocking(move || store.find(&url, at_startup)).await??;
        let ask = DownloadRequest { url: &wishes.url, signed: wishes.s3_sse_kms, resume: None };
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

    async fn register_local_file(
        &self,
        local: LocalRuntime,
        found: ModelSource,
        wishes: Wishes,
    ) -> Result<Registered, RegisterError> {
        let path = found.file().unwrap_or(Path::new("")).to_owned();
        let model = blocking(move || (local.load)(&path)).await?;
        let model = model.map_err(RegisterError::NotLoadable)?;
        self.install(self.local_draft(model, &wishes, found.fetched())?)
    }

    pub(super) async fn register_package(
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
        let identity = ModelIdentity::settled(name, version, wishes);
        let metrics = self.observer.model_metrics();
        let order = LoadOrder::of(&identity, &package, &settings, python, metrics);
        let launcher = self.python_launcher(order, environment, devices, &self.observer);
        let intake = match package.api {
            Some(api) => Intake::Defined(Endpoints::new(api, &settings, &wishes.endpoints)),
            None => Intake::Python,
        };
        self.install(Draft {
            identity,
            settings,
            intake,
            launcher: Arc::new(launcher),
            observer: Arc::clone(&self.observer),
            dir: Some(package.dir),
            fetched: package.downloaded,
        })
    }

    pub(super) fn python_launcher(
        &self,
        order: LoadOrder,
        environment: Environment,
        devices: Devices,
        observer: &Arc<dyn Observer>,
    ) -> PythonLauncher {
        PythonLauncher {
            config: Arc::clone(&self.python),
            dial_in: Arc::clone(&self.dial_in),
            runtime: self.runtime_dir.clone(),
            order,
            environment,
            devices,
            crowd: AtomicU32::default(),
            observer: Arc::clone(observer),
        }
    }

    /// Registers a model that runs in this process, without workers.
    pub async fn register_local(
        &self,
        model: Arc<dyn LocalModel>,
        wishes: Wishes,
    ) -> Result<Registered, RegisterError> {
        self.install(self.local_draft(model, &wishes, None)?)
    }

    fn local_draft(
        &self,
        model: Arc<dyn LocalModel>,
        wishes: &Wishes,
        fetched: Option<FetchedFile>,
    ) -> Result<Draft, RegisterError> {
        let settings = resolve::local_settings(&*model, wishes, &self.defaults)?;
        let name = wishes.model_name.clone().unwrap_or_else(|| model.name().to_owned());
        let version = wishes.version.clone().unwrap_or_else(|| model.version().to_owned());
        let launcher = ThreadLauncher {
            model: Arc::clone(&model),
            name: name.clone(),
            version: version.clone(),
        };
        Ok(Draft {
            identity: ModelIdentity::settled(name, version, wishes),
            settings,
            launcher: Arc::new(launcher),
            intake: Intake::Local(model),
            observer: Arc::clone(&self.observer),
            dir: None,
            fetched,
        })
    }

    /// Brings a model to life: its task, then its entry in the registry.
    fn install(&self, draft: Draft) -> Result<Registered, RegisterError> {
        let (workers_min, workers_max) = (draft.settings.workers_min, draft.settings.workers_max);
        let (model, task) =
            draft.build(&self.admission, &self.refusing, &self.worker_ids, &self.changes);
        self.registry.insert(Arc::clone(&model))?;
        self.changes.note();
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
        Ok(Registered { model, workers_min, workers_max })
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
