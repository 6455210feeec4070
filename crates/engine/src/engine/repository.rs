//! The served repository: models that come and go by name while the server runs.
//!
//! It knows the directories that were named at the start and the models that were named one by one. A model is
//! loaded beside the old one, takes its place when all its workers are ready, and only then the old one
//! ends; one that does not load changes nothing. Clients give a name, never a path, a file or a setting.

mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jitney_settings::Values;

use self::records::{FollowStep, ModelRecords};
use super::config::{RepositoryConfig, ServedDirectory};
use super::opener::blocking;
use super::registrar::{Registered, Registrar};
use crate::error::{RegisterError, RepositoryError};
use crate::model::{Model, Readiness};
use crate::settings::RegisterOptions;
use crate::store::{
    FORMATS, FileStamp, RepositoryModel, RepositoryVersion, model_named, models_of,
};

/// A model as the index lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its name.
    pub name: String,
    /// Its version, as far as it is known.
    pub version: Option<String>,
    /// Whether it can serve.
    pub state: IndexState,
    /// Why it cannot; empty if it can.
    pub reason: String,
}

/// Whether a model of the index can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// It can.
    Ready,
    /// Not yet.
    Loading,
    /// It was not loaded, was unloaded, or could not be loaded.
    Unavailable,
}

impl IndexState {
    /// The word of Triton's index.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Loading => "LOADING",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// The models that can be loaded and unloaded by name.
pub struct Repository {
    models: Arc<Registrar>,
    config: RepositoryConfig,
    records: ModelRecords,
    /// A model was found that has a configuration of Triton's.
    triton: AtomicBool,
}

/// Which directories are looked into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanScope {
    /// Those whose models are served.
    Served,
    /// That from which models are loaded when somebody asks for them.
    Store,
    /// All.
    Anywhere,
}

/// What is to be served under a name.
struct WantedModel {
    name: String,
    /// Of its files, where it comes from a directory.
    stamp: Option<FileStamp>,
    versions: Vec<WantedVersion>,
}

struct WantedVersion {
    options: RegisterOptions,
    stamp: Option<FileStamp>,
}

impl Repository {
    pub(super) fn new(models: Arc<Registrar>, config: RepositoryConfig) -> Self {
        Self { models, config, records: ModelRecords::default(), triton: AtomicBool::default() }
    }

    /// Lets a model that was named by itself at the start be loaded and unloaded by its name.
    pub fn remember(&self, model: &Model, options: RegisterOptions) {
        self.records.remember(model.name(), options);
    }

    /// Whether it is Triton's: a model in it has a `config.pbtxt`.
    pub fn is_triton(&self) -> bool {
        self.triton.load(Ordering::Relaxed)
    }

    /// Registers every model of the directories, without workers: whoever starts the server scales them.
    /// One that cannot be served is logged and listed, and harms no other.
    pub async fn start(&self) -> Vec<Registered> {
        let mut started = Vec::new();
        let found = self.scan(ScanScope::Served).await;
        if found.is_empty() {
            for ServedDirectory { path, .. } in &self.config.directories {
                let path = path.display();
                tracing::warn!(
                    "{path} holds no model: it may hold archives, .onnx files, and files or folders of {FORMATS}"
                );
            }
        }
        for model in found {
            let name = model.name.clone();
            let (stamp, registered) = (model.stamp, self.register(model).await);
            match registered {
                Ok(registered) => {
                    let models: Vec<_> =
                        registered.iter().map(|(it, _)| Arc::clone(&it.model)).collect();
                    drop(self.models.registry.replace(&name, &models));
                    let versions =
                        registered.iter().map(|(it, stamp)| (Arc::clone(&it.model), *stamp));
                    self.records.loaded(&name, Some(stamp), versions.collect());
                    started.extend(registered.into_iter().map(|(registered, _)| registered));
                }
                Err(reason) => {
                    tracing::error!(model = name, "not served: {reason}");
                    self.records.failed(&name, Some(stamp), reason);
                }
            }
        }
        started
    }

