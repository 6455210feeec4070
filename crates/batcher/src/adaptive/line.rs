//! Those of one lane and priority who wait, the most hurried first.
//!
//! A sorted ring beside the records: newcomers stand near the tail and leave from the head, so
//! keeping it sorted moves little, and a formation can look at anybody by position. Requests
//! without a deadline stand behind all others in order of arrival.

use std::collections::VecDeque;

use crate::request::{NEVER, Nanos};

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) deadline: Nanos,
    /// Order of arrival.
    pub(crate) seq: u64,
    pub(crate) arrived: Nanos,
    pub(crate) cost: u64,
    /// What it adds to the size of a batch.
    pub(crate) size: u32,
    pub(crate) items: u32,
    pub(crate) at: u32,
    pub(crate) tenant: u32,
    /// What it adds to the number of requests.
    pub(crate) counts: u32,
}

impl Entry {
    /// The time it was given.
    pub(crate) fn given(&self) -> f64 {
        if self.deadline == NEVER { f64::INFINITY } else { (self.deadline - self.arrived) as f64 }
    }

    fn key(&self) -> (Nanos, u64) {
        (self.deadline, self.seq)
    }
}

/// The line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    entries: VecDeque<Entry>,
    /// Of all who wait.
    pub(crate) size: u64,
    pub(crate) items: u64,
    pub(crate) cost: u128,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn head(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn get(&self, position: usize) -> &Entry {
        &self.entries[position]
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Lets somebody wait at the place its deadline and arrival give it.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.size += u64::from(entry.size);
        self.items += u64::from(entry.items);
        self.cost += u128::from(entry.cost);
        match self.entries.back() {
            Some(last) if last.key() > entry.key() => {
                let position = self.entries.partition_point(|it| it.key() < entry.key());
                self.entries.insert(position, entry);
            }
            _ => self.entries.push_back(entry),
        }
    }

    /// Takes somebody out by deadline and arrival.
    pub(crate) fn remove(&mut self, deadline: Nanos, seq: u64) {
        let position = self.entries.partition_point(|it| it.key() < (deadline, seq));
        debug_assert!(self.entries.get(position).is_some_and(|it| it.seq == seq));
        self.take(position);
    }

    /// Takes out whoever stands there.
    pub(crate) fn take(&mut self, position: usize) -> Option<Entry> {
        let entry = match position {
            0 => self.entries.pop_front(),
            _ => self.entries.remove(position),
        }?;
        self.size -= u64::from(entry.size);
        self.items -= u64::from(entry.items);
        self.cost -= u128::from(entry.cost);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, deadline: Nanos) -> Entry {
        let at = seq as u32;
        Entry { deadline, seq, arrived: 0, cost: 1, size: 2, items: 1, at, tenant: 0, counts: 1 }
    }

    #[test]
    fn the_most_hurried_stands_first_and_equals_in_order_of_arrival() {
        let mut line = Line::default();
        for (seq, deadline) in [(1, 50), (2, Nanos::MAX), (3, 20), (4, 50), (5, Nanos::MAX)] {
            line.insert(entry(seq, deadline));
        }
        let order: Vec<_> = line.iter().map(|it| it.seq).collect();
        assert_eq!((order, line.size), (vec![3, 1, 4, 2, 5], 10));
        line.remove(50, 1);
        line.remove(Nanos::MAX, 5);
        assert_eq!(line.take(0).map(|it| it.seq), Some(3));
        let order: Vec<_> = line.iter().map(|it| it.seq).collect();
        assert_eq!((order, line.size), (vec![4, 2], 4));
    }
}
