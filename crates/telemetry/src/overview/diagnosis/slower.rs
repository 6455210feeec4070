//! Whether a version has become slower, and why: a part of it, a device, the machine, or the model itself.

use super::limit::{BatchTime, Limit};
use super::traffic::TrafficBetween;
use super::version::VersionView;
use super::words::{duration, millis};
use crate::overview::compute_times::{Slowdown, Then};
use crate::overview::model_entry::ModelOverview;
use crate::overview::problem::{ProblemTone, ServerProblem};

/// So many times as long is a warning, less a note.
const MUCH: f64 = 2.0;
/// Waiting in a part's queue explains a slow caller if it is this share of the caller's time.
const PART_SHARE: f64 = 0.5;
const PART_MS: u64 = 30_000;
/// Percent of their time: workers that have a batch for less leave no request waiting.
const BUSY: f64 = 50.0;
const MORE_WORKERS: &str = " More workers answer more until that is mended.";

/// Why batches take longer.
pub(super) struct Slower {
    /// `the model has become slower: batches of 1 take 400 ms, 10 ms 2 min ago`.
    pub(super) clause: String,
    pub(super) advice: String,
    pub(super) more_workers_help: bool,
    pub(super) roll_back_to: Option<String>,
    times: f64,
}

impl Slower {
    pub(super) fn of(view: &VersionView<'_>) -> Option<Self> {
        let slowdown = slowdown(view)?;
        let times = slowdown.now_ms / slowdown.then_ms.max(1e-6);
        if let Some((part, clause)) = slow_part(view, &slowdown) {
            let advice = format!("Begin with {part}: this model only waits for it.");
            return Some(Self {
                clause,
                advice,
                more_workers_help: false,
                roll_back_to: None,
                times,
            });
        }
        let roll_back_to = match &slowdown.then {
            Then::Version(version) => Some(version.clone()).filter(|_| view.model.is_default),
            Then::Ago(_) | Then::DayAgo => None,
        };
        let limit = Limit::of(view);
        let more_workers_help = limit.more_workers_help() && BatchTime::lately(view).percent > BUSY;
        Some(Self {
            clause: format!("the model has become slower: {}{}", words(&slowdown), limit.clause()),
            advice: limit.advice_if_slower() + if more_workers_help { MORE_WORKERS } else { "" },
            more_workers_help,
            roll_back_to,
            times,
        })
    }

    /// The problem, where no request suffers from it yet.
    pub(super) fn problem(self, view: &VersionView<'_>) -> ServerProblem {
        let tone = if self.times >= MUCH { ProblemTone::Warn } else { ProblemTone::Note };
        let what = format!("{}: {}", view.name, self.clause);
        let problem = view.problem(tone, "slower", what, &self.advice);
        let Self { more_workers_help, roll_back_to, .. } = self;
        ServerProblem { more_workers_help, roll_back_to, ..problem }
    }
}

/// Compared with its own past, or with another version's where it has none.
fn slowdown(view: &VersionView<'_>) -> Option<Slowdown> {
    let times = &view.history.record(&view.key)?.times;
    let other = |sibling: &ModelOverview| {
        let theirs = &view.history.record(&sibling.key())?.times;
        times.slower_than(theirs, &sibling.version)
    };
    times.slower(view.time).or_else(|| view.siblings().find_map(other))
}

/// The part that a version waits for, and what is wrong with it.
fn slow_part(view: &VersionView<'_>, own: &Slowdown) -> Option<(String, String)> {
    view.model.depends_on.iter().find_map(|link| {
        let called = view.document.models.iter().find(|it| {
            it.name == link.model
                && link.version.as_ref().map_or(it.is_default, |v| *v == it.version)
        })?;
        let part = view.of(called);
        let slower = slowdown(&part).map(|slowdown| {
            format!("its part {} has become slower: there {}", part.name, words(&slowdown))
        });
        let clause = slower.or_else(|| {
            let waited = waited_ms(&part).filter(|waited| *waited > PART_SHARE * own.now_ms)?;
            Some(format!("requests wait {} in the queue of its part {}", millis(waited), part.name))
        });
        Some((part.name, clause?))
    })
}

/// How long requests wait in a version's queue now.
fn waited_ms(view: &VersionView<'_>) -> Option<f64> {
    let from = view.time.saturating_sub(PART_MS);
    let now = TrafficBetween::read(view.samples(), &view.key, from, view.time)?;
    (now.answered > 0.0).then(|| 1e3 * now.queue_seconds / now.answered)
}

fn words(slowdown: &Slowdown) -> String {
    let Slowdown { size, now_ms, then_size, then_ms, then } = slowdown;
    let sizes = |size: u32| if size > 4 { format!("up to {size}") } else { size.to_string() };
    let (now, then_ms) = (millis(*now_ms), millis(*then_ms));
    let others = match then_size == size {
        true => String::new(),
        false => format!("those of {} ", sizes(*then_size)),
    };
    let then = match then {
        Then::Ago(ago) => format!("{others}{then_ms} {} ago", duration(*ago as f64 / 1e3)),
        Then::DayAgo => format!("{others}{then_ms} a day ago"),
        Then::Version(version) => format!("{others}{then_ms} in version {version}"),
    };
    format!("batches of {} take {now}, {then}", sizes(*size))
}