    async fn register(
        &self,
        model: RepositoryModel,
    ) -> Result<Vec<(Registered, Option<FileStamp>)>, String> {
        let wanted = self.wanted(model)?;
        let mut registered = Vec::new();
        for version in &wanted.versions {
            registered.push((self.begin(version).await?, version.stamp));
        }
        Ok(registered)
    }

    /// Every model, whether it is loaded or not, sorted by name; versions of one model the oldest first.
    pub async fn index(&self) -> Vec<IndexEntry> {
        let mut entries = Vec::new();
        let found = self.scan(ScanScope::Anywhere).await;
        let mut names: Vec<String> = found.iter().map(|model| model.name.clone()).collect();
        names.extend(self.records.names());
        names.extend(self.models.registry.defaults().iter().map(|model| model.name().to_owned()));
        names.sort_unstable();
        names.dedup();
        for name in names {
            let served = self.models.registry.versions(&name).unwrap_or_default();
            let known = self.records.reason(&name);
            let file = found.iter().find(|model| model.name == name).map(|model| &model.content);
            if served.is_empty() {
                let reason = match file {
                    Some(Err(why)) if known.is_none() => why.clone(),
                    _ => known.unwrap_or_default(),
                };
                let versions = file.and_then(|file| file.as_ref().ok());
                let version = versions.and_then(|it| it.versions.last()?.number.clone());
                let state = IndexState::Unavailable;
                entries.push(IndexEntry { name, version, state, reason });
            } else {
                entries.extend(served.iter().map(|model| index_entry(model)));
            }
        }
        entries
    }

    /// Loads a model of the repository, or loads it again if its files changed: beside the one that is
    /// served, and in its place once it is ready. Waits until it is.
    ///
    /// # Errors
    /// There is no such model, or it does not load; what was served is served on.
    pub async fn load(&self, name: &str) -> Result<(), RepositoryError> {
        self.load_with(name, None).await
    }

    /// The same with settings that its client gave, which hold until it is loaded again. What was typed for the
    /// server wins.
    ///
    /// # Errors
    /// As [`Repository::load`].
    pub async fn load_with(
        &self,
        name: &str,
        overrides: Option<Values>,
    ) -> Result<(), RepositoryError> {
        let turn = self.turn(name).await?;
        let _turn = turn.lock().await;
        let (stamp, wanted) = match self.find(name, ScanScope::Served).await {
            Some(model) => (Some(model.stamp), self.wanted(model)),
            None => match (self.named(name), self.find(name, ScanScope::Store).await) {
                (Some(named), _) => (None, Ok(named)),
                (None, Some(model)) => (None, self.wanted(model)),
                (None, None) => return Err(RepositoryError::Unknown { model: name.to_owned() }),
            },
        };
        let loaded = match wanted {
            Ok(wanted) => self.replace(&self.overridden(wanted, overrides)).await,
            Err(reason) => Err(reason),
        };
        loaded.map_err(|reason| {
            let served = self.models.registry.versions(name).unwrap_or_default();
            let kept = served.last().map(|model| format!("; version {} stays", model.version()));
            tracing::error!(model = name, "not loaded{}: {reason}", kept.unwrap_or_default());
            self.records.failed(name, stamp, reason.clone());
            RepositoryError::NotLoaded { model: name.to_owned(), reason }
        })
    }

    /// Removes all versions of a model of the repository: new requests do not find it, admitted ones are
    /// answered, then its workers end. One that is not loaded stays so.
    ///
    /// # Errors
    /// There is no such model.
    pub async fn unload(&self, name: &str) -> Result<(), RepositoryError> {
        let turn = self.turn(name).await?;
        let _turn = turn.lock().await;
        let found = self.find(name, ScanScope::Served).await;
        self.records.unloaded(name, found.map(|model| model.stamp));
        self.remove(name).await;
        Ok(())
    }

