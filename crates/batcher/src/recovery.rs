//! What becomes of the members when a batch fails or its worker goes away.
//!
//! Every member of such a batch passes through here and ends or waits again. The rules of isolation
//! are in `retry`.

use crate::action::Actions;
use crate::event::BatchFailure;
use crate::records::RequestList;
use crate::retry::{self, RetryGroup};
use crate::running::ActiveBatch;
use crate::state::BatcherState;

/// Retries members of failed batches within a budget: each retry takes one, each first attempt earns
/// one per member.
#[derive(Debug, Default)]
pub(crate) struct BatchRecovery {
    /// Spent when a group is formed, even if it is never dispatched. It counts what is spent and not
    /// what is left, so that a new limit applies at once.
    spent: u32,
}

impl BatchRecovery {
    /// The first attempt of a batch with this many members is over.
    pub(crate) fn earn(&mut self, members: u32) {
        self.spent = self.spent.saturating_sub(members);
    }

    /// The members of a batch that is not to blame wait again as before.
    pub(crate) fn put_back(
        &self,
        state: &mut BatcherState,
        mut batch: ActiveBatch,
        out: &mut Actions,
    ) {
        if batch.attempt > 1 {
            let ActiveBatch { members, attempt, worker, .. } = batch;
            return self.regroup(state, RetryGroup { members, attempt, avoid: worker }, out);
        }
        // From the tail, so that each joins at the head of its queue.
        while let Some(at) = state.records.pop_tail(&mut batch.members) {
            if state.readmit(at, out) {
                state.wait(at);
            }
        }
    }

    /// The members of a failed batch are tried again in smaller groups, or end.
    pub(crate) fn isolate(
        &mut self,
        state: &mut BatcherState,
        batch: ActiveBatch,
        kind: BatchFailure,
        out: &mut Actions,
    ) {
        let ActiveBatch { members, worker: avoid, attempt, .. } = batch;
        if attempt == 1 {
            self.earn(members.len);
        }
        let attempt = attempt.saturating_add(1);
        let mut survivors = survivors(state, members, kind, out);
        let len = retry::group_len(kind, survivors.len);
        while survivors.len > 0 {
            let mut members = state.records.split(&mut survivors, len);
            // A worker's crash must lose nothing: its batch is tried again even without a budget.
            let left = self.spent < state.rules.config.retry_budget;
            if kind == BatchFailure::Crashed || left {
                self.spent += u32::from(kind != BatchFailure::Crashed);
                enqueue(state, RetryGroup { members, attempt, avoid });
                continue;
            }
            while let Some(at) = state.records.pop(&mut members) {
                state.fail(at, kind, out);
            }
        }
    }

    /// The members of a retry group that still may wait do so.
    pub(crate) fn regroup(
        &self,
        state: &mut BatcherState,
        mut group: RetryGroup,
        out: &mut Actions,
    ) {
        let mut members = RequestList::EMPTY;
        while let Some(at) = state.records.pop(&mut group.members) {
            if state.readmit(at, out) {
                state.records.push(&mut members, at);
            }
        }
        enqueue(state, RetryGroup { members, ..group });
    }
}

/// Ends the members that are not tried again.
fn survivors(
    state: &mut BatcherState,
    mut members: RequestList,
    kind: BatchFailure,
    out: &mut Actions,
) -> RequestList {
    let len = members.len;
    let mut survivors = RequestList::EMPTY;
    while let Some(at) = state.records.pop(&mut members) {
        let record = &mut state.records[at];
        record.crashes += u8::from(kind == BatchFailure::Crashed);
        let again = state.rules.config.isolate && retry::again(record, kind, len);
        // A cancelled request is rejected, not failed, even where it would not run again.
        if !again && !record.cancelled {
            state.fail(at, kind, out);
        } else if state.readmit(at, out) {
            state.records.push(&mut survivors, at);
        }
    }
    survivors
}

/// Lets a group wait, in parts if its members may not share a batch any more.
fn enqueue(state: &mut BatcherState, mut group: RetryGroup) {
    if may_share(state, &group.members) {
        return state.retries.push(&mut state.records, group);
    }
    let half = group.members.len.div_ceil(2);
    let members = state.records.split(&mut group.members, half);
    enqueue(state, RetryGroup { members, ..group });
    enqueue(state, group);
}

/// Whether the present configuration allows this batch.
fn may_share(state: &BatcherState, members: &RequestList) -> bool {
    let config = &state.rules.config;
    let mut kinds = state.records.walk(members).map(|record| record.request.origin.kind);
    let first = kinds.next();
    let alike = config.mix_origins || kinds.all(|kind| Some(kind) == first);
    alike && config.holds(members.items, members.cost)
}
