//! Gives every set of open dimensions that is under way a small number, so that the batcher keeps
//! requests of different shapes apart without knowing what a shape is.
//!
//! The table is bounded: shapes come from clients. A number whose requests have all ended is given
//! away only when the table is full, so that a shape usually keeps its number, and never while one
//! of its requests lives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Distinct shapes that may be under way at once.
pub(super) const GROUPS_MAX: usize = 1024;

/// The table of one model.
#[derive(Debug, Default)]
pub(super) struct ShapeGroups {
    table: Arc<Mutex<GroupTable>>,
}

#[derive(Debug, Default)]
struct GroupTable {
    ids: HashMap<Box<[usize]>, u16>,
    /// Requests under way per id.
    live: Vec<u32>,
}

/// A request's claim on its group; dropping it gives the claim up.
#[derive(Debug)]
pub(super) struct GroupClaim {
    /// The group's number.
    pub(super) id: u16,
    table: Arc<Mutex<GroupTable>>,
}

impl ShapeGroups {
    /// The group of this shape, or `None` when too many other shapes are under way.
    pub(super) fn claim(&self, shape: &[usize]) -> Option<GroupClaim> {
        let mut table = lock(&self.table);
        let id = match table.ids.get(shape) {
            Some(id) => *id,
            None => table.assign(shape)?,
        };
        table.live[usize::from(id)] += 1;
        Some(GroupClaim { id, table: Arc::clone(&self.table) })
    }
}

impl GroupTable {
    fn assign(&mut self, shape: &[usize]) -> Option<u16> {
        let id = if self.live.len() < GROUPS_MAX {
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

impl Drop for GroupClaim {
    fn drop(&mut self) {
        lock(&self.table).live[usize::from(self.id)] -= 1;
    }
}

/// The table stays consistent between any two statements, so a poisoned lock is still good.
fn lock(table: &Mutex<GroupTable>) -> MutexGuard<'_, GroupTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shapes_share_a_bucket_and_different_ones_do_not() {
        let shape_groups = ShapeGroups::default();
        let first = shape_groups.claim(&[3]).expect("room");
        let second = shape_groups.claim(&[3]).expect("room");
        let third = shape_groups.claim(&[4]).expect("room");
        assert_eq!(first.id, second.id);
        assert_ne!(first.id, third.id);
    }

    #[test]
    fn a_full_table_rejects_new_shapes_until_one_has_ended() {
        let shape_groups = ShapeGroups::default();
        let mut claims: Vec<GroupClaim> =
            (0..GROUPS_MAX).map(|size| shape_groups.claim(&[size]).expect("room")).collect();
        assert!(shape_groups.claim(&[GROUPS_MAX]).is_none());
        let freed = claims.swap_remove(7).id;
        assert_eq!(shape_groups.claim(&[GROUPS_MAX]).expect("room").id, freed);
        assert!(shape_groups.claim(&[8]).is_some(), "a shape under way is always accepted");
    }
}
