//! What is known of the shared list of models that several servers follow. Whoever follows it (the command
//! line) tells it here; readiness, management and metrics read it. Nothing here loads a model.

use std::time::SystemTime;

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
