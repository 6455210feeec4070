//! What the pool asks of a worker, whatever it is: a Python process, an ONNX session, a script of
//! the test kit. The pool supervises; a worker only takes batches, sends messages, and can be ended.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::loading::{LoadedReport, ProgressSender};
use crate::outcome::{BatchOutcome, LaunchError, Output, WorkerExit};
use crate::pending::PendingRequest;

/// A boxed future that may cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts workers of one model version.
pub trait Launcher: Send + Sync + 'static {
    /// Starts one worker; resolves when it has loaded the model. Dropping the future ends the
    /// worker, which is how the pool enforces the start-up timeout. Every step told to `progress`
    /// starts that timeout anew.
    fn launch(
        &self,
        worker: u32,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>>;

    /// From now on the model has up to so many workers, which share the machine.
    fn set_worker_count(&self, _workers: u32) {}

    /// The GPU that a worker was given, if any.
    fn gpu(&self, _worker: u32) -> Option<u32> {
        None
    }

    /// The worker has left and will not be started again.
    fn forget(&self, _worker: u32) {}
}

/// What a worker sends about a batch it was given.
#[derive(Debug)]
pub enum WorkerMessage {
    /// Pieces of answers that are still being made, each with its request's place in the batch.
    Pieces {
        /// The batch.
        batch: u64,
        /// Place and piece.
        pieces: Vec<(usize, Output)>,
    },
    /// The batch is over.
    Finished {
        /// The batch.
        batch: u64,
        /// How it ended.
        outcome: BatchOutcome,
    },
    /// How long a batch took; it comes before its end.
    Times {
        /// The batch.
        batch: u64,
        /// What the worker measured.
        times: BatchTimes,
    },
}

/// What a worker measured of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTimes {
    /// From its first byte, or from when the one before it was prepared, until it was prepared.
    pub prepare: Option<Duration>,
    /// From when the model could take it until its outputs were there.
    pub model: Option<Duration>,
    /// Bytes that the worker holds on its GPU.
    pub gpu_memory: Option<u64>,
    /// Whether the batch goes on beside others from now on: the worker takes the next one at once.
    pub beside: bool,
}

/// The worker is gone; [`Worker::exit`] says how.
#[derive(Clone, Copy, Debug)]
pub struct WorkerGone;

/// A loaded worker. It is given no more batches at a time than it has slots.
pub trait Worker: Send + 'static {
    /// The process id, for workers that are processes.
    fn pid(&self) -> Option<u32>;

    /// How many batches it can hold at a time. One that says more than 1 prepares batches while it works on
    /// another, and answers them in the order in which it was given them.
    fn slots(&self) -> u8 {
        1
    }

    /// What it found when it loaded; told once.
    fn report(&mut self) -> LoadedReport {
        LoadedReport::default()
    }

    /// Whether it takes this batch while it works on another, keeps it for afterwards, and holds up
    /// nothing meanwhile. For a batch without requests: whether it ever does. Such a worker runs its batches one
    /// after another, in the order in which it was given them.
    fn queues(&self, _requests: &[PendingRequest]) -> bool {
        false
    }

    /// Hands a batch over. Dropping the future before it resolves leaves the worker unusable, so
    /// the pool ends it then.
    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>>;

    /// Whether it drops a batch that no caller waits for any more.
    fn cancels(&self) -> bool {
        false
    }

    /// Tells the worker that no caller waits for this batch any more. It still says when the batch is
    /// over, sooner if it can; most cannot.
    fn cancel(&mut self, _batch: u64) -> BoxFuture<'_, Result<(), WorkerGone>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The worker's next message; an idle worker sends none until it is gone.
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>>;

    /// How the worker ended, once `give` or `poll_message` found it gone.
    fn exit(&mut self) -> BoxFuture<'_, WorkerExit>;

    /// Ends the worker: politely when it is idle, by force otherwise.
    fn end(self: Box<Self>, force: bool) -> BoxFuture<'static, ()>;
}

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