    /// Looks into the directories once: what is new or changed since the last look but one is loaded, and what is
    /// gone is removed. Files that changed since the last look may still be on their way, so they wait
    /// for the next one.
    pub async fn follow(&self) {
        let (models, failed) = self.scan_all(ScanScope::Served).await;
        for error in &failed {
            tracing::warn!("{error}; its models stay as they are");
        }
        let seen: Vec<_> = models.iter().map(|model| (model.name.clone(), model.stamp)).collect();
        for step in self.records.follow(&seen, failed.is_empty()) {
            match step {
                FollowStep::Load(name) => {
                    if self.load(&name).await.is_ok() {
                        tracing::info!(model = name, "loaded from the repository");
                    }
                }
                FollowStep::Remove(name) => {
                    let turn = self.records.turn(&name);
                    let _turn = turn.lock().await;
                    self.remove(&name).await;
                    self.records.forget(&name);
                    tracing::info!(model = name, "removed from the repository");
                }
            }
        }
    }

    /// The turn of a model's next change: they come one after the other.
    async fn turn(&self, name: &str) -> Result<Arc<tokio::sync::Mutex<()>>, RepositoryError> {
        let is_known =
            self.records.knows(name) || self.find(name, ScanScope::Anywhere).await.is_some();
        if is_known {
            return Ok(self.records.turn(name));
        }
        Err(RepositoryError::Unknown { model: name.to_owned() })
    }

    async fn remove(&self, name: &str) {
        for model in self.models.registry.replace(name, &[]) {
            self.models.end_removed(&model).await;
        }
    }

    /// Starts the versions that are new or changed and lets them be found in place of the others.
    async fn replace(&self, wanted: &WantedModel) -> Result<(), String> {
        let (mut versions, mut fresh) = (Vec::new(), Vec::new());
        for version in &wanted.versions {
            if let Some(kept) = self.unchanged(wanted, version) {
                versions.push((kept, version.stamp));
                continue;
            }
            let begun = match self.begin(version).await {
                Ok(begun) => begun,
                Err(reason) => return self.give_up(&fresh, reason).await,
            };
            fresh.push(Arc::clone(&begun.model));
            let old = self.models.registry.find(&wanted.name, None).ok();
            if let Err(error) = self.models.load_beside(old.as_ref(), &begun).await {
                return self.give_up(&fresh, error.to_string()).await;
            }
            versions.push((begun.model, version.stamp));
        }
        let models: Vec<_> = versions.iter().map(|(model, _)| Arc::clone(model)).collect();
        let removed = self.models.registry.replace(&wanted.name, &models);
        self.records.loaded(&wanted.name, wanted.stamp, versions);
        self.models.retire(removed);
        Ok(())
    }

    /// Ends what was started for nothing.
    async fn give_up(&self, started: &[Arc<Model>], reason: String) -> Result<(), String> {
        for model in started {
            self.models.end(model).await;
        }
        Err(reason)
    }

    /// The version that is served, if it is ready and of the same files.
    fn unchanged(&self, wanted: &WantedModel, version: &WantedVersion) -> Option<Arc<Model>> {
        let loaded = self.records.loaded_from(&wanted.name, version.stamp?)?;
        let found = self.models.registry.find(&wanted.name, Some(loaded.version())).ok()?;
        (Arc::ptr_eq(&found, &loaded) && found.readiness().is_as_wanted()).then_some(found)
    }

    /// Starts one version that nobody finds yet, without workers.
    async fn begin(&self, version: &WantedVersion) -> Result<Registered, String> {
        let registered = self.models.start_unlisted(&version.options).await;
        registered.map_err(|error| error.to_string())
    }

    /// The model with settings of its client. It is no longer what its files say, so that the next load loads it anew.
    fn overridden(&self, mut wanted: WantedModel, overrides: Option<Values>) -> WantedModel {
        let Some(overrides) = overrides else { return wanted };
        for version in &mut wanted.versions {
            let settings = self.config.settings.clone().or(&overrides);
            version.options.settings = settings.or(&version.options.settings);
            version.stamp = None;
        }
        wanted
    }

