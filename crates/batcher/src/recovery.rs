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
        if batch.attempt.number > 1 {
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
        if attempt.number == 1 {
            self.earn(members.len);
        }
        let attempt = attempt.next(kind, state.rules.now, state.rules.config.suspect_time);
        let mut survivors = survivors(state, members, kind, out);
        let len = retry::group_len(kind, survivors.len);
        while survivors.len > 0 {
            let mut members = state.records.split(&mut survivors, len);
            // A worker's crash must lose nothing: its batch is tried again even without a budget.
            let left = self.spent < state.rules.config.retry_budget;
            if kind == BatchFailure::Crashed || left {
                self.spent += u32::from(kind != BatchFailure::Crashed);
                wait_again(state, RetryGroup { members, attempt, avoid }, out);
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
        wait_again(state, RetryGroup { members, ..group }, out);
    }
}

/// Lets a group wait, unless its time is over.
fn wait_again(state: &mut BatcherState, group: RetryGroup, out: &mut Actions) {
    let until = group.attempt.until;
    state.retries.push(&mut state.records, group);
    if until <= state.rules.now {
        state.expire(out);
    }
}

/// Takes as many from the head of a group as share a batch: those that ran together may not any more, and
/// suspects may come from several batches.
pub(crate) fn next_batch(state: &mut BatcherState, members: &mut RequestList) -> RequestList {
    let mut batch = RequestList::EMPTY;
    while let Some(at) = members.head()
        && may_join(state, &batch, at)
    {
        state.records.remove(members, at);
        state.records.push(&mut batch, at);
    }
    batch
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

/// Whether the present configuration allows this request in the batch; the first one always.
fn may_join(state: &BatcherState, batch: &RequestList, at: u32) -> bool {
    let (config, request) = (&state.rules.config, &state.records[at].request);
    batch.head().is_none_or(|first| {
        let first = &state.records[first].request;
        let alike = config.mix_origins || first.origin.kind == request.origin.kind;
        let items = batch.items + u64::from(request.items);
        let cost = batch.cost + u128::from(request.cost);
        alike && first.group == request.group && config.holds(items, cost)
    })
}
