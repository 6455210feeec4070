//! The sentences in which a batcher's policy and decisions are told.
//!
//! One sentence per reason, with the figures that decided it. Nothing here computes anything.

use std::time::Duration;

use jitney_engine::{DecisionKind, DispatchReason, PastDecision, Policy, Rejection};

/// How the policy in force decides.
pub(super) fn policy(policy: &Policy, max_items: u32) -> String {
    let most = match max_items {
        1 => "one item at a time".to_owned(),
        most => format!("at most {most} items"),
    };
    match policy {
        Policy::Opportunistic => format!("{most}; a free worker takes what is there"),
        Policy::Window { delay } => {
            let delay = ms(*delay);
            format!("{most}; a batch leaves when full or when its oldest request waited {delay}")
        }
        Policy::Adaptive(adaptive) => {
            let objective = adaptive.objective.map_or_else(
                || "no latency is asked for".to_owned(),
                |it| format!("answers within {}", ms(it)),
            );
            let bound = adaptive
                .max_wait
                .map(|it| format!(", nobody waits more than {} for company", ms(it)));
            let bound = bound.unwrap_or_default();
            format!("{most}; {objective}; a batch leaves when waiting does not pay any more{bound}")
        }
    }
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
        ", nothing known yet about how long that takes".to_owned()
    };
    match it.kind {
        DecisionKind::Dispatch(reason) => {
            let skipped = match it.skipped {
                0 => String::new(),
                some => format!("; {some} at the head were passed over, as they would be late"),
            };
            format!("{size} left{expected}: {}{skipped}", departure(reason))
        }
        DecisionKind::Wait(_) => {
            let most = decided.wait.unwrap_or(Duration::ZERO).as_nanos();
            let most = ms(u64::try_from(most).unwrap_or(u64::MAX));
            let rate = it.rate;
            let unit = unit.many();
            format!("{size} waited for company, {most} at most: {rate:.0} {unit} per second come")
        }
        DecisionKind::Reject(reason) => {
            format!("a request of {size} was refused: {}", why(decided, reason))
        }
    }
}

fn departure(reason: DispatchReason) -> &'static str {
    match reason {
        DispatchReason::Full => "no more fit, or no more would have been in time",
        DispatchReason::Idle => "a worker was free and waiting would not have paid",
        DispatchReason::Window => "the oldest had waited as long as it may",
        DispatchReason::Deadline => "leaving later would have made somebody late",
        DispatchReason::Everyone => "all who were expected had come",
        DispatchReason::Drain => "the model is being shut down",
        DispatchReason::Retry => "a part of a batch that failed",
    }
}

fn why(decided: &PastDecision, reason: Rejection) -> String {
    let it = &decided.decision;
    let left = it.slack.map_or_else(String::new, |slack| format!(" with {} left", ms(slack)));
    let free = ms(it.next_free);
    match reason {
        Rejection::Hopeless => {
            format!("it would have been late{left}; the next worker is free in {free}")
        }
        Rejection::Overload => format!("serving it{left} would have made others late"),
        Rejection::QueueFull => format!("{} requests waited, and no more may", it.waiting),
        Rejection::Quota => "its tenant had more than its share of the queue".to_owned(),
        Rejection::TooLarge => "it fits into no batch".to_owned(),
        Rejection::Expired => "its deadline passed while it waited".to_owned(),
        Rejection::Cancelled => "its client went away".to_owned(),
        Rejection::Draining => "the model is being shut down".to_owned(),
        Rejection::NoWorker => "there was nobody to run it".to_owned(),
    }
}

/// The word for a rejection, as in metrics and error messages.
pub(super) fn rejection(reason: Rejection) -> &'static str {
    match reason {
        Rejection::QueueFull => "queue_full",
        Rejection::TooLarge => "too_large",
        Rejection::Expired => "expired",
        Rejection::Cancelled => "cancelled",
        Rejection::Draining => "draining",
        Rejection::Hopeless => "hopeless",
        Rejection::Overload => "overload",
        Rejection::Quota => "quota",
        Rejection::NoWorker => "no_worker",
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
