//! The waiting requests of one group and priority, sorted.
//!
//! A sorted ring beside the records: new requests join near the tail and leave from the head, so
//! that keeping it sorted moves little, and any request can be read by its position.

use std::collections::VecDeque;

use crate::config::Config;
use crate::policy::Order;
use crate::records::Record;
use crate::request::{NEVER, Nanos};

/// A request that waits, with what a decision needs to know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) deadline: Nanos,
    /// Order of arrival.
    pub(crate) seq: u64,
    pub(crate) arrived: Nanos,
    pub(crate) cost: u64,
    /// What it adds to the size of a batch.
    pub(crate) size: u32,
    pub(crate) items: u32,
    /// Where its record is.
    pub(crate) at: u32,
    pub(crate) tenant: u32,
    /// What it adds to the number of requests: parts before the last add nothing.
    pub(crate) counts: u32,
}

impl WaitingRequest {
    pub(crate) fn new(record: &Record, config: &Config) -> Self {
        let request = &record.request;
        Self {
            deadline: request.deadline,
            seq: record.seq,
            arrived: record.arrived,
            cost: request.cost,
            size: config.size_of(request.items, request.cost),
            items: request.items,
            at: request.id.slot(),
            tenant: request.tenant,
            counts: request.counts(),
        }
    }

    /// The time from its arrival to its deadline.
    pub(crate) fn given(&self) -> f64 {
        if self.deadline == NEVER { f64::INFINITY } else { (self.deadline - self.arrived) as f64 }
    }

    /// When half of that time is over.
    pub(crate) fn half_time(&self) -> Nanos {
        match self.deadline {
            NEVER => NEVER,
            deadline => self.arrived + deadline.saturating_sub(self.arrived) / 2,
        }
    }
}

/// The sorted queue.
#[derive(Debug, Default)]
pub(crate) struct SortedQueue {
    order: Order,
    /// In order; only the queue itself adds and takes, so that the sums stay true.
    pub(crate) waiting: VecDeque<WaitingRequest>,
    /// How many have a deadline; mostly none, which saves looking at each.
    with_deadline: u32,
    /// Sums over all that wait.
    pub(crate) size: u64,
    pub(crate) items: u64,
    pub(crate) cost: u128,
}

impl SortedQueue {
    pub(crate) fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn head(&self) -> Option<&WaitingRequest> {
        self.waiting.front()
    }

    /// Those that may have the earliest deadline: the head where the queue is sorted so.
    pub(crate) fn most_urgent(&self) -> impl Iterator<Item = &WaitingRequest> {
        let many = match self.order {
            _ if self.with_deadline == 0 => 0,
            Order::Deadline => 1,
            Order::Arrival => self.waiting.len(),
        };
        self.waiting.iter().take(many)
    }

    /// Adds a request at its position.
    #[inline]
    pub(crate) fn insert(&mut self, request: WaitingRequest) {
        self.size += u64::from(request.size);
        self.items += u64::from(request.items);
        self.cost += u128::from(request.cost);
        self.with_deadline += u32::from(request.deadline != NEVER);
        let key = self.key(request.deadline, request.seq);
        match self.waiting.back() {
            Some(last) if self.key(last.deadline, last.seq) > key => {
                let position = self.position(key);
                self.waiting.insert(position, request);
            }
            _ => self.waiting.push_back(request),
        }
    }

    /// Takes out the request with this deadline and arrival.
    pub(crate) fn remove(&mut self, deadline: Nanos, seq: u64) -> Option<WaitingRequest> {
        let position = self.position(self.key(deadline, seq));
        debug_assert!(self.waiting.get(position).is_some_and(|it| it.seq == seq));
        self.take(position)
    }

    /// Takes out the request at this position.
    #[inline]
    pub(crate) fn take(&mut self, position: usize) -> Option<WaitingRequest> {
        let request = match position {
            0 => self.waiting.pop_front(),
            _ => self.waiting.remove(position),
        }?;
        self.size -= u64::from(request.size);
        self.items -= u64::from(request.items);
        self.cost -= u128::from(request.cost);
        self.with_deadline -= u32::from(request.deadline != NEVER);
        Some(request)
    }

    fn key(&self, deadline: Nanos, seq: u64) -> (Nanos, u64) {
        match self.order {
            Order::Arrival => (0, seq),
            Order::Deadline => (deadline, seq),
        }
    }

    fn position(&self, key: (Nanos, u64)) -> usize {
        self.waiting.partition_point(|it| self.key(it.deadline, it.seq) < key)
    }
}

/// A request of one item that arrived at the start.
#[cfg(test)]
pub(crate) fn waiting(seq: u64, deadline: Nanos) -> WaitingRequest {
    let (at, arrived, cost, size, items, tenant, counts) = (seq as u32, 0, 1, 1, 1, 0, 1);
    WaitingRequest { deadline, seq, arrived, cost, size, items, at, tenant, counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &SortedQueue) -> Vec<u64> {
        queue.waiting.iter().map(|it| it.seq).collect()
    }

    fn queue(order: Order) -> SortedQueue {
        let mut queue = SortedQueue::new(order);
        for (seq, deadline) in [(2, NEVER), (1, 50), (3, 20), (4, 50), (5, NEVER)] {
            queue.insert(WaitingRequest { size: 2, ..waiting(seq, deadline) });
        }
        queue
    }

    #[test]
    fn the_earliest_deadline_is_first_and_equals_are_in_order_of_arrival() {
        let mut queue = queue(Order::Deadline);
        assert_eq!((order(&queue), queue.size), (vec![3, 1, 4, 2, 5], 10));
        queue.remove(50, 1);
        queue.remove(NEVER, 5);
        assert_eq!(queue.take(0).map(|it| it.seq), Some(3));
        assert_eq!((order(&queue), queue.size), (vec![4, 2], 4));
    }

    #[test]
    fn the_oldest_is_first_where_arrival_counts() {
        let mut queue = queue(Order::Arrival);
        assert_eq!(order(&queue), [1, 2, 3, 4, 5]);
        queue.remove(20, 3);
        assert_eq!(queue.take(0).map(|it| it.seq), Some(1));
        assert_eq!(order(&queue), [2, 4, 5]);
    }

    #[test]
    fn the_earliest_deadline_is_among_the_most_urgent() {
        for order in [Order::Arrival, Order::Deadline] {
            let mut queue = queue(order);
            assert_eq!(queue.most_urgent().map(|it| it.deadline).min(), Some(20));
            for (deadline, seq) in [(20, 3), (50, 1), (50, 4)] {
                queue.remove(deadline, seq);
            }
            assert_eq!(queue.most_urgent().count(), 0);
        }
    }
}
