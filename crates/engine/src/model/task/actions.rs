//! What the batcher decided, done: batches handed to workers, rejections and failures told, the timer
//! set. The deeds are in the order of the actions, and none of them waits.

use std::time::Duration;

use jitney_batcher::{Action, Actions, Dispatch, Event, Rejection, RequestId};
use tokio::time::Instant;

use super::Task;
use crate::error::CallError;
use crate::model::measures::add;
use crate::model::scatter;
use crate::model::slots::worker_of;
use crate::model::table::EndedRequest;
use crate::pool::WorkerBatch;

impl Task {
    /// Feeds one event to the batcher, does what it says, and lets sequences go on.
    pub(super) fn step(&mut self, event: Event) {
        self.feed(event);
        self.take_turns();
    }

    /// Feeds one event to the batcher and does what it says.
    pub(super) fn feed(&mut self, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        self.batcher.step(self.clock.now(), event, &mut actions);
        for action in actions.iter() {
            match action {
                Action::Dispatch(dispatch) => self.dispatch(dispatch, &actions),
                Action::Reject { id, reason, retry_after } => {
                    self.reject(*id, *reason, retry_after.map(Duration::from_nanos));
                }
                Action::Fail { id, .. } => {
                    let EndedRequest { request, failure, .. } = self.end(*id);
                    let error = failure.unwrap_or(CallError::WorkerExited { killed: false });
                    if let Some(request) = request {
                        scatter::end(request, Err(error), &self.published);
                    }
                }
                Action::SetTimer(at) => self.timer = Some(self.clock.instant(*at)),
                Action::ClearTimer => self.timer = None,
            }
        }
        self.actions = actions;
    }

    fn dispatch(&mut self, dispatch: &Dispatch, actions: &Actions) {
        let ids = actions.members(&dispatch.members);
        let requests: Vec<_> = ids.iter().filter_map(|id| self.table.take(*id)).collect();
        assert_eq!(ids.len(), requests.len(), "a request that is dispatched is in the table");
        let items_max = self.batcher.config().max_items;
        self.published.dispatched(dispatch, items_max);
        if dispatch.attempt > 1 {
            let retried = requests.iter().map(|request| request.reply.counts()).sum();
            add(&self.published.retried, retried);
        }
        let dispatched = Instant::now();
        let batch = WorkerBatch {
            id: dispatch.batch,
            requests,
            items: dispatch.items,
            items_max,
            attempt: dispatch.attempt,
            reason: dispatch.reason,
            dispatched,
            predicted: dispatch.predicted.map(Duration::from_nanos),
            handoff: Some(self.rung.map_or(Duration::ZERO, |rung| dispatched - rung)),
            padding: dispatch.padding,
        };
        if let Err(batch) = self.pool.hand(worker_of(dispatch.worker), batch) {
            // The worker has just exited and its supervisor's event is on the way; the batcher is
            // told then and finds the requests in the table.
            self.table.put_back(batch, Some(&CallError::WorkerExited { killed: false }));
        }
    }

    fn reject(&mut self, id: RequestId, reason: Rejection, retry_after: Option<Duration>) {
        // Its worker is gone: it waits again for its turn, with another worker.
        if reason == Rejection::NoWorker {
            if let EndedRequest { request: Some(request), turn: Some(turn), .. } =
                self.table.end(id)
            {
                self.turns.put_back(request, turn);
            }
            return;
        }
        let Some(request) = self.end(id).request else { return };
        if reason != Rejection::Cancelled {
            let error = CallError::Rejected { reason, retry_after };
            scatter::end(request, Err(error), &self.published);
        } else if !request.reply.is_part() {
            add(&self.published.abandoned, 1);
        }
    }

    /// Takes a request that has ended out of the table; its sequence, if it has one, goes on.
    pub(super) fn end(&mut self, id: RequestId) -> EndedRequest {
        let ended = self.table.end(id);
        self.turns.answered(ended.turn);
        ended
    }
}
