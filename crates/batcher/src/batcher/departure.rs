//! The decision at the end of every step: what leaves now, and when to look again.
//!
//! It takes the state as it finds it and never asks which event led there, so a stale timer or a
//! late one is as good as any. Retry groups go before fresh work.

use super::Batcher;
use crate::action::{Action, Actions, Departure};
use crate::isolation::Group;
use crate::records::List;
use crate::request::{NEVER, WorkerId};

impl Batcher {
    /// Lets go whatever is due while anybody is free to take it.
    pub(super) fn decide(&mut self, out: &mut Actions) {
        while self.slots.any_free() && (self.depart_again(out) || self.depart(out)) {}
    }

    fn depart_again(&mut self, out: &mut Actions) -> bool {
        let Some(group) = self.retries.pop(&mut self.records) else { return false };
        let Group { members, attempt, avoid } = group;
        let worker = self.slots.take(Some(avoid));
        self.dispatch(worker, members, attempt, Departure::Retry, out);
        true
    }

    fn depart(&mut self, out: &mut Actions) -> bool {
        let lead = self.lanes.lead(&self.records, &self.rules, &self.slots);
        let Some(lead) = lead else { return false };
        let members = self.lanes.board(&mut self.records, &self.rules.config, lead);
        let worker = match lead.worker {
            Some(pinned) => self.slots.take_of(pinned),
            None => self.slots.take(None),
        };
        self.dispatch(worker, members, 1, lead.reason, out);
        true
    }

    fn dispatch(
        &mut self,
        worker: Option<WorkerId>,
        members: List,
        attempt: u8,
        reason: Departure,
        out: &mut Actions,
    ) {
        let worker = worker.expect("a batch departs only when a slot is free");
        let items = members.items as u32;
        let ids = out.list(self.records.ids(&members));
        let batch = self.running.start(worker, members, attempt);
        out.push(Action::Dispatch { worker, batch, members: ids, items, attempt, reason });
    }

    /// Asks to be woken when the next thing is due, if that time has changed.
    pub(super) fn set_timer(&mut self, out: &mut Actions) {
        let expiry = self.deadlines.next(&mut self.records);
        // While nobody is free a window that ends changes nothing.
        let free = self.slots.any_free();
        let due =
            free.then(|| self.lanes.next_due(&self.records, &self.rules, &self.slots)).flatten();
        let timer = [expiry, due].into_iter().flatten().min().filter(|&time| time != NEVER);
        if timer != self.timer {
            self.timer = timer;
            out.push(timer.map_or(Action::ClearTimer, Action::SetTimer));
        }
    }
}