    /// How a model of a directory is registered.
    fn wanted(&self, model: RepositoryModel) -> Result<WantedModel, String> {
        let RepositoryModel { name, stamp, content } = model;
        let content = content?;
        self.triton.fetch_or(content.is_triton(), Ordering::Relaxed);
        for remark in &content.remarks {
            let config = content.config.as_deref().map(|path| path.display().to_string());
            tracing::warn!(model = name, "{}: {remark}", config.unwrap_or_default());
        }
        let (labels, declared) = (Arc::new(content.labels), Arc::new(content.declared));
        let settings = self.config.settings.clone().or(&content.settings);
        let version = |version: &RepositoryVersion| WantedVersion {
            stamp: Some(version.stamp),
            options: RegisterOptions {
                url: version.path.to_string_lossy().into_owned(),
                path: Some(version.path.clone()),
                model_name: Some(name.clone()),
                version: version.number.clone(),
                settings: settings.clone(),
                at_startup: true,
                whole: content.whole,
                declared: Some(Arc::clone(&declared)),
                handler: content.python.as_ref().map(|python| python.file.clone()),
                python: content.python.clone(),
                labels: Arc::clone(&labels),
                ..RegisterOptions::default()
            },
        };
        let versions = content.versions.iter().map(version).collect();
        Ok(WantedModel { name, stamp: Some(stamp), versions })
    }

    /// How a model that was named by itself is registered.
    fn named(&self, name: &str) -> Option<WantedModel> {
        let versions = self.records.named(name).into_iter();
        let versions: Vec<_> =
            versions.map(|options| WantedVersion { options, stamp: None }).collect();
        let name = name.to_owned();
        (!versions.is_empty()).then_some(WantedModel { name, stamp: None, versions })
    }

    async fn find(&self, name: &str, scope: ScanScope) -> Option<RepositoryModel> {
        self.scan(scope).await.into_iter().find(|model| model.name == name)
    }

    /// The models of the directories that can be read.
    async fn scan(&self, scope: ScanScope) -> Vec<RepositoryModel> {
        let (models, failed) = self.scan_all(scope).await;
        failed.iter().for_each(|error| tracing::warn!("{error}"));
        models
    }

    /// The models of the directories, and a sentence about each that cannot be read.
    async fn scan_all(&self, scope: ScanScope) -> (Vec<RepositoryModel>, Vec<String>) {
        let served = self.config.directories.iter().filter(|_| scope != ScanScope::Store);
        let store = self.config.store.iter().filter(|_| scope != ScanScope::Served);
        let store = store.map(|path| ServedDirectory { path: path.clone(), name: None });
        let directories: Vec<_> = served.cloned().chain(store).collect();
        let looked = blocking(move || {
            let (mut models, mut failed) = (Vec::<RepositoryModel>::new(), Vec::new());
            for directory in directories {
                let ServedDirectory { path, name } = directory;
                let found = match name {
                    Some(name) => model_named(&name, &path).map(|model| vec![model]),
                    None => models_of(&path),
                };
                match found {
                    Ok(found) => models.extend(found),
                    Err(error) => failed.push(format!("cannot read {}: {error}", path.display())),
                }
            }
            // The order of the directories decides between models of one name.
            models.sort_by(|a, b| a.name.cmp(&b.name));
            models.dedup_by(|later, first| later.name == first.name);
            (models, failed)
        });
        looked.await.unwrap_or_else(|error: RegisterError| (Vec::new(), vec![error.to_string()]))
    }
}

fn index_entry(model: &Model) -> IndexEntry {
    let readiness = model.readiness();
    let (state, reason) = match &readiness {
        Readiness::Ready | Readiness::Known | Readiness::Leaving => {
            (IndexState::Ready, String::new())
        }
        Readiness::Loading { .. } => (IndexState::Loading, readiness.to_string()),
        Readiness::Unstaffed | Readiness::Failed(_) => {
            (IndexState::Unavailable, readiness.to_string())
        }
    };
    let (name, version) = (model.name().to_owned(), Some(model.version().to_owned()));
    IndexEntry { name, version, state, reason }
}
