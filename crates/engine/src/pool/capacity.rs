//! How many batches a worker can hold, and how it goes about them.

use super::worker::Worker;

/// How a worker goes about the batches that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOrder {
    /// One after another: only the first one runs.
    Sequential,
    /// It prepares the next ones while the first one is in the model, and answers them in order.
    Overlapping,
    /// Side by side.
    Concurrent,
}

/// How many batches a worker can hold, and how it goes about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerCapacity {
    /// Batches it may hold at a time. One that runs them one after another may be handed one more,
    /// to be run afterwards.
    pub(crate) slots: u8,
    pub(crate) order: BatchOrder,
}

impl WorkerCapacity {
    /// Of a worker with the slots that every one of its model has.
    pub(crate) fn usual(slots: u8) -> Self {
        Self { slots, order: BatchOrder::Concurrent }
    }

    pub(super) fn of(worker: &dyn Worker, usual: u8) -> Self {
        let slots = usual.max(worker.slots());
        let order = if worker.slots() > 1 {
            BatchOrder::Overlapping
        } else if slots == 1 && worker.queues(&[]) {
            BatchOrder::Sequential
        } else {
            BatchOrder::Concurrent
        };
        Self { slots, order }
    }

    /// Whether it may be handed one more batch than it has slots.
    pub(crate) fn ahead(self) -> bool {
        self.order == BatchOrder::Sequential
    }
}
