//! Workers that exit again and again, and workers whose memory only grows.

use super::traffic::TrafficBetween;
use super::version::VersionView;
use super::words::{bytes, duration, error_line, times};
use crate::overview::document::MachineOverview;
use crate::overview::problem::{ProblemTone, ServerProblem};

pub(super) const RESTARTING: &str = "restarting";
const RESTARTS_MS: u64 = 300_000;
/// So many restarts are no chance.
const LOOP_MIN: u64 = 3;
/// A leak is told with the time that is left if it is shorter, and is bad if it is much shorter.
const LEFT_SECONDS: f64 = 48.0 * 3600.0;
const LEFT_BAD_SECONDS: f64 = 3600.0;

/// Restarts of the last minutes.
pub(super) fn restarts(view: &VersionView<'_>) -> Option<ServerProblem> {
    let model = view.model;
    let (restarts, seconds) = counted(view)?;
    let none_ready = model.state == "loading" && model.restarts > 0 && model.last_exit.is_some();
    if restarts == 0 && !none_ready {
        return None;
    }
    let mut guilty = model.workers.iter().filter(|worker| worker.restarts > 0);
    let who = match (guilty.next(), guilty.next()) {
        (Some(only), None) => format!("Worker {} of {} has", only.id, view.name),
        _ => format!("Workers of {} have", view.name),
    };
    let error = || model.last_error.as_deref().map(error_line);
    let why = model.last_exit.clone().or_else(error);
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let within = if seconds < 285.0 { duration(seconds) } else { "5 minutes".to_owned() };
    let what = match restarts {
        0 => format!("{} has no worker that is ready; the last one was lost{why}", view.name),
        _ => format!("{who} been restarted {} in {within}{why}", times(restarts)),
    };
    if restarts < LOOP_MIN {
        let (tone, advice) = match none_ready {
            true => (ProblemTone::Bad, "Requests wait or are rejected until one has loaded."),
            false => (ProblemTone::Warn, "One exit can be chance."),
        };
        let advice = format!("{advice} The log has its last lines.");
        return Some(view.problem(tone, RESTARTING, what, &advice));
    }
    let advice = "It exits again and again. Read its last lines in the log; a new version may be the reason.";
    Some(view.or_roll_back(view.problem(ProblemTone::Bad, RESTARTING, what, advice)))
}

/// How many there were, and in how many seconds. All of those of a version that has just come.
fn counted(view: &VersionView<'_>) -> Option<(u64, f64)> {
    let samples = view.samples();
    let from = view.time.saturating_sub(RESTARTS_MS + 500);
    let past = TrafficBetween::read(samples, &view.key, from, view.time);
    let has = samples.iter().find(|sample| sample.models.contains_key(&view.key))?;
    let young = samples.iter().any(|it| it.time >= from && it.time < has.time);
    let lately = past.as_ref().map_or(0, |past| past.restarts);
    let all = if young { view.model.restarts } else { 0 };
    Some((lately.max(all), past.map_or(2.0, |past| past.seconds)))
}

/// The worker whose memory grows fastest.
pub(super) fn leak(view: &VersionView<'_>) -> Option<ServerProblem> {
    let record = view.history.record(&view.key)?;
    let grows =
        view.model.workers.iter().filter_map(|worker| Some((worker, record.growth(worker.pid?)?)));
    let (worker, slope) = grows.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let free = |machine: &MachineOverview| {
        machine.memory_total_bytes.saturating_sub(machine.memory_used_bytes) as f64
    };
    let left =
        view.document.machine.as_ref().map_or(f64::INFINITY, |machine| free(machine) / slope);
    let until = match left < LEFT_SECONDS {
        true => format!("At this speed the machine's memory is full in {}. ", duration(left)),
        false => String::new(),
    };
    let tone = if left < LEFT_BAD_SECONDS { ProblemTone::Bad } else { ProblemTone::Warn };
    let what = format!(
        "Worker {} of {}: memory grows by {} a minute, now {}: a leak?",
        worker.id,
        view.name,
        bytes(slope * 60.0),
        bytes(worker.memory_bytes.unwrap_or(0) as f64)
    );
    let advice = format!(
        "{until}Scaling down and up again frees it for now; look for what the model keeps between requests."
    );
    Some(view.problem(tone, "memory grows", what, &advice))
}
