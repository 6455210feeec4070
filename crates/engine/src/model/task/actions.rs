//! What the batcher decided, done: batches handed to seats, refusals and failures told, the timer set.
//!
//! Apart from the rest of the task because it is the only place where an action becomes a deed; the
//! deeds are in the order of the actions, and none of them waits.

use std::time::Duration;

use jitney_batcher::{
    Action, Actions, BatchFailure, Dispatch, Event, MemberRange, Rejection, RequestId,
};
use tokio::time::Instant;

use super::Task;
use super::places::worker_of;
use crate::call::PendingRequest;
use crate::error::CallError;
use crate::model::board::add;
use crate::model::scatter;
use crate::model::table::Ended;
use crate::pool::Batch;

impl Task {
    /// Feeds one event to the batcher and does what it says.
    pub(super) fn feed(&mut self, event: Event) {
        let now = self.nanos(Instant::now());
        let mut actions = std::mem::take(&mut self.state.actions);
        actions.clear();
        self.state.batcher.step(now, event, &mut actions);
        for action in actions.iter() {
            self.act(action, &actions);
        }
        self.state.actions = actions;
    }

    fn act(&mut self, action: &Action, actions: &Actions) {
        match action {
            Action::Dispatch(dispatch) => self.dispatch(dispatch, actions),
            Action::Reject { id, reason: Rejection::Cancelled, .. } => {
                let left = self.end(*id).request;
                if left.is_some_and(|request| !request.reply.is_part()) {
                    add(&self.board.abandoned, 1);
                }
            }
            Action::Reject { id, reason: Rejection::NoWorker, .. } => self.turn_back(*id),
            Action::Reject { id, reason, retry_after } => {
                let retry_after = retry_after.map(Duration::from_nanos);
                self.refuse(*id, CallError::Rejected { reason: *reason, retry_after });
            }
            Action::Fail { id, kind } => self.fail(*id, *kind),
            Action::SetTimer(at) => {
                self.state.timer = Some(self.state.origin + Duration::from_nanos(*at));
            }
            Action::ClearTimer => self.state.timer = None,
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch, actions: &Actions) {
        let Dispatch { worker, batch, members, items, attempt, reason, predicted, padding, .. } =
            dispatch;
        let (ids, requests) = self.gather(members, actions);
        self.board.departed(*reason);
        self.board.padded(*padding);
        self.board.meters.departed(*items, self.state.batcher.config().max_items);
        add(&self.board.batches, 1);
        add(&self.board.items, u64::from(*items));
        if *attempt > 1 {
            add(&self.board.retried, requests.iter().map(|request| request.reply.counts()).sum());
        }
        let departed = Instant::now();
        let batch = Batch {
            id: *batch,
            ids,
            requests,
            items: *items,
            items_max: self.state.batcher.config().max_items,
            attempt: *attempt,
            reason: *reason,
            departed,
            predicted: predicted.map(Duration::from_nanos),
            handoff: Some(self.state.rung.map_or(Duration::ZERO, |rung| departed - rung)),
            padding: *padding,
        };
        if let Err(batch) = self.state.pool.hand(worker_of(*worker), batch) {
            // The worker has just died and its seat's word is on the way; the batcher will hear of
            // it then and finds the requests in their places.
            self.come_back(batch, Some(CallError::WorkerExited { killed: false }));
        }
    }

    fn gather(
        &mut self,
        members: &MemberRange,
        actions: &Actions,
    ) -> (Vec<RequestId>, Vec<PendingRequest>) {
        let ids = actions.members(members).to_vec();
        let requests: Vec<_> = ids.iter().filter_map(|id| self.state.table.depart(*id)).collect();
        assert_eq!(ids.len(), requests.len(), "a departing request is in its place");
        (ids, requests)
    }

    /// Puts the requests of a batch back into their places.
    pub(super) fn come_back(&mut self, batch: Batch, failure: Option<CallError>) {
        for (id, request) in batch.ids.into_iter().zip(batch.requests) {
            self.state.table.come_back(id, request, failure.clone());
        }
    }

    pub(super) fn refuse(&mut self, id: RequestId, error: CallError) {
        if let Some(request) = self.end(id).request {
            scatter::end(request, Err(error), &self.board);
        }
    }

    fn fail(&mut self, id: RequestId, kind: BatchFailure) {
        let Ended { request, failure, .. } = self.end(id);
        let error = failure.unwrap_or(match kind {
            BatchFailure::Handler | BatchFailure::Crashed | BatchFailure::TimedOut => {
                CallError::WorkerExited { killed: false }
            }
        });
        if let Some(request) = request {
            scatter::end(request, Err(error), &self.board);
        }
    }
}
