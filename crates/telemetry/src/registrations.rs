//! The shared list of models that several servers follow, as health, the overview and metrics tell it. Whoever
//! follows it (the command line) reports here; nothing here loads a model.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};

/// What was reported last, if there is such a list.
#[derive(Debug, Default)]
pub struct Registrations(ArcSwapOption<RegistrationsReport>);

impl Registrations {
    /// Takes the place of what was reported before.
    pub fn report(&self, report: RegistrationsReport) {
        self.0.store(Some(Arc::new(report)));
    }

    /// None for a server without such a list.
    pub fn read(&self) -> Option<Arc<RegistrationsReport>> {
        self.0.load_full()
    }
}

/// The list, and what became of each of its models.
#[derive(Clone, Debug, Default)]
pub struct RegistrationsReport {
    /// Where it is, as it may be shown.
    pub source: String,
    /// What names the content that is in force: servers with the same one follow the same list.
    pub revision: Option<String>,
    /// When it was last read, changed or not.
    pub read_at: Option<SystemTime>,
    /// Looks that could not read it.
    pub read_failures: u64,
    /// Why the last look could not; what was in force stays so.
    pub error: Option<String>,
    /// Whether all models of it have been loaded once: before that the server is not ready.
    pub settled: bool,
    /// Its models, in its order.
    pub models: Vec<ListedModel>,
}

/// A model of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// Its name.
    pub name: String,
    /// The version that answers, or the one that is asked for.
    pub version: Option<String>,
    /// What became of it.
    pub state: ListedState,
    /// Why it could not be loaded.
    pub reason: Option<String>,
}

/// What became of a model of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedState {
    /// It is as the list says.
    Loaded,
    /// Not yet.
    Loading,
    /// It could not be loaded, and will be tried again; an older one of its name goes on.
    Failed,
}

impl ListedState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Loaded, Self::Loading, Self::Failed];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Loading => "loading",
            Self::Failed => "failed",
        }
    }
}

impl RegistrationsReport {
    /// How many of its models are in a state.
    pub fn count(&self, state: ListedState) -> usize {
        self.models.iter().filter(|model| model.state == state).count()
    }
}

/// What became of the list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RegistrationsView {
    /// Where it is, as it may be shown.
    pub source: String,
    /// The content that is in force; the same on servers that follow the same list. Null before the first.
    pub revision: Option<String>,
    /// Whether all models of it were loaded once.
    pub settled: bool,
    /// When it was last read.
    pub read_at: Option<String>,
    /// Why the last look could not read it, or what is wrong with it.
    pub error: Option<String>,
    /// In its order.
    pub models: Vec<ListedModelView>,
}

/// A model of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ListedModelView {
    /// Its name.
    pub name: String,
    /// The version that answers, or the one that is asked for.
    pub version: Option<String>,
    /// `loaded`, `loading` or `failed`.
    pub state: String,
    /// Why it could not be loaded.
    pub reason: Option<String>,
}

impl RegistrationsView {
    /// None for a server without such a list.
    pub fn of(registrations: &Registrations) -> Option<Self> {
        let list = registrations.read()?;
        let models = list.models.iter().map(|model| ListedModelView {
            name: model.name.clone(),
            version: model.version.clone(),
            state: model.state.as_str().to_owned(),
            reason: model.reason.clone(),
        });
        Some(Self {
            source: list.source.clone(),
            revision: list.revision.clone(),
            settled: list.settled,
            read_at: list.read_at.map(|read| humantime::format_rfc3339_seconds(read).to_string()),
            error: list.error.clone(),
            models: models.collect(),
        })
    }
}
