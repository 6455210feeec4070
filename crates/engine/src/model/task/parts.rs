//! Requests in parts: they come together, and what nobody waits for any more goes together.
//!
//! How a request is taken apart and put together again is none of the task's business; it only sees
//! that the batcher hears of all parts at one moment, and of the end of those that are left when
//! one of them is refused.

use jitney_batcher::{Event, RequestId};

use super::Task;
use crate::model::{Arrival, Ticket};

impl Task {
    /// The first part that is refused takes the others with it, before any of them has left.
    pub(super) fn on_parts(&mut self, parts: Vec<Arrival>) {
        // A caller that has left counts its request itself.
        if parts.first().is_none_or(|first| first.request.reply.is_closed()) {
            return;
        }
        let count = parts.len();
        let mut boarded = Vec::with_capacity(count);
        for (place, part) in parts.into_iter().enumerate() {
            let id = self.admit(part, None, place + 1 < count);
            boarded.push(id);
            if !self.state.table.holds(id) {
                return self.cancel_all(&boarded);
            }
        }
        self.take_turns();
    }

    pub(super) fn cancel_parts(&mut self, tickets: &[Ticket]) {
        let boarded: Vec<_> = tickets.iter().filter_map(Ticket::read).collect();
        self.cancel_all(&boarded);
    }

    fn cancel_all(&mut self, ids: &[RequestId]) {
        ids.iter().for_each(|&id| self.step(Event::Cancel { id }));
    }
}
