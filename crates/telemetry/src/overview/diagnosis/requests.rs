//! Requests that are rejected, that fail, that are answered late, or that are about to be.

use super::limit::Limit;
use super::slower::Slower;
use super::traffic::TrafficBetween;
use super::version::VersionView;
use super::words::{error_line, millis, percent, rate};
use crate::overview::problem::{ProblemTone, ServerProblem};
use crate::overview::timestamp::millis_of;

const RECENT_MS: u64 = 30_500;
/// TrafficBetween is compared with that of the minutes before this time.
const BEFORE_MS: u64 = 60_000;
/// More traffic is this many times as much.
const MORE: f64 = 1.3;
const REJECTED: f64 = 0.01;
const FAILED: f64 = 0.01;
const LATE: f64 = 0.05;
/// Above, it is bad.
const MANY: f64 = 0.1;
const ERROR_FRESH_MS: u64 = 120_000;
/// The reason of requests that made workers exit.
const POISON: &str = "poison";
const DISK_FULL: &str = "No space left on device";

pub(super) fn problems(view: &VersionView<'_>) -> Vec<ServerProblem> {
    let mut slower = Slower::of(view);
    let now = lately(view);
    let serves = view.model.state != "failed" && view.model.state != "noWorkers";
    let mut found = Vec::new();
    if let Some(now) = now.filter(|_| serves) {
        let is_slower = slower.is_some();
        found.extend(rejecting(view, &now, &mut slower));
        found.extend(failing(view, &now));
        // Where the slower model is why requests are rejected, it is why others are late.
        if is_slower == slower.is_some() {
            found.extend(late(view, &now, &mut slower));
        }
    }
    if !found.iter().any(|problem| problem.word == "rejecting") {
        found.extend(waiting(view));
    }
    found.extend(slower.map(|slower| slower.problem(view)));
    found
}

/// Adds what requests suffer to a line that says why.
pub(super) fn suffering(view: &VersionView<'_>, mut problem: ServerProblem) -> ServerProblem {
    let Some(now) = lately(view) else { return problem };
    let shares = [
        (now.share(now.rejected), REJECTED, "are rejected"),
        (now.share(now.failed), FAILED, "fail"),
        (late_share(&now), LATE, "are answered late"),
    ];
    let suffer = shares.into_iter().filter(|(share, least, _)| share > least);
    let suffer: Vec<_> =
        suffer.map(|(share, _, what)| format!("{} {what}", percent(share))).collect();
    if !suffer.is_empty() {
        problem.what += &format!("; of its requests {}", suffer.join(", "));
    }
    if now.reason.as_deref() == Some(POISON) {
        problem.advice = other_reason(POISON).1.to_owned();
    }
    problem
}

/// The requests of the last half minute.
fn lately(view: &VersionView<'_>) -> Option<TrafficBetween> {
    let from = view.time.saturating_sub(RECENT_MS);
    TrafficBetween::read(view.samples(), &view.key, from, view.time)
}

fn late_share(now: &TrafficBetween) -> f64 {
    if now.answered > 0.0 { now.late / now.answered } else { 0.0 }
}

fn tone(share: f64) -> ProblemTone {
    if share > MANY { ProblemTone::Bad } else { ProblemTone::Warn }
}

fn rejecting(
    view: &VersionView<'_>,
    now: &TrafficBetween,
    slower: &mut Option<Slower>,
) -> Option<ServerProblem> {
    let share = now.share(now.rejected);
    if share <= REJECTED {
        return None;
    }
    let reason = now.reason.as_deref().unwrap_or_default();
    let mut roll_back_to = None;
    let (why, advice, helps) = match overload(reason) {
        Some(why) => match slower.take() {
            Some(slower) => {
                roll_back_to = slower.roll_back_to;
                (format!("{why}, since {}", slower.clause), slower.advice, slower.more_workers_help)
            }
            None => {
                let limit = Limit::of(view);
                let why = format!("{why}: {}{}", LOAD, more_traffic(view, now));
                (why, limit.advice(), limit.more_workers_help())
            }
        },
        None => {
            let (why, advice) = other_reason(reason);
            (why.to_owned(), advice.to_owned(), reason == "no_worker")
        }
    };
    let what = format!(
        "{}: rejecting {} of requests ({} per second): {why}",
        view.name,
        percent(share),
        rate(now.rejected / now.seconds)
    );
    let problem = view.problem(tone(share), "rejecting", what, &advice);
    Some(ServerProblem { more_workers_help: helps, roll_back_to, ..problem })
}

const LOAD: &str = "the offered load is more than the workers can serve";

