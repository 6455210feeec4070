//! A batcher's policy and decisions as sentences, with the numbers behind each.

use std::time::Duration;

use jitney_engine::{DecisionKind, DispatchReason, PastDecision, Policy, Rejection};

/// How the policy in force decides.
pub(super) fn policy(policy: &Policy, max_items: u32) -> String {
    let most = match max_items {
        1 => "one item at a time".to_owned(),
        most => format!("at most {most} items"),
    };
    match policy {
        Policy::Opportunistic => format!("{most}; a free worker takes the requests that wait"),
        Policy::Window { delay } => format!("{most}; {}", window(*delay)),
        Policy::Adaptive(adaptive) => {
            let objective = adaptive.objective.map_or_else(
                || "no latency target".to_owned(),
                |it| format!("latency target {}", ms(it)),
            );
            if let Some(delay) = adaptive.window {
                return format!("{most}; {objective}; {}", window(delay));
            }
            let bound = adaptive.max_wait.map(|it| format!(", after {} at the latest", ms(it)));
            let bound = bound.unwrap_or_default();
            format!("{most}; {objective}; a batch is sent when waiting no longer pays{bound}")
        }
    }
}

fn window(delay: u64) -> String {
    format!("a batch is sent when it is full or its oldest request has waited {}", ms(delay))
}

/// What sizes are counted in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Items,
    Cost,
}

/// One decision as a sentence.
pub(super) fn decision(decided: &PastDecision, unit: Unit) -> String {
    let it = &decided.decision;
    let size = of(unit, it.size);
    let expected = if it.predicted > 0 {
        format!(", expected to take {}", ms(it.predicted))
    } else {
        ", with no known time yet".to_owned()
    };
    match it.kind {
        DecisionKind::Dispatch(reason) => {
            let skipped = match it.skipped {
                0 => String::new(),
                some => format!("; {some} before them were skipped because they would be late"),
            };
            format!("sent {size}{expected}: {}{skipped}", dispatch(reason))
        }
        DecisionKind::Wait(_) => {
            let most = decided.wait.unwrap_or(Duration::ZERO).as_nanos();
            let most = ms(u64::try_from(most).unwrap_or(u64::MAX));
            let rate = it.rate;
            let unit = unit.many();
            format!("{size} waited for others, at most {most}: {rate:.0} {unit} arrive per second")
        }
        DecisionKind::Reject(reason) => {
            format!("rejected a request of {size}: {}", why(decided, reason))
        }
    }
}

fn dispatch(reason: DispatchReason) -> &'static str {
    match reason {
        DispatchReason::Full => "no more fit, or more would have been late",
        DispatchReason::Idle => "a worker was free and waiting did not pay",
        DispatchReason::Window => "the oldest request had waited for the whole delay",
        DispatchReason::Deadline => "later, a request would have been late",
        DispatchReason::Everyone => "all expected requests had come",
        DispatchReason::Drain => "the model is shutting down",
        DispatchReason::Retry => "a part of a batch that failed",
    }
}

fn why(decided: &PastDecision, reason: Rejection) -> String {
    let it = &decided.decision;
    let left = it.slack.map_or_else(String::new, |slack| format!(" with {} left", ms(slack)));
    let free = ms(it.next_free);
    match reason {
        Rejection::Infeasible => {
            format!("it would have been late{left}; the next worker is free in {free}")
        }
        Rejection::Overload => format!("serving it{left} would have made others late"),
        Rejection::QueueFull => format!("{} requests waited, which is the limit", it.waiting),
        Rejection::Quota => "its tenant had more than its share of the queue".to_owned(),
        Rejection::TooLarge => "no batch is large enough".to_owned(),
        Rejection::Expired => "its deadline passed while it waited".to_owned(),
        Rejection::Cancelled => "its client went away".to_owned(),
        Rejection::Draining => "the model is shutting down".to_owned(),
        Rejection::NoWorker => "there was no worker".to_owned(),
    }
}

impl Unit {
    fn many(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Cost => "units of cost",
        }
    }
}

fn of(unit: Unit, count: u64) -> String {
    match (unit, count) {
        (Unit::Items, 1) => "1 item".to_owned(),
        (Unit::Cost, 1) => "1 unit of cost".to_owned(),
        (_, many) => format!("{many} {}", unit.many()),
    }
}

fn ms(nanos: u64) -> String {
    format!("{:.2} ms", nanos as f64 / 1e6)
}
