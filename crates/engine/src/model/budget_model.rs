//! A model as the budget of memory sees it: how it takes part, what its processes hold and share, and how it stands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jitney_batcher::{AskedRate, MemoryState, Nanos, worth};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::messages::ControlMessage;
use super::state::ModelState;
use crate::process::MeasuredMemory;

/// How a model takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetTerms {
    /// It is loaded when somebody asks for it, and leaves for others.
    pub(crate) on_demand: bool,
    /// Once loaded it does not leave.
    pub(crate) keep: bool,
    /// Bytes of its files.
    pub(crate) files: u64,
    /// Whether its processes run Python.
    pub(crate) python: bool,
    /// How long a start may take without a word.
    pub(crate) startup_timeout: Duration,
}

#[derive(Debug)]
pub(super) struct BudgetModel {
    pub(super) terms: BudgetTerms,
    pub(super) published: Arc<ModelState>,
    pub(super) control: mpsc::Sender<ControlMessage>,
    /// Requests that were counted.
    pub(super) seen: u64,
    pub(super) asked: AskedRate,
    pub(super) workers: BTreeMap<u32, HeldWorker>,
    /// The most that its last worker held.
    pub(super) size: Option<MeasuredMemory>,
    pub(super) load: Duration,
    pub(super) loaded: Nanos,
    pub(super) leaving: bool,
}

/// A process of a model, by what it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldWorker {
    pub(super) memory: MeasuredMemory,
    /// None where it is no process of this machine, or while it loads.
    pub(super) pid: Option<u32>,
    pub(super) loads: bool,
}

impl BudgetModel {
    pub(super) fn bytes(&self) -> u64 {
        self.workers.values().map(|worker| worker.memory.share).sum()
    }

    /// What it holds, and what of it is its own, where what loads share counts once.
    pub(super) fn counted(&self, loads: &mut LoadCount<'_>) -> (u64, u64) {
        let mut count = |worker: &HeldWorker| match worker.loads {
            true => [loads.bytes(self.terms.python, worker.memory.share); 2],
            false => [worker.memory.share, worker.memory.own],
        };
        let counts = self.workers.values().map(&mut count);
        counts.fold((0, 0), |(bytes, own), [more, more_own]| (bytes + more, own + more_own))
    }

    /// Whether somebody waits for an answer of it.
    fn is_asked(&self) -> bool {
        let counters = self.published.counters();
        let ended = counters.answered + counters.rejected + counters.failed + counters.abandoned;
        counters.requests > ended
    }

    /// Whether those who made it load have gone and will not come back, and nobody else wants a worker.
    pub(super) fn is_forgotten(&self) -> bool {
        let ModelState { from_zero, ready, comes_back, .. } = &*self.published;
        let expected = || comes_back.load().as_deref().is_some_and(|until| *until > Instant::now());
        let unasked = from_zero.load(Relaxed) && ready.load(Relaxed) == 0 && !self.is_asked();
        unasked && !expected()
    }

    pub(super) fn held(&self, now: Nanos) -> MemoryState {
        if !self.terms.on_demand {
            return MemoryState::Stays;
        }
        if self.workers.values().any(|worker| worker.loads) {
            return MemoryState::Loading { measured: self.size.is_some() };
        }
        if self.leaving {
            return MemoryState::Leaving;
        }
        if self.terms.keep {
            return MemoryState::Stays;
        }
        if self.is_asked() {
            return MemoryState::Busy;
        }
        let load = self.load.as_nanos() as Nanos;
        let worth = worth(self.asked.rate(now), load, self.bytes());
        MemoryState::unasked(now, self.loaded, load, worth)
    }
}

/// What processes of one kind share, whatever their model is: the program, Python, its libraries. Bytes by kind: without
/// Python, and with it.
///
/// A process that is started while another of its kind is there finds these pages in memory. So they count once for
/// every kind, and not with each of the loads that go on at the same time.
#[derive(Debug, Default)]
pub(super) struct SharedPages([u64; 2]);

impl SharedPages {
    /// These are there: whether each runs Python, and what it shares beside its model's files. With one of a kind
    /// alone nothing is learned: it shares with nobody.
    pub(super) fn learn(&mut self, processes: impl Iterator<Item = (bool, u64)>) {
        let (mut least, mut count) = ([u64::MAX; 2], [0; 2]);
        for (python, shared) in processes {
            let kind = usize::from(python);
            (least[kind], count[kind]) = (least[kind].min(shared), count[kind] + 1);
        }
        for kind in (0..2).filter(|kind| count[*kind] > 1) {
            self.0[kind] = least[kind];
        }
    }

    /// Counts loads where processes of these kinds have loaded.
    pub(super) fn count(&self, loaded: [bool; 2]) -> LoadCount<'_> {
        LoadCount { pages: self, there: loaded }
    }
}

/// Counts loads, one after another.
pub(super) struct LoadCount<'a> {
    pages: &'a SharedPages,
    there: [bool; 2],
}

impl LoadCount<'_> {
    /// What a load takes of which this is all: the first one of a kind brings what the others find.
    pub(super) fn bytes(&mut self, python: bool, all: u64) -> u64 {
        let kind = usize::from(python);
        match std::mem::replace(&mut self.there[kind], true) {
            true => all.saturating_sub(self.pages.0[kind]),
            false => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kind_shares_counts_with_the_first_of_its_loads() {
        let mut pages = SharedPages::default();
        pages.learn([(true, 10), (true, 8), (false, 5)].into_iter());
        let mut loads = pages.count([false; 2]);
        assert_eq!(
            [loads.bytes(true, 25), loads.bytes(true, 25), loads.bytes(true, 6)],
            [25, 17, 0]
        );
        assert_eq!(
            [loads.bytes(false, 9), loads.bytes(false, 9)],
            [9, 9],
            "one alone tells nothing"
        );
        assert_eq!(pages.count([false, true]).bytes(true, 25), 17, "one has loaded");
        pages.learn([(true, 3)].into_iter());
        assert_eq!(
            pages.count([true; 2]).bytes(true, 25),
            17,
            "the last one alone changes nothing"
        );
    }
}
