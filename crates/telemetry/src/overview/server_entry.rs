//! The server itself in the overview: which one it is, how it is, and what it holds.

use std::sync::Arc;
use std::time::SystemTime;

use jitney_engine::Engine;
use jitney_settings::Dialect;
use serde::{Deserialize, Serialize};

use super::timestamp::rfc3339;
use super::version_state::VersionState;
use super::worker_entry::WorkerUsages;
use crate::jobs_overview::JobsReader;
use crate::log_book::LogBook;
use crate::metrics::Meter;
use crate::registrations::{ListedState, Registrations, RegistrationsReport};

/// Names of models in the server's sentence; more are counted.
const NAMED_MAX: usize = 3;

/// The parts of a server that know how it is, and what never changes about it.
pub struct OverviewSources {
    /// The models.
    pub engine: Arc<Engine>,
    /// The machine.
    pub meter: Arc<Meter>,
    /// Whose rules it follows.
    pub dialect: Dialect,
    /// When it began.
    pub started: SystemTime,
    /// Whether clients need a token.
    pub token_needed: bool,
    /// Whether models can be registered and removed.
    pub model_api: bool,
    /// The shared list of models.
    pub registrations: Arc<Registrations>,
    /// The requests that are answered later.
    pub jobs: JobsReader,
    /// Knows what is logged.
    pub log_book: Option<Arc<LogBook>>,
}

/// The server itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ServerOverview {
    /// Of the program.
    pub version: String,
    /// `jitney` or `torchserve`.
    pub dialect: String,
    /// When it began.
    pub started_at: String,
    /// Since its start.
    pub uptime_seconds: f64,
    /// Its process.
    pub pid: u32,
    /// Its machine.
    pub hostname: String,
    /// `ready`, `loading`, `degraded` or `draining`.
    pub state: String,
    /// The same as a sentence.
    pub state_text: String,
    /// Whether clients need a token.
    pub token_needed: bool,
    /// Whether models can be registered and unregistered over the network.
    pub model_api: bool,
    /// What it logs.
    pub log_level: Option<String>,
    /// Held by requests.
    pub request_memory_bytes: u64,
    /// The most that requests may hold.
    pub request_memory_limit_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// Resident memory of the server without its workers.
    pub memory_bytes: Option<u64>,
    /// Percent of one processor that it uses without its workers.
    pub cpu_percent: Option<f64>,
}

impl ServerOverview {
    /// `versions` are the names of the models with their states.
    pub(super) fn read(
        sources: &OverviewSources,
        versions: &[(&str, VersionState)],
        usages: &WorkerUsages,
    ) -> Self {
        let OverviewSources { engine, meter, started, .. } = sources;
        let waiting =
            sources.registrations.read().filter(|list| !list.settled && !engine.draining());
        let (state, state_text) = match waiting {
            Some(list) => ("loading", unsettled(&list)),
            None => judge(engine.draining(), versions),
        };
        let uptime = started.elapsed().unwrap_or_default().as_secs_f64();
        let admission = engine.admission();
        let dialect = match sources.dialect {
            Dialect::Jitney => "jitney",
            Dialect::TorchServe => "torchserve",
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: dialect.to_owned(),
            started_at: rfc3339(*started),
            uptime_seconds: (uptime * 10.0).round() / 10.0,
            pid: std::process::id(),
            hostname: meter.hostname().to_owned(),
            state: state.to_owned(),
            state_text,
            token_needed: sources.token_needed,
            model_api: sources.model_api,
            log_level: sources.log_book.as_ref().map(|book| book.level()),
            request_memory_bytes: admission.bytes(),
            request_memory_limit_bytes: admission.limits().bytes,
            connections: meter.connections().iter().sum::<usize>() as u64,
            memory_bytes: meter.own_process().map(|usage| usage.memory),
            cpu_percent: usages.cpu_percent(std::process::id()),
        }
    }

    /// Whether every model that was asked for answers.
    pub fn is_ready(&self) -> bool {
        self.state == "ready"
    }
}

/// Why a server that follows a shared list of models is not ready yet.
fn unsettled(list: &RegistrationsReport) -> String {
    if let Some(error) = &list.error {
        return format!("The server waits for its list of models: {error}.");
    }
    let (loaded, failed) = (list.count(ListedState::Loaded), list.count(ListedState::Failed));
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    format!("{loaded} of {} listed models are loaded{failed}.", list.models.len())
}

/// The server's state in one word and one sentence.
fn judge(draining: bool, versions: &[(&str, VersionState)]) -> (&'static str, String) {
    use VersionState::{
        Degraded, Ending, Failed, Known, Leaving, Loading, LoadingOnDemand, NoWorkers, Ready,
    };
    if draining {
        let text =
            "The server is shutting down: it answers what it has admitted and takes nothing new.";
        return ("draining", text.to_owned());
    }
    let serves = |state: VersionState| match state {
        Ready | NoWorkers | Known | LoadingOnDemand | Leaving => true,
        Loading | Failed | Degraded | Ending => false,
    };
    let missing: Vec<_> = versions.iter().filter(|(_, state)| !serves(*state)).collect();
    let (count, well) = (versions.len(), versions.len() - missing.len());
    match (count, missing.len()) {
        (0, _) => return ("ready", "No model is registered.".to_owned()),
        (1, 0) => return ("ready", "The model is ready.".to_owned()),
        (_, 0) => return ("ready", format!("All {count} models are ready.")),
        _ => {}
    }
    let named = missing.iter().take(NAMED_MAX);
    let named: Vec<_> = named.map(|(name, state)| format!("{name} ({})", state.as_str())).collect();
    let more = match missing.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let only_loads = missing.iter().all(|(_, state)| *state == Loading);
    let state = if only_loads { "loading" } else { "degraded" };
    (state, format!("{well} of {count} models are ready. Not ready: {}{more}.", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_what_is_not_well() {
        use VersionState::{Degraded, Failed, Loading, Ready};
        for (versions, word, sentence) in [
            (&[][..], "ready", "No model is registered."),
            (&[("a", Ready)], "ready", "The model is ready."),
            (&[("a", Ready), ("b", Ready)], "ready", "All 2 models are ready."),
            (
                &[("a", Ready), ("b", Loading)],
                "loading",
                "1 of 2 models are ready. Not ready: b (loading).",
            ),
            (
                &[("a", Failed), ("b", Loading), ("c", Degraded), ("d", Failed), ("e", Ready)],
                "degraded",
                "1 of 5 models are ready. Not ready: a (failed), b (loading), c (degraded) and 1 more.",
            ),
        ] {
            assert_eq!(judge(false, versions), (word, sentence.to_owned()));
        }
        assert_eq!(judge(true, &[("a", Ready)]).0, "draining");
    }
}
