//! Which batches are on which worker.
//!
//! Apart from `slots`, which only counts: here are the members, who must not be lost whatever
//! happens to the worker. A batch stays here until somebody takes it out whole.

use crate::records::List;
use crate::request::{BatchId, Nanos, WorkerId};

/// A batch on a worker.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: BatchId,
    pub(crate) worker: WorkerId,
    pub(crate) members: List,
    /// 1 for the first try.
    pub(crate) attempt: u8,
    pub(crate) leg: Leg,
}

/// What is remembered of a departure to learn from when it is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leg {
    /// When it was handed over.
    pub(crate) departed: Nanos,
    /// Whether its worker had nothing else to do then.
    pub(crate) alone: bool,
    pub(crate) group: u16,
    /// What its time grows with.
    pub(crate) size: u64,
}

/// All running batches, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Sorted by id, because ids count up; no longer than there are slots.
    batches: Vec<Batch>,
    last: u64,
}

impl Running {
    /// Gives a departing batch its name.
    pub(crate) fn start(
        &mut self,
        worker: WorkerId,
        members: List,
        attempt: u8,
        leg: Leg,
    ) -> BatchId {
        self.last += 1;
        let id = BatchId(self.last);
        self.batches.push(Batch { id, worker, members, attempt, leg });
        id
    }

    /// Takes a batch out, unless the name is stale.
    pub(crate) fn take(&mut self, id: BatchId) -> Option<Batch> {
        let at = self.batches.binary_search_by_key(&id, |batch| batch.id).ok()?;
        Some(self.batches.remove(at))
    }

    /// Takes out the oldest batch of a worker.
    pub(crate) fn take_from(&mut self, worker: WorkerId) -> Option<Batch> {
        let at = self.batches.iter().position(|batch| batch.worker == worker)?;
        Some(self.batches.remove(at))
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }
}
