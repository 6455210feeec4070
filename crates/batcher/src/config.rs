//! The configuration of one batcher: plain values that can be replaced while it runs.
//!
//! Nothing here reads a file, a flag or the environment.

use crate::request::{Nanos, Request};

/// Most lengths of a model; those above are half octaves.
const LENGTHS_MAX: usize = 64;

/// When a batch is dispatched and how large it may be. Changed live by `Event::Configure`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// When a batch is dispatched.
    pub policy: Policy,
    /// Most items in a batch; 0 counts as 1.
    pub max_items: u32,
    /// Most cost in a batch; `u64::MAX` is no limit.
    pub max_cost: u64,
    /// Most requests that may wait; at most `max_queue * max_items` items may wait. Running requests
    /// do not count, nor do those that have run and are tried again.
    pub max_queue: u32,
    /// Whether requests of different [`OriginKind`](crate::OriginKind)s may share a batch.
    pub mix_origins: bool,
    /// Whether members of a failed batch are tried again in smaller batches. Off for stateful models.
    pub isolate: bool,
    /// Most retries that may be spent and not yet earned back. A batch earns one per member when its
    /// first attempt is over. So a few bad requests never cost the others their retry, and a model
    /// that fails everything is not run over and over.
    pub retry_budget: u32,
    /// How long after the first exit of their worker requests are tried again; those that are left then fail.
    pub suspect_time: Nanos,
    /// What a batch's service time grows with (adaptive policy).
    pub measure: Measure,
    /// Batch sizes, in items, at which the model runs; empty: any. The worker pads a batch to the
    /// next larger one. A batch
    /// larger than all of them runs as it is. The adaptive policy knows what each size takes, and
    /// ends a batch at a smaller size where that is faster. Only with [`Measure::Items`], or with
    /// [`Measure::Padded`] and `lengths`.
    pub sizes: Vec<u32>,
    /// Lengths at which a model runs that pads ([`Measure::Padded`]); empty: any. They form the groups
    /// instead of half octaves; a longer item is in a half octave above the last. A batch runs at the
    /// length of its group, and its number of items at the next larger of `sizes`.
    pub lengths: Vec<u32>,
    /// Whether it is found by trial how many slots of a worker are best filled where it prepares one
    /// batch while it runs another; otherwise all of them are (adaptive policy).
    pub seek_slots: bool,
    /// Models that a worker keeps at a time of those that requests ask for ([`Request::model`]).
    pub models: u32,
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
            suspect_time: 240_000_000_000,
            measure: Measure::Items,
            sizes: Vec::new(),
            lengths: Vec::new(),
            seek_slots: true,
            models: 0,
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
        self.lengths.retain(|&length| length > 0 && self.measure == Measure::Padded);
        self.lengths.sort_unstable();
        self.lengths.dedup();
        self.lengths.truncate(LENGTHS_MAX);
        self
    }

    /// The numbers of items at which the model runs; none where cost and not items is measured.
    pub(crate) fn run_sizes(&self) -> &[u32] {
        let items = self.measure == Measure::Items || !self.lengths.is_empty();
        if items { &self.sizes } else { &[] }
    }

    /// The class of lengths whose group a request belongs to; one for all where nothing is padded.
    pub(crate) fn class(&self, request: &Request) -> u8 {
        self.class_of_items(request.items, request.cost)
    }

    /// The same for so many items of this cost.
    pub(crate) fn class_of_items(&self, items: u32, cost: u64) -> u8 {
        match self.measure {
            Measure::Items | Measure::Packed => 0,
            Measure::Padded => self.padded_class(items, cost),
        }
    }

    /// What a batch of this class weighs against [`Config::max_cost`].
    pub(crate) fn weight(&self, class: u8, items: u64, cost: u128) -> u128 {
        match self.measure {
            Measure::Items | Measure::Packed => cost,
            Measure::Padded => u128::from(items) * u128::from(self.ceiling(class)),
        }
    }

    /// What a request adds to the size of a batch.
    pub(crate) fn size_of(&self, items: u32, cost: u64) -> u32 {
        let size = match self.measure {
            Measure::Items => return items.max(1),
            Measure::Packed => cost,
            Measure::Padded => {
                let longest = self.ceiling(self.padded_class(items, cost));
                u64::from(items).saturating_mul(longest)
            }
        };
        u32::try_from(size.max(1)).unwrap_or(u32::MAX)
    }

    /// The size at which a batch runs that has this size without padded rows, of this class.
    pub(crate) fn ran(&self, class: u8, size: u64) -> u64 {
        match self.measure {
            Measure::Items => self.run_rows(size),
            Measure::Packed => size,
            Measure::Padded if self.lengths.is_empty() => size,
            Measure::Padded => {
                let item = self.ceiling(class);
                self.run_rows(size.div_ceil(item)).saturating_mul(item)
            }
        }
    }

    /// The size of an item where [`Config::run_sizes`] count items of a padded model.
    pub(crate) fn item(&self, class: u8) -> u64 {
        match self.measure {
            Measure::Items | Measure::Packed => 1,
            Measure::Padded => self.ceiling(class),
        }
    }

    /// The size at which a batch of this many items runs.
    pub(crate) fn run_size(&self, items: u32) -> u32 {
        self.run_sizes().iter().copied().find(|&size| size >= items).unwrap_or(items)
    }

    /// Whether the request does not fit into any batch.
    pub(crate) fn too_large(&self, request: &Request) -> bool {
        !self.holds(request.items.into(), request.cost.into())
    }

    /// Whether a batch may weigh this much.
    pub(crate) fn holds(&self, items: u64, cost: u128) -> bool {
        items <= self.max_items.into() && cost <= self.max_cost.into()
    }
}

/// When a batch is dispatched, given that a worker has a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// When it is full, or when its oldest request arrived `delay` ago.
    Window {
        /// Counted from the arrival of the oldest request, not from when a worker came free.
        delay: Nanos,
    },
    /// At once, with whatever waits.
    Opportunistic,
    /// When waiting does not pay any more, by what was learned about the model and the arrivals.
    Adaptive(Adaptive),
}

/// What the adaptive policy is asked for. Everything else it learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adaptive {
    /// The latency asked for: a request without a deadline of its own gets its arrival plus this.
    pub objective: Option<Nanos>,
    /// No request waits longer than this for others while a worker is free.
    pub max_wait: Option<Nanos>,
    /// Time an answer takes to its client; reserved before every deadline.
    pub delivery: Nanos,
    /// A fixed rule for when to dispatch, as [`Policy::Window`] has it. Which requests go, and which
    /// are rejected because they would be late, is decided as without it.
    pub window: Option<Nanos>,
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
    /// pads. [`Config::max_cost`] limits the same where there are several items. The cost of a
    /// request is its items times their length. Lengths of one half octave form a group, which
    /// borrows from the next shorter one.
    Padded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_runs_at_the_next_larger_size() {
        let config = |measure| {
            let sizes = vec![8, 2, 0, 4, 2, 64];
            Config { sizes, measure, max_items: 32, ..Config::default() }.normal()
        };
        let items = config(Measure::Items);
        assert_eq!(items.sizes, [2, 4, 8], "sorted, without those no batch can reach");
        assert_eq!([1, 2, 3, 8, 9].map(|count| items.run_size(count)), [2, 2, 4, 8, 9]);
        assert_eq!(config(Measure::Packed).run_size(3), 3, "costs are not padded");
        assert_eq!(Config::default().run_size(3), 3);
    }
}
