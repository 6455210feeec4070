//! Gives every set of open dimensions that is under way a small number, so that the batcher keeps
//! requests of different shapes apart without knowing what a shape is.
//!
//! The table is bounded: shapes come from clients. A number whose requests have all ended is given
//! away only when the table is full, so that a shape usually keeps its number, and never while one
//! of its requests lives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Distinct shapes that may be under way at once.
pub(super) const BUCKETS_MAX: usize = 1024;

/// The table of one model.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    ids: HashMap<Box<[usize]>, u16>,
    /// Requests under way per id.
    live: Vec<u32>,
}

/// A request's claim on its bucket; dropping it gives the claim up.
#[derive(Debug)]
pub(super) struct Ticket {
    id: u16,
    table: Arc<Mutex<Table>>,
}

impl Buckets {
    /// The bucket of this shape, or `None` when too many other shapes are under way.
    pub(super) fn claim(&self, shape: &[usize]) -> Option<Ticket> {
        let mut table = lock(&self.table);
        let id = match table.ids.get(shape) {
            Some(id) => *id,
            None => table.assign(shape)?,
        };
        table.live[usize::from(id)] += 1;
        Some(Ticket { id, table: Arc::clone(&self.table) })
    }
}

impl Table {
    fn assign(&mut self, shape: &[usize]) -> Option<u16> {
        let id = if self.live.len() < BUCKETS_MAX {
            self.live.push(0);
            u16::try_from(self.live.len() - 1).ok()?
        } else {
            let idle = u16::try_from(self.live.iter().position(|live| *live == 0)?).ok()?;
            self.ids.retain(|_, id| *id != idle);
            idle
        };
        self.ids.insert(shape.into(), id);
        Some(id)
    }
}

impl Ticket {
    /// The bucket's number.
    pub(super) fn id(&self) -> u16 {
        self.id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.table).live[usize::from(self.id)] -= 1;
    }
}

/// The table stays consistent between any two statements, so a poisoned lock is still good.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shapes_share_a_bucket_and_different_ones_do_not() {
        let buckets = Buckets::default();
        let first = buckets.claim(&[3]).expect("room");
        let second = buckets.claim(&[3]).expect("room");
        let third = buckets.claim(&[4]).expect("room");
        assert_eq!(first.id(), second.id());
        assert_ne!(first.id(), third.id());
    }

    #[test]
    fn a_full_table_refuses_new_shapes_until_one_has_ended() {
        let buckets = Buckets::default();
        let mut tickets: Vec<Ticket> =
            (0..BUCKETS_MAX).map(|size| buckets.claim(&[size]).expect("room")).collect();
        assert!(buckets.claim(&[BUCKETS_MAX]).is_none());
        let freed = tickets.swap_remove(7).id();
        assert_eq!(buckets.claim(&[BUCKETS_MAX]).expect("room").id(), freed);
        assert!(buckets.claim(&[8]).is_some(), "a shape under way is always welcome");
    }
}
