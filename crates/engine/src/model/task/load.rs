//! The workers of a model follow its load, between the bounds that the operator set; and how long it takes until the
//! first one serves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Task;
use crate::error::{CallError, LoadingWait, WaitLimit};
use crate::model::capacity::{CapacityLook, LiveCapacity};
use crate::model::scheduler::SlotChange;
use crate::pending::PendingRequest;

/// Who was told when a worker is expected comes back within twice that time, and so much. Chosen: clients round up.
const COMES_BACK: Duration = Duration::from_secs(5);

impl Task {
    /// The operator wants at least and at most so many workers. A sequence has its state in its worker, so the workers
    /// of a model that keeps sequences stay.
    pub(super) fn bound_workers(&mut self, min: u32, max: u32) {
        let bounds = if self.sequences.enabled() { (min, min) } else { (min, max) };
        if bounds.0 < bounds.1 || self.capacity.is_some() {
            let (now, count) = (self.scheduler.clock.now(), self.pool.count());
            let capacity = || LiveCapacity::new(self.pool.plan.idle);
            self.capacity.get_or_insert_with(capacity).set_bounds(now, bounds, count);
        }
        self.published.capacity.store(None);
    }

    /// Whether the first request starts a worker.
    pub(super) fn starts_from_zero(&self) -> bool {
        self.capacity.as_ref().is_some_and(LiveCapacity::starts_from_zero)
    }

    /// Whether nobody waits for an answer of a model that the next request would load again.
    pub(super) fn is_idle(&self) -> bool {
        let nobody = self.table.is_empty() && self.inbox.is_empty() && self.beside == 0;
        nobody && self.starts_from_zero() && self.closing.is_none()
    }

    /// Ends all workers until the next request.
    pub(super) fn end_workers(&mut self) {
        for worker in self.pool.resize(0, 0) {
            self.tell_slots(worker, SlotChange::Retired);
        }
        if let Some(capacity) = &mut self.capacity {
            capacity.emptied(self.scheduler.clock.now());
        }
        self.pool_changed();
    }

    /// Starts and ends workers as the load asks for.
    pub(super) fn follow_load(&mut self) {
        let Some(capacity) = &mut self.capacity else { return };
        let first = self.pool.ready().first().copied().unwrap_or_default();
        let look = CapacityLook {
            batcher: &self.scheduler.batcher,
            arrived: self.published.requests.load(Ordering::Relaxed),
            waiting: self.scheduler.batcher.waiting(),
            worker: self.pool.capacity(first),
            load: self.startup.last_load,
            failing: self.pool.failure().is_some(),
        };
        let report = capacity.look(self.scheduler.clock.now(), &look);
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

    /// What a request is told that waited for a worker until its limit.
    pub(super) fn loading_wait(&self, limit: WaitLimit) -> LoadingWait {
        let ready_at = self.startup.ready_at(self.pool.loads_from());
        let ready_in = ready_at.map(|at| at.saturating_duration_since(Instant::now()));
        LoadingWait { wanted: self.pool.wanted(), limit, ready_in, at_once: false }
    }

    /// Rejects those that have waited long enough for the first worker.
    pub(super) fn end_long_waits(&mut self) {
        let Some(until) = self.startup.overdue() else { return };
        let limit = WaitLimit::StartupWait(self.startup.limit);
        let error = CallError::Loading(self.loading_wait(limit));
        self.reject_waiting(&error, until);
        let oldest =
            self.table.waiting().map(|request| request.admitted).chain(self.sequences.oldest());
        self.startup.look_again(oldest.min());
    }

    /// The limit that its deadline is.
    pub(super) fn deadline_of(&self, request: &PendingRequest) -> WaitLimit {
        let deadline = self.scheduler.clock.instant(request.facts.deadline);
        WaitLimit::Deadline(deadline.saturating_duration_since(request.admitted))
    }

    /// Why a request need not wait for the first worker: that is expected too late for it, by a load that was measured
    /// and what a batch takes, where that is known. The load goes on for those who come back.
    pub(super) fn too_long_wait(&self, request: &PendingRequest) -> Option<LoadingWait> {
        let deadline = request.facts.deadline;
        if deadline == u64::MAX {
            return None;
        }
        let now = Instant::now();
        let ready_at = self.startup.ready_at(self.pool.loads_from());
        let ready_at = ready_at.filter(|_| self.closing.is_none())?;
        let curve = self.scheduler.batcher.findings().curve();
        let of_group = curve.filter(|it| it.group == request.facts.group);
        let batch = of_group.map(|it| it.mean).min().unwrap_or_default();
        if deadline >= self.scheduler.clock.nanos(ready_at.max(now)).saturating_add(batch) {
            return None;
        }
        let wait = self.loading_wait(self.deadline_of(request));
        let ready_in = wait.ready_in.unwrap_or_default();
        self.published.comes_back.store(Some(Arc::new(now + 2 * ready_in + COMES_BACK)));
        Some(LoadingWait { at_once: true, ..wait })
    }
}
