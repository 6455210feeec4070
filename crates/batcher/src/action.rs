//! Everything a batcher can ask for, and the reusable buffer it is written into.
//!
//! Apart from `event`, its mirror. Members of a batch lie in the buffer beside the actions, so
//! that a dispatch costs no allocation; the buffer never looks at what it holds.

use crate::event::Failure;
use crate::padding::Padding;
use crate::request::{BatchId, Nanos, RequestId, WorkerId};

/// One thing the caller must do now. Actions are to be carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand these requests to this worker as one batch.
    Dispatch {
        /// A worker with a free slot.
        worker: WorkerId,
        /// The name under which to report `Done` or `Failed`.
        batch: BatchId,
        /// Who travels; read them with [`Actions::members`].
        members: Members,
        /// Items of all members together.
        items: u32,
        /// 1 for the first try.
        attempt: u8,
        /// Why the batch leaves now.
        reason: Departure,
        /// Items to pad the batch to: one of [`Config::allowed_sizes`](crate::Config), or `items`.
        size: u32,
        /// What it costs as it came and as it is run; none where nothing is ever padded.
        padding: Option<Padding>,
        /// How long the worker is expected to take, if anything was learned.
        predicted: Option<Nanos>,
        /// When the batch is expected to be answered, if anything was learned. Later than now plus
        /// `predicted` where it waits behind another batch on the same worker.
        planned_finish: Option<Nanos>,
    },
    /// The request ends here, untried or not to be tried again.
    Reject {
        /// The request.
        id: RequestId,
        /// Why.
        reason: Refusal,
        /// When it may be worth trying again, from now; where it is known.
        retry_after: Option<Nanos>,
    },
    /// The request ends here: its batch failed and it will not be tried again.
    Fail {
        /// The request.
        id: RequestId,
        /// How its last batch failed.
        kind: Failure,
    },
    /// Send `Event::Timer` at this time, unless another action about the timer comes before.
    SetTimer(Nanos),
    /// No timer is needed.
    ClearTimer,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// As many requests wait as may.
    QueueFull,
    /// It would not fit into any batch.
    TooLarge,
    /// Its deadline passed while it waited.
    Expired,
    /// Its client went away.
    Cancelled,
    /// The model is being shut down.
    Draining,
    /// It could not be answered before its deadline (adaptive policy).
    Hopeless,
    /// Serving it would make others late (adaptive policy).
    Overload,
    /// Its tenant holds more than its share of a full queue (adaptive policy).
    Quota,
    /// There is nobody to run it. The batcher says so of pinned requests only and lets others wait.
    NoWorker,
}

/// Why a batch leaves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Departure {
    /// It has reached its limit, or the next request would not fit.
    Full,
    /// A worker is free and waiting does not pay.
    Idle,
    /// Its oldest request has waited for the whole window.
    Window,
    /// A member must leave now to be in time.
    Deadline,
    /// All who can come have come (adaptive policy).
    Everyone,
    /// The model is being shut down.
    Drain,
    /// It is a part of a batch that failed.
    Retry,
}

impl Departure {
    /// The word used in metrics, receipts and documents.
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

/// Who travels in a batch: a range of the [`Actions`] that hold the dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    start: usize,
    len: usize,
}

impl Members {
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

    /// The requests of a dispatch, in the order in which they travel.
    ///
    /// # Panics
    /// If the range comes from another buffer, or from before this one was cleared.
    #[must_use]
    pub fn members(&self, members: &Members) -> &[RequestId] {
        &self.members[members.start..members.start + members.len]
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn list(&mut self, ids: impl Iterator<Item = RequestId>) -> Members {
        let start = self.members.len();
        self.members.extend(ids);
        Members { start, len: self.members.len() - start }
    }
}
