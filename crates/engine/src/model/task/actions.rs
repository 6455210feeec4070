//! What the batcher decided, done: batches handed to seats, refusals and failures told, the timer set.
//!
//! Apart from the rest of the task because it is the only place where an action becomes a deed; the
//! deeds are in the order of the actions, and none of them waits.

use std::time::Duration;

use jitney_batcher::{Action, Actions, Dispatch, Event, BatchFailure, MemberRange, Rejection, RequestId};
use tokio::time::Instant;

use super::Task;
use super::places::worker_of;
use crate::call::Rider;
use crate::error::CallError;
use crate::model::board::add;
use crate::model::roster::Ended;
use crate::model::scatter;
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
                let left = self.end(*id).rider;
                if left.is_some_and(|rider| !rider.reply.is_portion()) {
                    add(&self.board.abandoned, 1);
                }
            }
            Action::Reject { id, reason: Rejection::NoWorker, .. } => self.turn_back(*id),
            Action::Reject { id, reason, retry_after } => {
                let retry_after = retry_after.map(Duration::from_nanos);
                self.refuse(*id, CallError::Refused { reason: *reason, retry_after });
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
        let (ids, riders) = self.gather(members, actions);
        self.board.departed(*reason);
        self.board.padded(*padding);
        self.board.meters.departed(*items, self.state.batcher.config().max_items);
        add(&self.board.batches, 1);
        add(&self.board.items, u64::from(*items));
        if *attempt > 1 {
            add(&self.board.retried, riders.iter().map(|rider| rider.reply.counts()).sum());
        }
        let departed = Instant::now();
        let batch = Batch {
            id: *batch,
            ids,
            riders,
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
            // it then and finds the riders in their places.
            self.come_back(batch, Some(CallError::WorkerDied { killed: false }));
        }
    }

    fn gather(&mut self, members: &MemberRange, actions: &Actions) -> (Vec<RequestId>, Vec<Rider>) {
        let ids = actions.members(members).to_vec();
        let riders: Vec<_> = ids.iter().filter_map(|id| self.state.roster.depart(*id)).collect();
        assert_eq!(ids.len(), riders.len(), "a departing request is in its place");
        (ids, riders)
    }

    /// Puts the riders of a batch back into their places.
    pub(super) fn come_back(&mut self, batch: Batch, failure: Option<CallError>) {
        for (id, rider) in batch.ids.into_iter().zip(batch.riders) {
            self.state.roster.come_back(id, rider, failure.clone());
        }
    }

    pub(super) fn refuse(&mut self, id: RequestId, error: CallError) {
        if let Some(rider) = self.end(id).rider {
            scatter::end(rider, Err(error), &self.board);
        }
    }

    fn fail(&mut self, id: RequestId, kind: BatchFailure) {
        let Ended { rider, failure, .. } = self.end(id);
        let error = failure.unwrap_or(match kind {
            BatchFailure::Handler | BatchFailure::Crashed | BatchFailure::TimedOut => {
                CallError::WorkerDied { killed: false }
            }
        });
        if let Some(rider) = rider {
            scatter::end(rider, Err(error), &self.board);
        }
    }
}
