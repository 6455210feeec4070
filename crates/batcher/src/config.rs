//! The knobs of one batcher, plain values that can be replaced while it runs.
//!
//! Apart from `policy`, which acts on them. Nothing here reads a file, a flag or the environment,
//! and no value is ever derived from another.

use crate::request::{Nanos, Request};

/// When a batch departs and how large it may be. Changed live by `Event::Configure`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// When a batch departs.
    pub policy: Policy,
    /// Most items in a batch; 0 counts as 1.
    pub max_items: u32,
    /// Most cost in a batch; `u64::MAX` is no limit.
    pub max_cost: u64,
    /// Most requests that may wait; running ones do not count.
    pub queue_max: u32,
    /// Whether requests of different [`OriginKind`](crate::OriginKind)s may meet in a batch.
    pub mix_origins: bool,
    /// Whether members of a failed batch are tried again apart. Off for stateful models.
    pub isolate: bool,
    /// Retried departures that may be owed at a time. A batch earns as many as it has members when
    /// its first attempt is over, so that a few bad requests never cost the others their retry,
    /// while a model that fails everything is not run over and over.
    pub retry_budget: u32,
}

impl Default for Config {
    /// No batching: one item at a time, as soon as a worker is free.
    fn default() -> Self {
        Self {
            policy: Policy::Opportunistic,
            max_items: 1,
            max_cost: u64::MAX,
            queue_max: 100,
            mix_origins: false,
            isolate: true,
            retry_budget: 64,
        }
    }
}

impl Config {
    pub(crate) fn normal(mut self) -> Self {
        self.max_items = self.max_items.max(1);
        self
    }

    /// Whether the request could not travel even alone.
    pub(crate) fn too_large(&self, request: &Request) -> bool {
        !self.holds(request.items.into(), request.cost.into())
    }

    /// Whether a batch may weigh this much.
    pub(crate) fn holds(&self, items: u64, cost: u128) -> bool {
        items <= self.max_items.into() && cost <= self.max_cost.into()
    }
}

/// When a batch departs, given that a worker has a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// When it is full, or when its oldest request arrived `delay` ago.
    Window {
        /// Counted from the arrival of the oldest request, not from when a worker came free.
        delay: Nanos,
    },
    /// At once, with whatever is there.
    Opportunistic,
}
