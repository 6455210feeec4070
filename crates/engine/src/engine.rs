//! The engine as its owner holds it: registered models, workflows and plugins, and how they end.
//! Requests call [`Engine::model`]; management calls the rest.

mod config;
mod opener;
mod plugins;
mod registrar;
mod replacement;
mod repository;
mod rollouts;
mod workflows;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub use self::config::{EngineConfig, RepositoryConfig, ServedDirectory};
use self::opener::OpenedModel;
pub use self::plugins::{PluginPlan, RunningPlugins};
pub use self::registrar::Registered;
use self::registrar::Registrar;
pub use self::replacement::ReplaceOrder;
use self::replacement::Replacement;
pub use self::repository::{IndexEntry, IndexState, Repository};
pub use self::workflows::Workflows;
use crate::admission::Admission;
use crate::call::SequenceHeaders;
use crate::changes::Changes;
use crate::error::{LookupError, RegisterError, ReplaceError, TrafficError, UnregisterError};
use crate::frames::CallConnection;
use crate::local::LoadedModel;
use crate::model::Model;
use crate::observer::Observer;
use crate::path_table::PathTable;
use crate::queue_slots::QueueSlots;
use crate::settings::{ModelSettings, RegisterOptions};
use crate::store::Store;
use crate::traffic_split::{Sticky, TrafficSplit};
use crate::{dependencies, resolve};

/// Everything that runs models.
pub struct Engine {
    models: Arc<Registrar>,
    workflows: Workflows,
    repository: Repository,
    plugins: RunningPlugins,
    /// The shared list that models come from, if they come from one.
    expects_models: AtomicBool,
    /// Every model of the start has been ready.
    started: AtomicBool,
}

impl Engine {
    /// Makes an engine whose model tasks run on the given runtimes of the data plane.
    pub fn start(config: EngineConfig, data: Vec<Handle>) -> io::Result<Arc<Self>> {
        Self::start_observed(config, data, Arc::new(()))
    }

    /// Like [`Engine::start`], with an observer.
    pub fn start_observed(
        mut config: EngineConfig,
        data: Vec<Handle>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Arc<Self>> {
        let workflow_store =
            config.workflow_store.take().map(|config| Arc::new(Store::new(config)));
        let repository = std::mem::take(&mut config.repository);
        let models = Arc::new(Registrar::start(config, data, observer)?);
        models.watch_rollouts();
        Ok(Arc::new(Self {
            workflows: Workflows::new(Arc::clone(&models), workflow_store),
            repository: Repository::new(Arc::clone(&models), repository),
            plugins: RunningPlugins::new(Arc::clone(&models)),
            models,
            expects_models: AtomicBool::new(false),
            started: AtomicBool::new(false),
        }))
    }

    /// Waits until the cluster is joined that places workers, if there is to be one.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn cluster_joined(&self) -> Result<(), String> {
        match &self.models.python.placement {
            Some(placement) => placement.joined().await,
            None => Ok(()),
        }
    }

    /// Where our own Python packages lie, for whoever runs Python beside the workers.
    pub fn python_packages(&self) -> &Path {
        &self.models.python.packages
    }

    /// The connections on which workers call models themselves; whoever serves them takes this once.
    pub fn take_calls(&self) -> Option<mpsc::Receiver<CallConnection>> {
        self.models.python.listener.take_calls()
    }

