//! What a seat tells the model's task about its worker.
//!
//! Events of one worker come in the order in which things happened to it, and every batch that it was
//! handed comes back in exactly one of them.

use std::time::Duration;

use jitney_batcher::BatchId;
use tokio::sync::mpsc;

use super::riding::Batch;
use crate::outcome::{BatchOutcome, LaunchError, WorkerExit};

/// What a seat tells the model's task.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// Loaded, and ready for batches through `batches` until it dies. The channel belongs to this
    /// life of the worker: a batch sent too late is given back to the sender or comes with `Exited`.
    Up {
        worker: u32,
        pid: Option<u32>,
        /// Batches it may run at a time.
        slots: u8,
        /// Whether it may be handed one more, to be run afterwards.
        ahead: bool,
        batches: mpsc::Sender<Batch>,
        /// How long it took to load.
        took: Duration,
    },
    Finished {
        batch: Batch,
        outcome: BatchOutcome,
        exec: Duration,
    },
    /// Dead, with every batch that was handed to it and not finished.
    Exited {
        worker: u32,
        batches: Vec<Batch>,
        death: WorkerExit,
        /// The batch to blame: the one that took too long, or the one that it was at. The others
        /// are innocent. None if nobody knows, or if it was at none.
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
    /// It left as it was asked to.
    Stopped {
        worker: u32,
    },
}
