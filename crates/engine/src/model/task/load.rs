//! The workers of a model follow its load, between the bounds that the operator set.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Task;
use crate::model::capacity::CapacityLook;
use crate::model::scheduler::SlotChange;

impl Task {
    /// The operator wants at least and at most so many workers. A sequence has its state in its worker, so the workers
    /// of a model that keeps sequences stay.
    pub(super) fn bound_workers(&mut self, min: u32, max: u32) {
        let bounds = if self.sequences.enabled() { (min, min) } else { (min, max) };
        let count = self.pool.count();
        self.capacity.set_bounds(self.scheduler.clock.now(), bounds, count);
        self.published.capacity.store(None);
    }

    /// Whether nobody waits for an answer of a model that the next request would load again.
    pub(super) fn is_idle(&self) -> bool {
        let nobody = self.table.is_empty() && self.inbox.is_empty() && self.beside == 0;
        nobody && self.capacity.starts_from_zero() && self.closing.is_none()
    }

    /// Ends all workers until the next request.
    pub(super) fn end_workers(&mut self) {
        for worker in self.pool.resize(0, 0) {
            self.tell_slots(worker, SlotChange::Retired);
        }
        self.capacity.emptied(self.scheduler.clock.now());
        self.pool_changed();
    }

    /// Starts and ends workers as the load asks for.
    pub(super) fn follow_load(&mut self) {
        let first = self.pool.ready().first().copied().unwrap_or_default();
        let look = CapacityLook {
            batcher: &self.scheduler.batcher,
            arrived: self.published.requests.load(Ordering::Relaxed),
            waiting: self.scheduler.batcher.waiting(),
            worker: self.pool.capacity(first),
            failing: self.pool.failure().is_some(),
        };
        let report = self.capacity.look(self.scheduler.clock.now(), &look);
        let Some(report) = report.filter(|_| self.closing.is_none()) else { return };
        let before = self.pool.count();
        let report = report.within(before, || self.pool.room());
        let workers = report.workers();
        if workers != before {
            self.reporter.scaled(&report);
            for worker in self.pool.resize(workers, workers) {
                self.tell_slots(worker, SlotChange::Retired);
            }
            self.pool_changed();
        }
        self.published.capacity.store(Some(Arc::new(report)));
    }
}
