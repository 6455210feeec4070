//! Which waiting request expires next.
//!
//! A heap apart from the lanes, because lanes are kept in order of arrival. Only requests with a
//! deadline are in it. An entry is not looked for when its request leaves: it is dropped when it
//! comes to the top, or when the heap has doubled. It never ends a request itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::records::Records;
use crate::request::{NEVER, Nanos, RequestId};

const COMPACT_MIN: usize = 64;

/// Deadlines of waiting requests, and of some that wait no more.
#[derive(Debug)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Nanos, RequestId)>>,
    /// The heap is swept when it reaches this length.
    compact_at: usize,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), compact_at: COMPACT_MIN }
    }
}

impl Deadlines {
    /// Watches a waiting request from now on, if it has a deadline.
    pub(crate) fn watch(&mut self, records: &mut Records, at: u32) {
        let record = &mut records[at];
        if record.request.deadline == NEVER || record.watched {
            return;
        }
        record.watched = true;
        self.heap.push(Reverse((record.request.deadline, record.request.id)));
        if self.heap.len() >= self.compact_at {
            self.heap.retain(|Reverse((_, id))| live(records, *id));
            self.compact_at = COMPACT_MIN.max(2 * self.heap.len());
        }
    }

    /// When the next waiting request expires.
    pub(crate) fn next(&mut self, records: &mut Records) -> Option<Nanos> {
        self.top(records).map(|(deadline, _)| deadline)
    }

    /// A waiting request whose deadline has come.
    pub(crate) fn pop(&mut self, records: &mut Records, now: Nanos) -> Option<u32> {
        let (_, id) = self.top(records).filter(|(deadline, _)| *deadline <= now)?;
        self.heap.pop();
        Some(id.slot())
    }

    fn top(&mut self, records: &mut Records) -> Option<(Nanos, RequestId)> {
        while let Some(Reverse((deadline, id))) = self.heap.peek() {
            if live(records, *id) {
                return Some((*deadline, *id));
            }
            self.heap.pop();
        }
        None
    }
}

/// Whether the entry is still about a waiting request. One that runs loses its entry here and
/// gets a new one if it ever comes back.
fn live(records: &mut Records, id: RequestId) -> bool {
    let Some(at) = records.find(id) else { return false };
    let record = &mut records[at];
    record.watched = record.waits();
    record.watched
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Place;
    use crate::request::Request;

    fn admit(records: &mut Records, index: u32, generation: u32, deadline: Nanos) -> u32 {
        let id = RequestId::new(index, generation);
        let at = records.admit(Request { deadline, ..Request::new(id) }, 0);
        records[at].place = Place::Lane(0);
        at
    }

    #[test]
    fn requests_expire_in_order_of_their_deadlines() {
        let (mut records, mut deadlines) = (Records::default(), Deadlines::default());
        for (index, deadline) in [(0, 30), (1, 10), (2, NEVER), (3, 20)] {
            let at = admit(&mut records, index, 0, deadline);
            deadlines.watch(&mut records, at);
        }
        assert_eq!(deadlines.next(&mut records), Some(10));
        assert_eq!(deadlines.pop(&mut records, 9), None);
        assert_eq!(deadlines.pop(&mut records, 25), Some(1));
        assert_eq!(deadlines.pop(&mut records, 25), Some(3));
        assert_eq!(deadlines.pop(&mut records, 25), None);
    }

    #[test]
    fn an_entry_of_an_earlier_generation_is_dropped() {
        let (mut records, mut deadlines) = (Records::default(), Deadlines::default());
        let at = admit(&mut records, 0, 0, 10);
        deadlines.watch(&mut records, at);
        records.end(at);
        let at = admit(&mut records, 0, 1, 50);
        deadlines.watch(&mut records, at);
        assert_eq!(deadlines.next(&mut records), Some(50));
    }

    #[test]
    fn one_that_ran_past_the_top_and_came_back_is_watched_again() {
        let (mut records, mut deadlines) = (Records::default(), Deadlines::default());
        let at = admit(&mut records, 0, 0, 10);
        deadlines.watch(&mut records, at);
        records[at].place = Place::Running;
        assert_eq!(deadlines.next(&mut records), None);
        records[at].place = Place::Lane(0);
        deadlines.watch(&mut records, at);
        assert_eq!(deadlines.next(&mut records), Some(10));
    }

    #[test]
    fn entries_of_ended_requests_do_not_pile_up() {
        let (mut records, mut deadlines) = (Records::default(), Deadlines::default());
        for generation in 0..10_000 {
            let at = admit(&mut records, 0, generation, 1_000_000);
            deadlines.watch(&mut records, at);
            records.end(at);
        }
        assert!(deadlines.heap.len() <= COMPACT_MIN);
    }
}
