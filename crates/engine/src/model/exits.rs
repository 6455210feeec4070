//! What becomes of the batches of a worker that has exited: each is tried again or given up, and no
//! batch that could not have caused the exit is blamed for it.

use jitney_batcher::{BatchFailure, BatchId, DownReason};

use crate::outcome::WorkerExit;
use crate::pool::{BatchOrder, WorkerBatch};

/// What is to be done about an exit.
#[derive(Debug)]
pub(super) struct ExitPlan {
    /// Batches that wait again as if nothing had happened.
    pub(super) innocent: Vec<WorkerBatch>,
    /// Batches that failed.
    pub(super) failed: Vec<WorkerBatch>,
    /// The one batch among several that is to blame.
    pub(super) blamed: Option<(BatchId, BatchFailure)>,
    /// What the batcher is told of the worker. Where any of several batches may have caused the exit, it
    /// suspects all of them.
    pub(super) down: DownReason,
}

impl ExitPlan {
    /// Of batches that run one after another one at most was running. One that overlaps its batches answers
    /// them in order, so only the first one can have taken too long; but an exit may come from any.
    pub(super) fn new(
        exit: WorkerExit,
        batches: Vec<WorkerBatch>,
        blamed: Option<BatchId>,
        order: BatchOrder,
    ) -> Self {
        let several = batches.len() > 1;
        let known = match order {
            BatchOrder::Sequential => true,
            BatchOrder::Overlapping => blamed.is_some(),
            BatchOrder::Concurrent => false,
        };
        // A request that ran out of memory alone would do so on every other worker.
        let hungry = match (exit, &batches[..]) {
            (WorkerExit::OutOfMemory { .. }, [batch]) => {
                Some(batch.id).filter(|_| batch.requests.len() == 1)
            }
            _ => None,
        };
        let (kind, down) = match exit {
            WorkerExit::OutOfMemory { .. } if hungry.is_some() => {
                (BatchFailure::Handler, DownReason::Crashed)
            }
            WorkerExit::TimedOut { .. } => (BatchFailure::TimedOut, DownReason::TimedOut),
            WorkerExit::Ended { .. }
            | WorkerExit::OutOfMemory { .. }
            | WorkerExit::KilledForMemory { .. }
            | WorkerExit::Lost
            | WorkerExit::BrokeProtocol => (BatchFailure::Crashed, DownReason::Crashed),
        };
        let is_innocent = |batch: &WorkerBatch| known && blamed != Some(batch.id);
        let (innocent, failed): (Vec<_>, Vec<_>) = batches.into_iter().partition(is_innocent);
        let blamed = hungry.or(blamed.filter(|_| known || several));
        // Where one batch is blamed, or none was running, the worker's other batches just wait again.
        let down = if blamed.is_some() || (known && failed.is_empty()) {
            DownReason::Removed
        } else {
            down
        };
        let blamed = blamed.map(|batch| (batch, kind));
        Self { innocent, failed, blamed, down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(batches: &[u64], blamed: Option<u64>, order: BatchOrder) -> ExitPlan {
        let batches =
            batches.iter().map(|id| WorkerBatch::full(BatchId(*id), Vec::new(), 1)).collect();
        let exit = WorkerExit::TimedOut { limit: std::time::Duration::from_secs(1) };
        ExitPlan::new(exit, batches, blamed.map(BatchId), order)
    }

    fn ids(batches: &[WorkerBatch]) -> Vec<u64> {
        batches.iter().map(|batch| batch.id.0).collect()
    }

    #[test]
    fn the_only_batch_fails_with_its_worker() {
        let plan = plan(&[1], Some(1), BatchOrder::Concurrent);
        assert_eq!((ids(&plan.failed), plan.blamed), (vec![1], None));
        assert_eq!(plan.down, DownReason::TimedOut);
    }

    #[test]
    fn a_batch_that_had_not_begun_is_innocent() {
        for order in [BatchOrder::Sequential, BatchOrder::Overlapping] {
            let plan = plan(&[1, 2], Some(1), order);
            assert_eq!((ids(&plan.failed), ids(&plan.innocent)), (vec![1], vec![2]));
            assert_eq!(plan.blamed, Some((BatchId(1), BatchFailure::TimedOut)));
            assert_eq!(plan.down, DownReason::Removed);
        }
    }

    #[test]
    fn of_batches_side_by_side_any_may_be_to_blame() {
        for order in [BatchOrder::Concurrent, BatchOrder::Overlapping] {
            let plan = plan(&[1, 2], None, order);
            assert_eq!((ids(&plan.failed), plan.blamed), (vec![1, 2], None));
            assert_eq!(plan.down, DownReason::TimedOut);
        }
    }
}
