//! What becomes of the members when a batch fails or its worker goes away.
//!
//! Every member of a batch taken off its worker passes through here and ends or waits again; none
//! is dropped on the way. Who gets another chance is asked of `isolation`.

use super::Batcher;
use crate::action::{Actions, Rejection};
use crate::event::{BatchFailure, DownReason};
use crate::isolation::{self, Group};
use crate::records::{List, Record};
use crate::request::{BatchId, WorkerId};
use crate::running::Batch;

impl Batcher {
    // The worker reports a failure and lives on

    pub(super) fn failed(&mut self, id: BatchId, kind: BatchFailure, out: &mut Actions) {
        let Some(batch) = self.running.take(id) else { return };
        self.slots.release(batch.worker, self.rules.now);
        self.isolate(batch, kind, out);
    }

    // The worker is gone

    pub(super) fn worker_down(&mut self, worker: WorkerId, why: DownReason, out: &mut Actions) {
        self.slots.down(worker);
        self.strand(worker, out);
        while let Some(batch) = self.running.take_from(worker) {
            match why {
                DownReason::Crashed => self.isolate(batch, BatchFailure::Crashed, out),
                DownReason::TimedOut => self.isolate(batch, BatchFailure::TimedOut, out),
                DownReason::Removed => self.put_back(batch, out),
            }
        }
    }

    /// Refuses those who wait for a worker that takes nothing more.
    pub(super) fn strand(&mut self, worker: WorkerId, out: &mut Actions) {
        for at in self.lanes.take_pinned(&mut self.records, worker) {
            self.reject(at, Rejection::NoWorker, None, out);
        }
    }

    /// An innocent batch waits again as if it had never left.
    fn put_back(&mut self, mut batch: Batch, out: &mut Actions) {
        if batch.attempt > 1 {
            let Batch { members, attempt, worker, .. } = batch;
            return self.regroup(Group { members, attempt, avoid: worker }, out);
        }
        // From the tail, so that each finds its place at the head of its line.
        while let Some(at) = self.records.pop_tail(&mut batch.members) {
            if self.readmit(at, out) {
                self.wait(at);
            }
        }
    }

    /// Gives the members another chance, apart from each other.
    fn isolate(&mut self, batch: Batch, kind: BatchFailure, out: &mut Actions) {
        let Batch { members, worker: avoid, attempt, .. } = batch;
        if attempt == 1 {
            self.budget.earn(members.len);
        }
        let attempt = attempt.saturating_add(1);
        let mut survivors = self.survivors(members, kind, out);
        let len = isolation::group_len(kind, survivors.len);
        while survivors.len > 0 {
            let members = self.records.split(&mut survivors, len);
            // A dead worker must lose nothing: its batch is tried again even without a budget.
            if kind == BatchFailure::Crashed || self.budget.spend(self.rules.config.retry_budget) {
                self.enqueue(Group { members, attempt, avoid });
            } else {
                self.fail_all(members, kind, out);
            }
        }
    }

    /// Ends those who get no other chance.
    fn survivors(&mut self, mut members: List, kind: BatchFailure, out: &mut Actions) -> List {
        let len = members.len;
        let mut survivors = List::EMPTY;
        while let Some(at) = self.records.pop(&mut members) {
            let record = &mut self.records[at];
            record.crashes += u8::from(kind == BatchFailure::Crashed);
            let again = self.rules.config.isolate && isolation::again(record, kind, len);
            // One that was cancelled is refused, not failed, even where it would not run again.
            if !again && !record.cancelled {
                self.fail(at, kind, out);
            } else if self.readmit(at, out) {
                self.records.push(&mut survivors, at);
            }
        }
        survivors
    }

    fn fail_all(&mut self, mut members: List, kind: BatchFailure, out: &mut Actions) {
        while let Some(at) = self.records.pop(&mut members) {
            self.fail(at, kind, out);
        }
    }

    /// Whether a request that stands nowhere may wait again; if not, it ends.
    pub(super) fn readmit(&mut self, at: u32, out: &mut Actions) -> bool {
        let Record { request, cancelled, .. } = &self.records[at];
        let reason = if *cancelled {
            Rejection::Cancelled
        } else if request.deadline <= self.rules.now {
            Rejection::Expired
        } else if self.rules.config.too_large(request) {
            Rejection::TooLarge
        } else if request.worker.is_some_and(|worker| !self.slots.stays(worker)) {
            Rejection::NoWorker
        } else {
            return true;
        };
        self.reject(at, reason, None, out);
        false
    }

    /// Lets those of a group wait who still may.
    pub(super) fn regroup(&mut self, mut group: Group, out: &mut Actions) {
        let mut members = List::EMPTY;
        while let Some(at) = self.records.pop(&mut group.members) {
            if self.readmit(at, out) {
                self.records.push(&mut members, at);
            }
        }
        self.enqueue(Group { members, ..group });
    }

    /// Lets a group wait, in parts if it would no longer be allowed to travel as one.
    fn enqueue(&mut self, mut group: Group) {
        if self.may_meet(&group.members) {
            let mut at = group.members.head();
            self.retries.push(&mut self.records, group);
            while let Some(member) = at {
                self.deadlines.watch(&mut self.records, member);
                at = self.records.next(member);
            }
            return;
        }
        let half = group.members.len.div_ceil(2);
        let members = self.records.split(&mut group.members, half);
        self.enqueue(Group { members, ..group });
        self.enqueue(group);
    }

    /// Whether the limits and lanes of the present configuration allow this group.
    fn may_meet(&self, members: &List) -> bool {
        let mut kinds = self.records.walk(members).map(|record| record.request.origin.kind);
        let first = kinds.next();
        let alike = self.rules.config.mix_origins || kinds.all(|kind| Some(kind) == first);
        alike && self.rules.config.holds(members.items, members.cost)
    }
}
