//! From what the list says and what became of it so far to what is to be done: a pure function of the time.
//!
//! It compares the list with what was asked for before, not with what runs: what somebody changed by hand
//! holds until the list changes it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use jitney_settings::model::{MAX_WORKERS, POLICY, SETTINGS, TRAFFIC, WORKERS};
use jitney_settings::{Setting, Values};
use tokio::time::Instant;

use crate::plan::Startup;

/// The pause after the first failure; it doubles from one to the next.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What became of one model of the list. A model has one for each version that is listed.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// What runs, as it was asked for.
    pub applied: Option<Startup>,
    /// What is being loaded, or changed.
    pub loading: Option<Startup>,
    /// What could not be loaded.
    pub failed: Option<FailedLoad>,
}

/// A model that could not be loaded.
#[derive(Clone, Debug)]
pub struct FailedLoad {
    /// What was asked for.
    pub wanted: Startup,
    /// Why not.
    pub reason: String,
    /// Times that it was tried.
    pub attempts: u32,
    /// When it is tried again.
    pub again_at: Instant,
}

/// What is to be done. Numbers count in the list, and in what became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum ReconcileStep {
    /// Load it, in the place of the other one if there is one.
    Load { wanted: usize, held: Option<usize> },
    /// Change settings of the running one.
    Change { wanted: usize, held: usize, settings: Values },
    /// It runs as it should; what failed or is being loaded since is wanted no more.
    Keep { held: usize },
    /// It is not on the list any more.
    Remove { held: usize },
}

impl Listing {
    /// What was asked for last.
    fn latest(&self) -> Option<&Startup> {
        let failed = self.failed.as_ref().map(|failed| &failed.wanted);
        self.loading.as_ref().or(failed).or(self.applied.as_ref())
    }

    /// Notes that what was being loaded could not be.
    pub fn fail(&mut self, now: Instant, wanted: Startup, reason: String) -> Duration {
        let before = self.failed.take().filter(|failed| is_same(&failed.wanted, &wanted));
        let attempts = before.map_or(0, |failed| failed.attempts) + 1;
        let pause = PAUSE * 2_u32.saturating_pow(attempts.min(8) - 1);
        let pause = pause.min(PAUSE_MAX);
        self.loading = None;
        self.failed = Some(FailedLoad { wanted, reason, attempts, again_at: now + pause });
        pause
    }
}

/// What has to be done so that what runs is what the list says.
pub fn reconcile(now: Instant, wanted: &[Startup], held: &[Listing]) -> Vec<ReconcileStep> {
    let pairs = pairs(wanted, held);
    let mut steps = Vec::new();
    for (place, entry) in wanted.iter().enumerate() {
        let step = match pairs[place] {
            None => Some(ReconcileStep::Load { wanted: place, held: None }),
            Some(other) => step(now, place, entry, other, &held[other]),
        };
        steps.extend(step);
    }
    let kept: HashSet<usize> = pairs.into_iter().flatten().collect();
    let gone = (0..held.len()).filter(|other| !kept.contains(other));
    steps.extend(gone.map(|held| ReconcileStep::Remove { held }));
    steps
}

/// When something that failed is to be tried again, at the earliest.
pub fn next_attempt(held: &[Listing]) -> Option<Instant> {
    let failed = held.iter().filter(|listing| listing.loading.is_none());
    failed.filter_map(|listing| Some(listing.failed.as_ref()?.again_at)).min()
}

/// The version of a name that answers by default: the first that is listed. Those that were the first already
/// are left out.
pub fn new_leaders<'a>(wanted: &'a [Startup], before: &[Startup]) -> Vec<&'a Startup> {
    let first = |list: &'a [Startup], at: usize| {
        list.iter().position(|other| other.name == list[at].name) == Some(at)
    };
    let leaders = (0..wanted.len()).filter(|at| first(wanted, *at)).map(|at| &wanted[at]);
    let led = |leader: &&Startup| {
        let old = before.iter().find(|other| other.name == leader.name);
        old.is_some_and(|old| old.version == leader.version)
    };
    leaders.filter(|leader| !led(leader)).collect()
}

fn step(
    now: Instant,
    place: usize,
    entry: &Startup,
    held: usize,
    listing: &Listing,
) -> Option<ReconcileStep> {
    let load = Some(ReconcileStep::Load { wanted: place, held: Some(held) });
    if listing.loading.as_ref().is_some_and(|loading| is_same(loading, entry)) {
        return None;
    }
    let idle = listing.loading.is_none();
    if let Some(failed) = listing.failed.as_ref().filter(|it| idle && is_same(&it.wanted, entry)) {
        return load.filter(|_| now >= failed.again_at);
    }
    let Some(applied) = &listing.applied else { return load };
    if is_same(applied, entry) {
        let settled = idle && listing.failed.is_none();
        return (!settled).then_some(ReconcileStep::Keep { held });
    }
    if !idle {
        return load;
    }
    match live_change(applied, entry) {
        Some(settings) => Some(ReconcileStep::Change { wanted: place, held, settings }),
        None => load,
    }
}

/// Which of the list is which of those before: of one name the same version, then any that is left, in order.
fn pairs(wanted: &[Startup], held: &[Listing]) -> Vec<Option<usize>> {
    let mut free: HashMap<Option<&str>, Vec<(usize, &Startup)>> = HashMap::new();
    for (at, latest) in held.iter().enumerate().filter_map(|(at, it)| Some((at, it.latest()?))) {
        free.entry(latest.name.as_deref()).or_default().push((at, latest));
    }
    let mut pairs = vec![None; wanted.len()];
    for exact in [true, false] {
        for (entry, pair) in wanted.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let Some(free) = free.get_mut(&entry.name.as_deref()) else { continue };
            let found = free.iter().position(|(_, it)| !exact || it.version == entry.version);
            *pair = found.map(|at| free.remove(at).0);
        }
    }
    pairs
}

/// Whether two entries ask for the same; where they stand in the list does not matter.
fn is_same(one: &Startup, other: &Startup) -> bool {
    is_same_model(one, other) && SETTINGS.iter().all(|it| is_equal(one, other, it))
}

fn is_same_model(one: &Startup, other: &Startup) -> bool {
    let bare = |entry: &Startup| Startup {
        settings: Values::default(),
        parts: BTreeMap::default(),
        ..entry.clone()
    };
    let parts = one.parts.iter().zip(&other.parts);
    let mut same_parts = parts.map(|((name, settings), (other_name, others))| {
        name == other_name && SETTINGS.iter().all(|it| settings.get(it) == others.get(it))
    });
    bare(one) == bare(other) && one.parts.len() == other.parts.len() && same_parts.all(|same| same)
}

fn is_equal(one: &Startup, other: &Startup, setting: &Setting) -> bool {
    one.settings.get(setting) == other.settings.get(setting)
}

/// The settings that change, if the running model can take all of them. One that is set no more goes back to
/// what the archive says, which only loading it again can tell.
fn live_change(applied: &Startup, entry: &Startup) -> Option<Values> {
    if !is_same_model(applied, entry) {
        return None;
    }
    let mut change = Values::default();
    for setting in SETTINGS.iter().filter(|it| !is_equal(applied, entry, it)) {
        let by_itself = [WORKERS.name, MAX_WORKERS.name, TRAFFIC.name].contains(&setting.name);
        if !(setting.live || by_itself) || !entry.settings.has(setting) {
            return None;
        }
        change.prefer(setting, &entry.settings);
    }
    // A latency or a delay would choose a policy of its own.
    change.prefer(&POLICY, &entry.settings);
    Some(change)
}

#[cfg(test)]
mod tests;
