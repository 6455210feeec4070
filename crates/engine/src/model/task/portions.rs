//! Requests in portions: they come together, and what nobody waits for any more goes together.
//!
//! How a request is taken apart and put together again is none of the task's business; it only sees
//! that the batcher hears of all portions at one moment, and of the end of those that are left when
//! one of them is refused.

use jitney_batcher::{Event, RequestId};

use super::Task;
use crate::model::{Arrival, Ticket};

impl Task {
    /// The first portion that is refused takes the others with it, before any of them has left.
    pub(super) fn on_portions(&mut self, portions: Vec<Arrival>) {
        // A caller that has left counts its request itself.
        if portions.first().is_none_or(|first| first.rider.reply.is_closed()) {
            return;
        }
        let count = portions.len();
        let mut boarded = Vec::with_capacity(count);
        for (place, portion) in portions.into_iter().enumerate() {
            let id = self.admit(portion, None, place + 1 < count);
            boarded.push(id);
            if !self.state.roster.holds(id) {
                return self.cancel_all(&boarded);
            }
        }
        self.take_turns();
    }

    pub(super) fn cancel_portions(&mut self, tickets: &[Ticket]) {
        let boarded: Vec<_> = tickets.iter().filter_map(Ticket::read).collect();
        self.cancel_all(&boarded);
    }

    fn cancel_all(&mut self, ids: &[RequestId]) {
        ids.iter().for_each(|&id| self.step(Event::Cancel { id }));
    }
}
