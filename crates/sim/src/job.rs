//! One request of a simulated world, and how it ended.

use jitney_batcher::Nanos;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// When it arrives.
    pub at: Nanos,
    /// When its answer is too late; `u64::MAX` is never.
    pub deadline: Nanos,
    /// The tenant.
    pub tenant: u32,
    /// Which connection it comes from.
    pub client: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedEnd {
    /// Its batch finished.
    Answered {
        /// When.
        at: Nanos,
        /// Requests in its batch.
        batch: u32,
    },
    /// The policy rejected it, early or late.
    Rejected {
        /// When.
        at: Nanos,
    },
}
