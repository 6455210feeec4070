//! What a supervisor tells the model's task about its worker.
//!
//! Events of one worker come in the order in which things happened to it, and every batch that it was
//! handed comes back in exactly one of them.

use std::time::Duration;

use jitney_batcher::BatchId;
use tokio::sync::mpsc;

use super::batches::WorkerBatch;
use crate::outcome::{BatchOutcome, LaunchError, WorkerExit};

/// How many batches a worker can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerCapacity {
    /// Batches it may run at a time.
    pub(crate) slots: u8,
    /// Whether it may be handed one more, to be run afterwards.
    pub(crate) ahead: bool,
}

/// What a supervisor tells the model's task.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// Loaded, and ready for batches through `batches` until it exits. The channel belongs to this
    /// start of the worker: a batch sent too late is given back to the sender or comes with `Exited`.
    Up {
        worker: u32,
        pid: Option<u32>,
        capacity: WorkerCapacity,
        batches: mpsc::Sender<WorkerBatch>,
        /// How long it took to load.
        took: Duration,
    },
    Finished {
        batch: WorkerBatch,
        outcome: BatchOutcome,
        exec: Duration,
    },
    /// It exited, with every batch that was handed to it and not finished.
    Exited {
        worker: u32,
        batches: Vec<WorkerBatch>,
        exit: WorkerExit,
        /// The batch to blame: the one that took too long, or the one that it was at. The others
        /// are innocent. None if that is unknown, or if it was at none.
        blamed: Option<BatchId>,
    },
    LaunchFailed {
        worker: u32,
        error: LaunchError,
    },
    /// Starting it again was given up.
    GivenUp {
        worker: u32,
    },
    /// It stopped as it was asked to.
    Stopped {
        worker: u32,
    },
}
