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
    /// Most requests that may wait, and with them as many items as so many full batches hold;
    /// running ones do not count.
    pub max_queue: u32,
    /// Whether requests of different [`OriginKind`](crate::OriginKind)s may meet in a batch.
    pub mix_origins: bool,
    /// Whether members of a failed batch are tried again apart. Off for stateful models.
    pub isolate: bool,
    /// Retried departures that may be owed at a time. A batch earns as many as it has members when
    /// its first attempt is over, so that a few bad requests never cost the others their retry,
    /// while a model that fails everything is not run over and over.
    pub retry_budget: u32,
    /// What a batch's service time grows with (adaptive policy).
    pub measure: Measure,
    /// Sizes the model runs at, ascending; a batch is padded up to the next one, or trimmed to the
    /// one below where that is measured to be cheaper. Empty: any size (adaptive policy).
    pub sizes: Vec<u32>,
    /// Weights of tenants that are not 1, each at most once (adaptive policy).
    pub tenant_weights: Vec<(u32, u32)>,
}

impl Default for Config {
    /// No batching: one item at a time, as soon as a worker is free.
    fn default() -> Self {
        Self {
            policy: Policy::Opportunistic,
            max_items: 1,
            max_cost: u64::MAX,
            max_queue: 100,
            mix_origins: false,
            isolate: true,
            retry_budget: 64,
            measure: Measure::Items,
            sizes: Vec::new(),
            tenant_weights: Vec::new(),
        }
    }
}

impl Config {
    pub(crate) fn normal(mut self) -> Self {
        self.max_items = self.max_items.max(1);
        self.sizes.retain(|&size| size > 0 && size <= self.max_items);
        self.sizes.sort_unstable();
        self.sizes.dedup();
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
    /// When waiting does not pay any more, by what was learned of the model and of the arrivals.
    Adaptive(Adaptive),
}

/// What the adaptive policy is asked for. Everything else it learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adaptive {
    /// The latency asked for: a request without a deadline of its own gets its arrival plus this.
    pub objective: Option<Nanos>,
    /// Nobody waits longer than this for company while a worker is free.
    pub max_wait: Option<Nanos>,
    /// Time an answer takes from the batcher's caller to its client; kept free before a deadline.
    pub delivery: Nanos,
}

/// What the service time of a batch grows with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// The number of items.
    #[default]
    Items,
    /// The sum of the costs: a model that packs its items.
    Packed,
    /// The number of items times the longest of them, rounded up to half an octave: a model that
    /// pads, and so is what [`Config::max_cost`] limits where there are several. The cost of a
    /// request is its items times their length. Lengths of the same half octave form a lane, which
    /// borrows from the next shorter one.
    Padded,
}
