//! Everything that can happen to a batcher.
//!
//! Apart from `action`, its mirror: events come in, actions go out. An event is a fact; it never
//! carries a decision.

use crate::config::Config;
use crate::request::{BatchId, Nanos, Origin, Request, RequestId, WorkerId};

/// One fact, told to [`Batcher::step`](crate::Batcher::step).
///
/// A stale one (an unknown batch or worker, a request that has ended) is ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A complete request is here. Its index must not belong to a request that has not ended.
    Arrive(Request),
    /// A request has begun to arrive; its body is not complete. It is expected to follow
    /// soon (adaptive policy).
    Announce {
        /// Where it is coming from.
        origin: Origin,
    },
    /// An announced request will not come after all.
    Retract {
        /// Where it was coming from.
        origin: Origin,
    },
    /// The client went away.
    Cancel {
        /// The request nobody waits for any more.
        id: RequestId,
    },
    /// A worker is ready. For a worker already known: it now has this many slots and stays.
    WorkerUp {
        /// The worker.
        worker: WorkerId,
        /// Batches it may hold at a time.
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
    /// A batch was within its worker's reach so long after it should have left; tells how far ahead
    /// of its end a worker with a second slot is handed the next one (adaptive policy).
    Handed {
        /// From the moment it was due until the worker could take it.
        took: Nanos,
    },
    /// The batch is answered; so are all its members.
    Done {
        /// The batch.
        batch: BatchId,
        /// How long it took the worker.
        exec: Nanos,
    },
    /// A batch that was none of ours took so long: a trial run before anybody came.
    Measured {
        /// The group of its items.
        group: u16,
        /// How many there were.
        items: u32,
        /// What all of them cost together.
        cost: u64,
        /// How long it took the worker.
        exec: Nanos,
    },
    /// The batch failed but its worker lives on. A worker that died is told by `WorkerDown` alone.
    Failed {
        /// The batch.
        batch: BatchId,
        /// How it failed.
        kind: BatchFailure,
    },
    /// New knobs for the live batcher.
    Configure(Config),
    /// No new requests from now on; what is here leaves as soon as it can. There is no way back.
    Drain,
    /// The timer fired, or may have.
    Timer,
}

/// Why a worker is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// It died; a member of its batch may be to blame.
    Crashed,
    /// It was killed because its batch took too long.
    TimedOut,
    /// The operator took it away; its batch is innocent.
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
