//! Which batches are on which worker.
//!
//! `workers` only counts; here are the members, which must not be lost whatever happens to the
//! worker. A batch is taken out as a whole.

use crate::records::RequestList;
use crate::request::{BatchId, Nanos, WorkerId};

/// A batch on a worker.
#[derive(Debug)]
pub(crate) struct ActiveBatch {
    pub(crate) id: BatchId,
    pub(crate) worker: WorkerId,
    pub(crate) members: RequestList,
    /// 1 for the first try.
    pub(crate) attempt: u8,
    pub(crate) note: DispatchNote,
}

/// What is learned from when the batch is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DispatchNote {
    /// When it was handed over.
    pub(crate) dispatched: Nanos,
    /// Whether its worker was idle then.
    pub(crate) alone: bool,
    pub(crate) group: u16,
    /// Its size in the unit of the measure, and that at which it runs.
    pub(crate) size: u64,
    pub(crate) ran: u64,
    /// When it was to end, where its worker prepares batches while it runs others; else 0.
    pub(crate) ends: Nanos,
}

/// All running batches, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ActiveBatches {
    /// Sorted by id, because ids count up; no longer than there are slots.
    batches: Vec<ActiveBatch>,
    last: u64,
}

impl ActiveBatches {
    /// Adds a batch and gives it its name.
    pub(crate) fn start(
        &mut self,
        worker: WorkerId,
        members: RequestList,
        attempt: u8,
        note: DispatchNote,
    ) -> BatchId {
        self.last += 1;
        let id = BatchId(self.last);
        self.batches.push(ActiveBatch { id, worker, members, attempt, note });
        id
    }

    /// Takes a batch out, unless the name is stale.
    pub(crate) fn take(&mut self, id: BatchId) -> Option<ActiveBatch> {
        let at = self.batches.binary_search_by_key(&id, |batch| batch.id).ok()?;
        Some(self.batches.remove(at))
    }

    /// Takes out the oldest batch of a worker.
    pub(crate) fn take_from(&mut self, worker: WorkerId) -> Option<ActiveBatch> {
        let at = self.batches.iter().position(|batch| batch.worker == worker)?;
        Some(self.batches.remove(at))
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }
}
