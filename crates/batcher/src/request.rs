//! A request as the caller describes it, and the names of requests, batches and workers.
//!
//! A request is only its numbers; its payload stays with the caller. `records` adds what the batcher
//! learns about it afterwards.

/// Nanoseconds on the caller's monotonic clock. The batcher has no clock of its own.
pub type Nanos = u64;

/// The deadline of a request that has none.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// A request's name: a dense index chosen by the caller and a generation.
///
/// The index may be reused once its request has ended, with another generation, so that an event
/// about the old request cannot hit the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Puts the index into the low and the generation into the high 32 bits.
    #[must_use]
    pub fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// The dense index: the low 32 bits.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot() as usize
    }

    pub(crate) fn slot(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }
}

/// A batch's name, given by the batcher, counting up from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// A worker's name, given by the caller. Low numbers are kept busy first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// The protocol a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OriginKind {
    /// REST.
    Http,
    /// gRPC.
    Grpc,
    /// A call from Python in the same process.
    Python,
}

/// Where a request came from. Kinds share a batch only if the model allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The protocol.
    pub kind: OriginKind,
    /// The connection or stream.
    pub peer: u64,
}

/// How urgent a request is; the smaller one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A user waits for the answer.
    Interactive,
    /// Fills the room that interactive requests leave, and gets a bounded turn of its own.
    Bulk,
}

/// One request as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// It must not be dispatched at or after this time; `u64::MAX` is no deadline.
    pub deadline: Nanos,
    /// Rows of work inside; they always share a batch. 0 counts as 1. A request that may be split
    /// arrives in parts, see `more`.
    pub items: u32,
    /// What all its items weigh together, in the unit of [`Config::max_cost`](crate::Config).
    pub cost: u64,
    /// Only requests of the same group (a padded shape, an adapter) share a batch.
    pub group: u16,
    /// Interactive or bulk.
    pub priority: Priority,
    /// Its tenant; tenants take turns where not all fit (adaptive policy).
    pub tenant: u32,
    /// Where it came from.
    pub origin: Origin,
    /// Whether this is a part of a request and the next event, at the same time, brings another
    /// part. Any other event means that no more parts come. Nothing is decided before the last part
    /// is there, so that parts can share a batch; the last one counts as the request.
    pub more: bool,
    /// Whether the next event, at the same time, is another arrival: the two came together. Nothing is decided
    /// before the last of them is there, so that they can share a batch.
    pub followed: bool,
    /// The only worker that can run it, for models that keep state between requests. It shares a
    /// batch only with requests of the same worker, is never tried again, and is rejected once that
    /// worker is gone.
    pub worker: Option<WorkerId>,
    /// The model that it asks for, of those that workers load when they need them ([`Config::models`](crate::Config));
    /// 0: none. It shares a batch only with requests for the same model.
    pub model: u64,
}

impl Request {
    /// What it adds to a number of requests: parts before the last add nothing.
    pub(crate) fn counts(&self) -> u32 {
        u32::from(!self.more)
    }

    /// An interactive HTTP request of one item and cost 1, without a deadline.
    #[must_use]
    pub fn new(id: RequestId) -> Self {
        Self {
            id,
            deadline: NEVER,
            items: 1,
            cost: 1,
            group: 0,
            priority: Priority::Interactive,
            tenant: 0,
            origin: Origin { kind: OriginKind::Http, peer: 0 },
            more: false,
            followed: false,
            worker: None,
            model: 0,
        }
    }
}
