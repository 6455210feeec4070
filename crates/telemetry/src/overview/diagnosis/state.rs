//! Versions that have not the workers that they should have.

use super::version::VersionView;
use super::words::{error_line, times};
use crate::overview::problem::{ProblemTone, ServerProblem};

pub(super) fn problem(view: &VersionView<'_>) -> Option<ServerProblem> {
    let (model, name) = (view.model, &view.name);
    let error = model.last_error.as_deref().map(error_line).filter(|line| !line.is_empty());
    let because = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
    let (tone, what, advice) = match model.state.as_str() {
        "failed" => {
            let tried = match model.load_failures {
                0 | 1 => String::new(),
                failures => format!(" It was tried {}.", times(failures)),
            };
            let advice = format!(
                "It serves nothing.{tried} Read the log, correct the model, and register it again."
            );
            let what = format!("{name}: could not load{because}");
            return Some(view.or_roll_back(view.problem(ProblemTone::Bad, "", what, &advice)));
        }
        "noWorkers" => (
            ProblemTone::Warn,
            format!("{name} has no workers: every request is rejected."),
            "Scale it to one worker or more.",
        ),
        "degraded" if model.load_failures > 0 && error.is_some() => (
            ProblemTone::Warn,
            format!(
                "{name}: {} of {} workers ready; the last one could not load{because}",
                model.workers_ready(),
                model.workers_min
            ),
            "Read the log; it is tried again.",
        ),
        _ => return None,
    };
    let problem = view.problem(tone, "", what, advice);
    Some(ServerProblem { more_workers_help: model.state == "noWorkers", ..problem })
}
