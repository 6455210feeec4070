//! What a caller says about a request when it arrives, and the names things go by.
//!
//! Apart from `records`, which adds what the batcher learns about a request afterwards: nothing
//! here changes once it was said. No payload ever comes this way; a request is its numbers.

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

/// The door a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OriginKind {
    /// REST.
    Http,
    /// gRPC.
    Grpc,
    /// A call from Python in the same process.
    Python,
}

/// Where a request came from. Kinds meet in a batch only if the model allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The door.
    pub kind: OriginKind,
    /// The connection or stream behind the door.
    pub peer: u64,
}

/// How urgent a request is; the smaller one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Somebody waits for the answer.
    Interactive,
    /// Fills the room that interactive requests leave, and gets a bounded turn of its own.
    Bulk,
}

/// One request as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// It must not depart at or after this time; `u64::MAX` means it has all the time it wants.
    pub deadline: Nanos,
    /// Rows of work inside; they always travel together. 0 counts as 1. A request whose rows need not
    /// arrives in portions, see `more`.
    pub items: u32,
    /// What all its items weigh together, in the unit of [`Config::max_cost`](crate::Config).
    pub cost: u64,
    /// Only requests of the same group (a padded shape, an adapter) meet in a batch.
    pub group: u16,
    /// Interactive or bulk.
    pub priority: Priority,
    /// Who pays; tenants take turns where not all fit (adaptive policy).
    pub tenant: u32,
    /// Where it came from.
    pub origin: Origin,
    /// Whether this is a portion of a request that was taken apart and the next event, at this very
    /// time, brings another one; any other event says that there will be no more. Nothing is decided
    /// before the last portion is there, so that those who may travel together do, and the last one
    /// stands for the whole where requests are counted.
    pub more: bool,
    /// The only worker that can run it, for models that keep state between requests. It meets only
    /// those of the same worker, is never tried again, and is refused once that worker is not there.
    pub worker: Option<WorkerId>,
}

impl Request {
    /// What it adds to a number of requests: portions before the last add nothing.
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
            worker: None,
        }
    }
}
