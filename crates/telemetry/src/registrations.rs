//! The shared list that models come from, as health and the overview tell it.

use jitney_engine::Engine;
use serde::Serialize;

/// What became of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationsView {
    source: String,
    /// The content that is in force; the same on servers that follow the same list. Null before the first.
    revision: Option<String>,
    /// Whether all models of it were loaded once.
    settled: bool,
    /// When it was last read.
    read_at: Option<String>,
    /// Why the last look could not read it, or what is wrong with it.
    error: Option<String>,
    models: Vec<ListedModelView>,
}

#[derive(Debug, Serialize)]
struct ListedModelView {
    name: String,
    version: Option<String>,
    state: &'static str,
    /// Why it could not be loaded.
    reason: Option<String>,
}

impl RegistrationsView {
    /// None for a server without such a list.
    pub fn of(engine: &Engine) -> Option<Self> {
        let list = engine.registrations()?;
        let models = list.models.iter().map(|model| ListedModelView {
            name: model.name.clone(),
            version: model.version.clone(),
            state: model.state.as_str(),
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
