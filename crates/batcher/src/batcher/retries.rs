//! Dispatching what is tried again, in turn with fresh requests.
//!
//! The groups are in `retry`; here it is decided when the first of them goes, and on which worker.

use super::Batcher;
use crate::action::{Actions, DispatchReason};
use crate::recovery::next_batch;
use crate::request::WorkerId;
use crate::retry::RetryGroup;

impl Batcher {
    /// Between two groups of suspects fresh requests have their turn.
    pub(super) fn dispatch_retries(&mut self, out: &mut Actions) {
        self.keep_for_suspects(false);
        loop {
            if self.fresh_turn && self.state.retries.suspects_wait() {
                let before = self.running.len();
                self.dispatch_fresh(out);
                self.fresh_turn = self.running.len() == before;
            }
            if !self.dispatch_retry(out) {
                break;
            }
        }
        self.keep_for_suspects(!self.fresh_turn && self.state.retries.suspects_wait());
    }

    /// Keeps a worker for suspects, or does so no longer.
    fn keep_for_suspects(&mut self, keeps: bool) {
        if self.state.workers.keeps != keeps {
            self.state.workers.keep_for_suspects(keeps);
            self.planner.forecast.invalidate();
        }
    }

    /// Dispatches the first group that is to be tried again; false if no worker can take it.
    fn dispatch_retry(&mut self, out: &mut Actions) -> bool {
        let Some(group) = self.state.retries.first() else { return false };
        let (avoid, suspects) = (group.avoid, group.attempt.suspects());
        if self.state.rules.planned {
            self.planner.look_again(&self.state);
        }
        let worker = match suspects {
            true => self.state.workers.take_whole(avoid),
            false => self.take_slot(Some(avoid)),
        };
        let Some(worker) = worker else { return false };
        let Some(mut group) = self.state.retries.pop(&mut self.state.records) else { return false };
        self.fresh_turn |= suspects;
        self.dispatch_group(worker, &mut group, out);
        self.state.retries.put_back(&mut self.state.records, group);
        true
    }

    /// Dispatches what shares a batch of a group that has a slot of this worker; of suspects as much as the worker
    /// can hold.
    fn dispatch_group(&mut self, worker: WorkerId, group: &mut RetryGroup, out: &mut Actions) {
        loop {
            let members = next_batch(&mut self.state, &mut group.members);
            self.dispatch(Some(worker), members, group.attempt, DispatchReason::Retry, out);
            let more = group.attempt.suspects() && group.members.len > 0;
            if !more || !self.state.workers.take_more(worker) {
                return;
            }
        }
    }
}