/// Reasons that say that more comes than is served.
fn overload(reason: &str) -> Option<&'static str> {
    match reason {
        "queue_full" => Some("the queue is full"),
        "overload" => Some("serving them would make others late"),
        "hopeless" => Some("they could not be answered in time"),
        "expired" => Some("their deadline passed while they waited"),
        _ => None,
    }
}

/// All others, and what to do.
fn other_reason(reason: &str) -> (&'static str, &'static str) {
    match reason {
        "quota" => {
            ("their tenant has more than its share of the queue", "See the weights of tenants.")
        }
        "no_worker" => {
            ("there is no worker", "Scale it up, or see in the log why no worker starts.")
        }
        "not_loaded" => ("no worker could load the model", "The log says why."),
        "loading" => ("the model is still loading", "They are served when it has loaded."),
        "draining" => ("the model or the server is shutting down", "Send them elsewhere."),
        "too_large" => (
            "they are larger than the largest batch",
            "The clients send something wrong: the log has examples.",
        ),
        "bad_input" => (
            "their input is not what the model takes",
            "The clients send something wrong: the log has examples.",
        ),
        POISON => (
            "they made workers exit before",
            "Some requests make workers exit. Their ids are in the log.",
        ),
        "crowded" => (
            "the memory for requests is used up",
            "Bodies and answers in flight hold all the memory that is allowed: max_request_memory.",
        ),
        _ => ("see rejections by reason", "The log says which they are."),
    }
}

/// How much more comes than minutes ago, if it does.
fn more_traffic(view: &VersionView<'_>, now: &TrafficBetween) -> String {
    let to = view.time.saturating_sub(BEFORE_MS);
    let before = TrafficBetween::read(view.samples(), &view.key, 0, to);
    let before = before.map(|before| before.rate()).filter(|before| now.rate() > before * MORE);
    before.map_or_else(String::new, |before| {
        format!("; {} requests per second come, {} did minutes ago", rate(now.rate()), rate(before))
    })
}

fn failing(view: &VersionView<'_>, now: &TrafficBetween) -> Option<ServerProblem> {
    let share = now.share(now.failed);
    if share <= FAILED {
        return None;
    }
    let at = view.model.last_error_time.as_deref();
    let fresh = at.is_some_and(|at| millis_of(at) + ERROR_FRESH_MS > view.document.time);
    let error = view.model.last_error.as_deref().map(error_line).filter(|_| fresh);
    let advice = match &error {
        Some(error) if error.contains(DISK_FULL) => "The disk is full: remove files, or add room.",
        _ => {
            "The model or its worker fails on them. The log has the traceback and the request's id."
        }
    };
    let error = error.map_or_else(String::new, |error| format!(". Last error: {error}"));
    let what = format!("{}: {} of requests fail{error}", view.name, percent(share));
    let problem = view.problem(tone(share), "failing", what, advice);
    let new = view.samples().front().is_some_and(|first| !first.models.contains_key(&view.key));
    Some(if new { view.or_roll_back(problem) } else { problem })
}

fn late(
    view: &VersionView<'_>,
    now: &TrafficBetween,
    slower: &mut Option<Slower>,
) -> Option<ServerProblem> {
    let share = late_share(now);
    if share <= LATE {
        return None;
    }
    let target = view.model.max_latency_ms.map_or_else(|| "their deadline".to_owned(), millis);
    let mut what =
        format!("{}: {} of the answers come later than {target}", view.name, percent(share));
    let limit = Limit::of(view);
    let (advice, more_workers_help) = match slower.take() {
        Some(slower) => {
            what += &format!(", since {}", slower.clause);
            (slower.advice, slower.more_workers_help)
        }
        None if limit.more_workers_help() => {
            let advice = "More workers, a smaller batch, or a latency that the model can keep.";
            (advice.to_owned(), true)
        }
        None => (limit.advice(), false),
    };
    let problem = view.problem(ProblemTone::Warn, "late", what, &advice);
    Some(ServerProblem { more_workers_help, ..problem })
}

/// A queue that is nearly full.
fn waiting(view: &VersionView<'_>) -> Option<ServerProblem> {
    let model = view.model;
    let full =
        model.queue_max > 4 && u64::from(model.waiting) * 5 >= u64::from(model.queue_max) * 4;
    let what =
        format!("{}: {} requests wait, and {} may.", view.name, model.waiting, model.queue_max);
    let advice = "When the queue is full, requests are rejected.";
    full.then(|| view.problem(ProblemTone::Warn, "queue nearly full", what, advice))
}
