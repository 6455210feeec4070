//! Everything a batcher can ask for, and the reusable buffer it is written into.
//!
//! The members of a batch lie in the buffer beside the actions, so that a dispatch costs no
//! allocation.

use crate::event::BatchFailure;
use crate::padding::Padding;
use crate::request::{BatchId, Nanos, RequestId, WorkerId};

/// One thing the caller must do now. Actions are to be carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand these requests to this worker as one batch.
    Dispatch(Dispatch),
    /// The request ends here: it was not tried, or will not be tried again.
    Reject {
        /// The request.
        id: RequestId,
        /// Why.
        reason: Rejection,
        /// When it may be worth trying again, from now; where it is known.
        retry_after: Option<Nanos>,
    },
    /// The request ends here: its batch failed and it will not be tried again.
    Fail {
        /// The request.
        id: RequestId,
        /// How its last batch failed.
        kind: BatchFailure,
    },
    /// Send `Event::Timer` at this time, unless another action about the timer comes before.
    SetTimer(Nanos),
    /// No timer is needed.
    ClearTimer,
}

/// A batch to be handed to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// A worker with a free slot.
    pub worker: WorkerId,
    /// The name under which to report `Done` or `Failed`.
    pub batch: BatchId,
    /// The requests in the batch; read them with [`Actions::members`].
    pub members: MemberRange,
    /// Items of all members together.
    pub items: u32,
    /// 1 for the first try.
    pub attempt: u8,
    /// Why the batch is dispatched now.
    pub reason: DispatchReason,
    /// What the batch costs without and with padding; none where nothing is padded.
    pub padding: Option<Padding>,
    /// How long the worker is expected to take, if anything was learned.
    pub predicted: Option<Nanos>,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The queue is at its limit of requests or items.
    QueueFull,
    /// It would not fit into any batch.
    TooLarge,
    /// Its deadline passed while it waited.
    Expired,
    /// Its client disconnected.
    Cancelled,
    /// The model is being shut down.
    Draining,
    /// It could not be answered before its deadline (adaptive policy).
    Infeasible,
    /// Serving it would make others late (adaptive policy).
    Overload,
    /// Its tenant holds more than its share of a full queue (adaptive policy).
    Quota,
    /// Its worker is gone. The batcher rejects only pinned requests so and lets others wait.
    NoWorker,
}

impl Rejection {
    /// The name in metrics, error messages and documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::TooLarge => "too_large",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Draining => "draining",
            Self::Infeasible => "hopeless",
            Self::Overload => "overload",
            Self::Quota => "quota",
            Self::NoWorker => "no_worker",
        }
    }
}

/// Why a batch is dispatched now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DispatchReason {
    /// It has reached its limit, or the next request would not fit.
    Full,
    /// A worker is free and waiting does not pay.
    Idle,
    /// Its oldest request has waited for the whole window.
    Window,
    /// A member must be dispatched now to be in time.
    Deadline,
    /// All clients that could come have come (adaptive policy).
    Everyone,
    /// The model is being shut down.
    Drain,
    /// It is a part of a batch that failed.
    Retry,
}

impl DispatchReason {
    /// The name in metrics, timings and documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Idle => "idle",
            Self::Window => "window",
            Self::Deadline => "deadline",
            Self::Everyone => "everyone",
            Self::Drain => "drain",
            Self::Retry => "retry",
        }
    }
}

/// The requests of a batch: a range of the [`Actions`] that hold the dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRange {
    start: usize,
    len: usize,
}

impl MemberRange {
    /// Requests in the batch, never none.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Where [`Batcher::step`](crate::Batcher::step) writes what is to be done; reuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    actions: Vec<Action>,
    members: Vec<RequestId>,
}

impl Actions {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.actions.clear();
        self.members.clear();
    }

    /// The actions, in the order in which they are to be carried out.
    pub fn iter(&self) -> impl Iterator<Item = &Action> {
        self.actions.iter()
    }

    /// The requests of a dispatch, in their order in the batch.
    ///
    /// # Panics
    /// If the range comes from another buffer, or from before this one was cleared.
    #[must_use]
    pub fn members(&self, members: &MemberRange) -> &[RequestId] {
        &self.members[members.start..members.start + members.len]
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn list(&mut self, ids: impl Iterator<Item = RequestId>) -> MemberRange {
        let start = self.members.len();
        self.members.extend(ids);
        MemberRange { start, len: self.members.len() - start }
    }
}
