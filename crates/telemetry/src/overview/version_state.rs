//! How a model version is, in one word and in one sentence that says what to do about it.

use jitney_engine::{Model, Readiness, Status, WorkerIncident};

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionState {
    /// As many workers as wanted serve.
    Ready,
    /// No worker serves yet.
    Loading,
    /// The same, for a request that came.
    LoadingOnDemand,
    /// No worker could load it.
    Failed,
    /// Fewer workers serve than are wanted.
    Degraded,
    /// None are wanted.
    NoWorkers,
    /// The first request loads it.
    Known,
    /// The same, and its last workers are ending.
    Leaving,
    /// The server ends.
    Ending,
}

impl VersionState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Loading | Self::LoadingOnDemand => "loading",
            Self::Failed => "failed",
            Self::Degraded => "degraded",
            Self::NoWorkers => "noWorkers",
            Self::Known => "known",
            Self::Leaving => "leaving",
            Self::Ending => "ending",
        }
    }

    /// Word and sentence for a version that looks like this.
    pub(super) fn of(model: &Model, status: &Status, draining: bool) -> (Self, String) {
        let seen = SeenVersion {
            name: model.name(),
            ready: status.workers.iter().filter(|worker| worker.ready).count() as u32,
            wanted: status.workers_min,
            readiness: model.readiness(),
            last: status.incidents.last.as_deref(),
            draining,
        };
        (seen.state(), seen.sentence())
    }
}

/// What state and sentence depend on.
struct SeenVersion<'a> {
    name: &'a str,
    ready: u32,
    wanted: u32,
    readiness: Readiness,
    last: Option<&'a WorkerIncident>,
    draining: bool,
}

impl SeenVersion<'_> {
    fn state(&self) -> VersionState {
        match &self.readiness {
            _ if self.draining => VersionState::Ending,
            Readiness::Ready if self.ready < self.wanted => VersionState::Degraded,
            Readiness::Ready => VersionState::Ready,
            Readiness::Unstaffed => VersionState::NoWorkers,
            Readiness::Known => VersionState::Known,
            Readiness::Leaving => VersionState::Leaving,
            Readiness::Loading { .. } if self.wanted == 0 => VersionState::LoadingOnDemand,
            Readiness::Loading { .. } => VersionState::Loading,
            Readiness::Failed(_) => VersionState::Failed,
        }
    }

    fn sentence(&self) -> String {
        let Self { name, ready, .. } = self;
        let loading = matches!(self.readiness, Readiness::Loading { .. });
        let wanted = if loading { self.wanted.max(1) } else { self.wanted };
        match (self.state(), &self.readiness) {
            (VersionState::Ready, _) if *ready == 1 => "1 worker is ready.".to_owned(),
            (VersionState::Ready, _) => format!("{ready} workers are ready."),
            (VersionState::Degraded, _) => {
                let verb = if *ready == 1 { "is" } else { "are" };
                let last = self.last.map(|last| format!(" Last error: {}.", last.error));
                let last = last.unwrap_or_default();
                format!("Only {ready} of {wanted} workers {verb} ready.{last}")
            }
            (VersionState::NoWorkers, _) => {
                format!(
                    "It has no workers, as asked for. PUT /models/{name}?min_worker=1 starts one."
                )
            }
            (VersionState::Known, _) => "It is not loaded; the first request loads it.".to_owned(),
            (VersionState::Leaving, _) => {
                "Its workers end, because nobody asks for it; the next request loads it again."
                    .to_owned()
            }
            (VersionState::Ending, _) => {
                "The server is shutting down; requests that it admitted are still answered."
                    .to_owned()
            }
            (_, Readiness::Failed(failure)) => {
                let next = match failure.retry_after() {
                    Some(wait) if wait.as_secs() > 0 => {
                        format!("the next try begins in {} s", wait.as_secs())
                    }
                    Some(_) => "the next try begins now".to_owned(),
                    None => {
                        format!(
                            "it is not tried again until PUT /models/{name}?min_worker=1 asks for it"
                        )
                    }
                };
                format!("{}; {next}.", capital(&failure.to_string()))
            }
            (_, Readiness::Loading { progress: Some(step), .. }) => {
                format!("No worker of {wanted} is ready yet: {step}.")
            }
            (_, _) => match self.last.and_then(|last| last.exit) {
                Some(exit) => format!("No worker is ready; the last one was lost: {exit}."),
                None => format!("No worker of {wanted} is ready yet: loading."),
            },
        }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use jitney_engine::outcome::{LaunchError, LoadFailure, WorkerExit};

    use super::*;

    fn seen(readiness: Readiness, ready: u32, wanted: u32) -> SeenVersion<'static> {
        SeenVersion { name: "m", ready, wanted, readiness, last: None, draining: false }
    }

    #[test]
    fn every_state_has_a_word_and_a_sentence() {
        let error = LaunchError::Spawn("No such file or directory".to_owned());
        let failed = Readiness::Failed(Arc::new(LoadFailure { error, retry_at: None }));
        let loading = |wanted| Readiness::Loading { wanted, progress: None };
        for (seen, word, sentence) in [
            (seen(Readiness::Ready, 1, 1), "ready", "1 worker is ready."),
            (seen(Readiness::Ready, 1, 2), "degraded", "Only 1 of 2 workers is ready."),
            (
                seen(Readiness::Unstaffed, 0, 0),
                "noWorkers",
                "It has no workers, as asked for. PUT /models/m?min_worker=1 starts one.",
            ),
            (seen(loading(2), 0, 2), "loading", "No worker of 2 is ready yet: loading."),
            (
                seen(failed, 0, 1),
                "failed",
                "Loading failed: cannot start the worker: No such file or directory; it is not \
                 tried again until PUT /models/m?min_worker=1 asks for it.",
            ),
        ] {
            assert_eq!((seen.state().as_str(), seen.sentence().as_str()), (word, sentence));
        }
        let exit = WorkerExit::Ended { status: None, signal: Some(9) };
        let (error, at) = (exit.to_string(), SystemTime::UNIX_EPOCH);
        let last = WorkerIncident { error, at, exit: Some(exit) };
        let lost = SeenVersion { last: Some(&last), ..seen(loading(1), 0, 1) };
        let expected = "No worker is ready; the last one was lost: killed by signal 9.";
        assert_eq!(lost.sentence(), expected);
        let ending = SeenVersion { draining: true, ..seen(Readiness::Ready, 1, 1) };
        assert_eq!(ending.state(), VersionState::Ending);
    }
}