    /// What is under way in the whole server.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.models.admission
    }

    /// How many calls each model is given at a time by those who wait instead of being rejected.
    pub fn queue_slots(&self) -> &QueueSlots {
        &self.models.queue_slots
    }

    /// The model of this name, and version if one is asked for.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, LookupError> {
        self.models.registry.find(name, version).map_err(|error| self.not_found(name, error))
    }

    /// The version that answers a request: like [`Engine::model`], but where versions share the traffic of a model,
    /// the one that a request without a version belongs to by the hash of what it is known by.
    #[inline]
    pub fn model_for(
        &self,
        name: &str,
        version: Option<&str>,
        key: impl FnOnce(&Sticky) -> u64,
    ) -> Result<Arc<Model>, LookupError> {
        let chosen = self.models.registry.choose(name, version, key);
        chosen.map_err(|error| self.not_found(name, error))
    }

    /// The version that a sequence belongs to, where several versions of a model may keep it.
    pub fn model_of_sequence(&self, name: &str, id: &str) -> Option<Arc<Model>> {
        self.models.registry.of_sequence(name, id)
    }

    /// How the versions of a model share its traffic.
    pub fn traffic(&self, name: &str) -> Result<Option<Arc<TrafficSplit>>, LookupError> {
        self.models.registry.split(name)
    }

    /// Lets the versions of a model share its traffic; without shares the default one answers.
    ///
    /// # Errors
    /// There is no such model, or a version that is to have a share, or rules that cannot be kept go with them.
    pub fn set_traffic(&self, name: &str, split: Option<TrafficSplit>) -> Result<(), TrafficError> {
        self.models.registry.set_split(name, split.map(Arc::new))
    }

    /// The same with shares that a list of models says, whose versions may still be to come.
    ///
    /// # Errors
    /// There is no such model, or rules that cannot be kept go with the shares.
    pub fn bring_traffic(&self, name: &str, split: TrafficSplit) -> Result<(), TrafficError> {
        self.models.registry.bring_split(name, Arc::new(split))
    }

    fn not_found(&self, name: &str, error: LookupError) -> LookupError {
        match self.expects_models.load(Ordering::Relaxed) {
            true => LookupError::NotYet { model: name.to_owned() },
            false => error,
        }
    }

    /// The paths that models answer beside those of their names, if there are any.
    #[inline]
    pub fn paths(&self) -> Option<Arc<PathTable>> {
        self.models.registry.paths()
    }

    /// Every version of a model.
    pub fn versions(&self, name: &str) -> Result<Vec<Arc<Model>>, LookupError> {
        self.models.registry.versions(name)
    }

    /// The default version of every model, sorted by name.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.models.registry.defaults()
    }

    /// Every version of every model, by name and age, and whether it is its model's default.
    pub fn listed_versions(&self) -> Vec<(Arc<Model>, bool)> {
        self.models.registry.listed()
    }

    /// The applications that a model is a part of.
    pub fn applications_of(&self, model: &Arc<Model>) -> Vec<Arc<Model>> {
        dependencies::roots(&self.models.registry.all(), model)
    }

    /// How requests and answers name their sequences.
    pub fn sequence_headers(&self) -> &SequenceHeaders {
        &self.models.defaults().sequence_headers
    }

    /// The model to take when a request names none: the only one loaded at start-up.
    pub fn sole_startup_model(&self) -> Option<Arc<Model>> {
        let models = self.models();
        let is_part = |model: &Arc<Model>| dependencies::callers(&models, model).next().is_some();
        let mut loaded =
            models.iter().filter(|model| model.identity().at_startup && !is_part(model)).cloned();
        match (loaded.next(), loaded.next()) {
            (Some(model), None) => Some(model),
            _ => None,
        }
    }

    /// Whether the server should be sent requests: every model of the start has been ready once, some
    /// model can serve or none is meant to, and the server does not drain. Models of a shared list count
    /// as models of the start until all of it was loaded once.
    pub fn is_ready(&self) -> bool {
        if self.expects_models.load(Ordering::Relaxed) {
            return false;
        }
        let models = self.models();
        let at_startup = |model: &&Arc<Model>| model.identity().at_startup;
        let started = self.started.load(Ordering::Relaxed)
            || models.iter().filter(at_startup).all(|model| model.has_started());
        if started {
            self.started.store(true, Ordering::Relaxed);
        }
        let serves = |model: &Arc<Model>| model.is_as_wanted();
        started && !self.draining() && (models.is_empty() || models.iter().any(serves))
    }

    /// Whether a model may have so many workers.
    ///
    /// # Errors
    /// A sentence for whoever asks for them.
    pub fn check_workers(&self, workers: u32) -> Result<(), String> {
        let limit = self.models.defaults().workers_limit.unwrap_or(u32::MAX);
        if workers <= limit {
            return Ok(());
        }
        Err(resolve::too_many_workers(workers.into(), limit, ""))
    }

    /// Whether every model has the workers it wants, or is getting them.
    pub fn healthy(&self) -> bool {
        self.models().iter().all(|model| model.healthy())
    }

    /// Registers a model from the store, without workers.
    pub async fn register(&self, options: RegisterOptions) -> Result<Registered, RegisterError> {
        if self.draining() {
            return Err(RegisterError::Draining);
        }
        self.models.register(&options).await
    }

    /// Registers a model that was loaded into this process, where it runs in threads; without workers.
    pub async fn register_local(
        &self,
        model: impl Into<LoadedModel>,
        options: RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        let opened = OpenedModel::of_loaded(model.into(), &options)?;
        self.models.register_opened(opened, &options).await
    }

    /// The name and the settings that a model would be registered with. Nothing is registered.
    pub async fn preview(
        &self,
        options: &RegisterOptions,
    ) -> Result<(String, ModelSettings), RegisterError> {
        self.models.preview(options).await
    }

    /// Makes another version of a model the default.
    pub fn set_default(&self, name: &str, version: &str) -> Result<(), LookupError> {
        self.models.registry.set_default(name, version)
    }

    /// Removes a version (the default one if none is named): new requests do not find it, admitted
    /// ones are answered, then its workers end.
    pub async fn unregister(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<(), UnregisterError> {
        self.models.unregister(name, version).await
    }

    /// Starts a model that nobody finds yet, without workers: [`Engine::exchange`] lets it be found.
    pub async fn start_beside(
        &self,
        options: &RegisterOptions,
    ) -> Result<Registered, RegisterError> {
        if self.draining() {
            return Err(RegisterError::Draining);
        }
        self.models.start_unlisted(options).await
    }

    /// Registers a model from the store with its workers, in the place of the same version of its name, else of the
    /// default one. Waits until it is ready.
    ///
    /// # Errors
    /// It cannot be registered or does not load. The old one stays, unless it was to end first.
    pub async fn replace(
        &self,
        options: &RegisterOptions,
        order: ReplaceOrder,
    ) -> Result<Arc<Model>, ReplaceError> {
        if self.draining() {
            return Err(RegisterError::Draining.into());
        }
        Replacement::open(&self.models, options).await?.run(order).await
    }

    /// Lets a model be found in the place of another of its name, which is not ended: see
    /// [`Engine::retire`]. All other versions stay.
    ///
    /// # Errors
    /// Somebody else registered this version; nothing has changed.
    pub fn exchange(
        &self,
        old: Option<&Arc<Model>>,
        new: &Arc<Model>,
    ) -> Result<(), RegisterError> {
        self.models.registry.exchange(old, new)
    }

    /// Ends exactly these models in the background, one after the other: new requests do not find them, and
    /// admitted ones are answered. Those that come later are found until then, for whoever calls them.
    pub fn retire(&self, models: Vec<Arc<Model>>) {
        self.models.retire(models);
    }

    /// Whether requests find this very model.
    pub fn holds(&self, model: &Arc<Model>) -> bool {
        self.models.registry.holds(model)
    }

    /// Says whether models of the start are still to come, which makes the server not ready.
    pub fn expect_models(&self, more: bool) {
        self.expects_models.store(more, Ordering::Relaxed);
    }

    /// The changes of models, workers and batching, for whoever keeps a record of them or waits for it.
    pub fn changes(&self) -> &Changes {
        &self.models.registry.changes
    }

    /// The models that come and go by their names.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// What workflows there are, and how they come and go.
    pub fn workflows(&self) -> &Workflows {
        &self.workflows
    }

    /// The operator's own processes beside the models.
    pub fn plugins(&self) -> &RunningPlugins {
        &self.plugins
    }

    /// Whether the engine is about to end.
    pub fn draining(&self) -> bool {
        self.models.draining.load(Ordering::Relaxed)
    }

    /// The server is no longer ready, but requests are still served until [`Engine::drain`], so that
    /// load balancers have time to notice.
    pub fn begin_drain(&self) {
        self.models.draining.store(true, Ordering::Relaxed);
    }

    /// Rejects new requests, answers everything that was admitted and ends all workers; true if that
    /// took no force.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.begin_drain();
        self.models.rejecting.store(true, Ordering::Relaxed);
        let started = tokio::time::Instant::now();
        self.workflows.finish(grace).await;
        let models = self.models.registry.all().into_iter().chain(self.plugins.take());
        for group in dependencies::closing_order(models.collect()) {
            let grace_left = grace.saturating_sub(started.elapsed());
            let close = |model: Arc<Model>| async move { model.close(grace_left).await };
            let closing: Vec<_> =
                group.into_iter().map(|model| tokio::spawn(close(model))).collect();
            for task in closing {
                drop(task.await);
            }
        }
        started.elapsed() < grace
    }
}
