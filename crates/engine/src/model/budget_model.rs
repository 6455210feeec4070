//! A model as the budget of memory sees it: how it takes part, what its processes hold, and how it stands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jitney_batcher::{AskedRate, MemoryState, Nanos, worth};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::messages::ControlMessage;
use super::shared_pages::LoadCount;
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
