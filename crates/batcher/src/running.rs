//! Which batches are on which worker.
//!
//! `workers` only counts; here are the members, which must not be lost whatever happens to the
//! worker. A batch is taken out as a whole. How long batches take on average is kept beside them, so that
//! a rejected client can be told when to try again.

use crate::records::{Records, RequestList};
use crate::request::{BatchId, Nanos, WorkerId};
use crate::retry::RetryAttempt;

/// A batch on a worker.
#[derive(Debug)]
pub(crate) struct ActiveBatch {
    pub(crate) id: BatchId,
    pub(crate) worker: WorkerId,
    pub(crate) members: RequestList,
    pub(crate) attempt: RetryAttempt,
    pub(crate) note: DispatchNote,
}

impl ActiveBatch {
    /// Takes the members of another batch that failed together with it.
    pub(crate) fn join(&mut self, records: &mut Records, other: Self) {
        records.append(&mut self.members, other.members);
        self.attempt.number = self.attempt.number.max(other.attempt.number);
        self.attempt.until = self.attempt.until.min(other.attempt.until);
    }
}

/// What is learned from when the batch is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DispatchNote {
    /// When it was handed over.
    pub(crate) dispatched: Nanos,
    /// Whether its worker was idle then.
    pub(crate) alone: bool,
    pub(crate) group: u16,
    /// The model that its worker had to load for it; else 0.
    pub(crate) loads: u64,
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
        attempt: RetryAttempt,
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

/// The mean remembers about this many batches.
const MEMORY: u64 = 32;
/// A batch slower than this many means, plus a little for tiny means, counts as that much.
const OUTLIER: u64 = 4;
const OUTLIER_FLOOR: Nanos = 1_000_000;

/// Running mean of the time a batch takes, for the policies that do not plan; it never influences a
/// dispatch.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    mean: Nanos,
    seen: u64,
}

impl Pace {
    /// A batch took this long.
    pub(crate) fn learn(&mut self, exec: Nanos) {
        self.seen = MEMORY.min(self.seen + 1);
        let most = self.mean.saturating_mul(OUTLIER).saturating_add(OUTLIER_FLOOR);
        let exec = if self.seen == 1 { exec } else { exec.min(most) };
        self.mean = match exec >= self.mean {
            true => self.mean + (exec - self.mean) / self.seen,
            false => self.mean - (self.mean - exec) / self.seen,
        };
    }

    /// How long `batches` take when `at_once` of them run at a time, if anything is known.
    pub(crate) fn predict(&self, batches: u64, at_once: u64) -> Option<Nanos> {
        let known = self.seen > 0 && at_once > 0;
        known.then(|| batches.div_ceil(at_once).saturating_mul(self.mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn nothing_is_predicted_before_the_first_batch_or_without_workers() {
        let mut pace = Pace::default();
        assert_eq!(pace.predict(3, 1), None);
        pace.learn(MS);
        assert_eq!(pace.predict(3, 0), None);
        assert_eq!(pace.predict(3, 2), Some(2 * MS));
    }

    #[test]
    fn the_mean_follows_a_lasting_change_and_shrugs_at_an_outlier() {
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.learn(10 * MS));
        pace.learn(60_000 * MS);
        assert!(pace.mean < 12 * MS, "{}", pace.mean);
        (0..200).for_each(|_| pace.learn(30 * MS));
        assert!((28 * MS..31 * MS).contains(&pace.mean), "{}", pace.mean);
    }
}
