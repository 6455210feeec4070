//! Everything that can happen to a batcher.
//!
//! Events come in, actions go out. An event is a fact; it never carries a decision.

use crate::config::Config;
use crate::request::{BatchId, Nanos, Origin, Request, RequestId, WorkerId};

/// One fact for [`Batcher::step`](crate::Batcher::step).
///
/// A stale one (an unknown batch or worker, a request that has ended) is ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A request arrives. Its index must not belong to a request that has not ended.
    Arrive(Request),
    /// A request has begun to arrive; its body is not complete (adaptive policy).
    Announce {
        /// Where it is coming from.
        origin: Origin,
    },
    /// An announced request will not come after all.
    Retract {
        /// Where it was coming from.
        origin: Origin,
    },
    /// The client disconnected.
    Cancel {
        /// Its request.
        id: RequestId,
    },
    /// A worker is ready. For a worker already known: it now has this many slots and stays.
    WorkerUp {
        /// The worker.
        worker: WorkerId,
        /// Batches it may hold at a time. Under the adaptive policy a busy worker is given another one
        /// only so early that it is there, and prepared, when the last one ends; under the others
        /// one that has reported `prepare` is given full ones only.
        slots: u8,
    },
    /// The worker gets no new batches; the ones it has may finish.
    WorkerRetire {
        /// The worker.
        worker: WorkerId,
    },
    /// The worker is gone, and with it whatever it was running.
    WorkerDown {
        /// The worker.
        worker: WorkerId,
        /// Decides what becomes of its batches.
        why: DownReason,
    },
    /// A batch reached its worker. Determines how long before the end of a batch a worker with a
    /// second slot is handed the next one (adaptive policy).
    Handed {
        /// The time from when it was due until the worker could take it.
        took: Nanos,
    },
    /// Other models that run on the same GPUs have answered so many items since this was said last. How the
    /// slots of workers are best used is found by what they bring; where a GPU is shared, what one model gains
    /// there may be what another loses. It is noted, and nothing is decided.
    NeighboursAnswered {
        /// So many.
        items: u64,
    },
    /// The batch is answered; so are all its members.
    Done {
        /// The batch.
        batch: BatchId,
        /// How long it took the worker; where it says what preparing took, how long the model took.
        exec: Nanos,
        /// For a worker that prepares one batch while it runs another: the time from when it was
        /// handed the batch until it had prepared it.
        prepare: Option<Nanos>,
    },
    /// A trial run that the batcher did not dispatch was measured.
    Measured {
        /// The group of its items.
        group: u16,
        /// How many there were.
        items: u32,
        /// What all of them cost together.
        cost: u64,
        /// How long it took the worker, or its model.
        exec: Nanos,
        /// How long preparing it took, as in `Done`.
        prepare: Option<Nanos>,
    },
    /// The batch failed but its worker is alive. A worker that died is reported by `WorkerDown` alone.
    Failed {
        /// The batch.
        batch: BatchId,
        /// How it failed.
        kind: BatchFailure,
    },
    /// A new configuration.
    Configure(Config),
    /// No new requests from now on; what waits is dispatched as soon as possible. It cannot be undone.
    Drain,
    /// The timer fired, or may have.
    Timer,
}

/// Why a worker is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// It died; a member of its batch may be the cause.
    Crashed,
    /// It was killed because its batch took too long.
    TimedOut,
    /// The operator removed it; its batch is not the cause.
    Removed,
}

/// How a batch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchFailure {
    /// The model's code failed on the batch as a whole.
    Handler,
    /// The worker died.
    Crashed,
    /// The worker took too long.
    TimedOut,
}
