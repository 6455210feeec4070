//! What the batches of a model version came to, by their size, since it was registered; and what the endpoints of a
//! definition did, each by itself. Models with one endpoint or none count nothing there: their own numbers say the same.
//!
//! Written by the model's task alone, so that a count is a load and a store; read by anyone at any time.
//! Numbers may be a moment apart from each other. A size costs memory once it was seen.

use std::ops::AddAssign;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jitney_batcher::{Dispatch, DispatchReason, Padding};
use tokio::time::Instant;

use crate::histogram::{AtomicHistogram, Distribution, ITEMS, TIME_US, TimeHistogram};
use crate::pending::EndpointIndex;

/// The reasons for which batches are dispatched, in the order of [`BatchTotals::reasons`].
pub const DISPATCH_REASONS: [DispatchReason; 7] = [
    DispatchReason::Full,
    DispatchReason::Idle,
    DispatchReason::Window,
    DispatchReason::Deadline,
    DispatchReason::Everyone,
    DispatchReason::Drain,
    DispatchReason::Retry,
];

/// Each size up to this one is counted by itself; larger ones with the others up to a power of two.
const EXACT_MAX: u32 = 128;

/// The exact sizes, and powers of two up to the largest batch that a frame can carry.
const BINS: usize = EXACT_MAX as usize + 9;

/// The totals of one bin, as they are counted.
#[derive(Debug, Default)]
struct SizeBin {
    batches: AtomicU64,
    items: AtomicU64,
    room: AtomicU64,
    reasons: [AtomicU64; DISPATCH_REASONS.len()],
    real: AtomicU64,
    padded: AtomicU64,
    answered_batches: AtomicU64,
    answered_items: AtomicU64,
    answered_requests: AtomicU64,
    queue_ns: AtomicU64,
    compute_ns: AtomicU64,
    failed_batches: AtomicU64,
}

/// What was counted about a number of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTotals {
    /// Batches that were dispatched, second tries included.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Items that they could have held: the largest batch size at the time of each.
    pub room: u64,
    /// Batches by the reason for their dispatch, in the order of [`DISPATCH_REASONS`].
    pub reasons: [u64; DISPATCH_REASONS.len()],
    /// What they cost without and with padding, where the model pads.
    pub padding: Padding,
    /// Batches that the model answered.
    pub answered_batches: u64,
    /// Items in those.
    pub answered_items: u64,
    /// Requests in those; one that was run in parts counts with its last part.
    pub answered_requests: u64,
    /// Nanoseconds that those requests waited, each from its admission to its dispatch.
    pub queue_ns: u64,
    /// Nanoseconds that the answered batches ran.
    pub compute_ns: u64,
    /// Batches on which the model or its worker failed.
    pub failed_batches: u64,
}

impl BatchTotals {
    /// Batches by the name of the reason for their dispatch.
    pub fn dispatches(&self) -> [(&'static str, u64); DISPATCH_REASONS.len()] {
        std::array::from_fn(|index| (DISPATCH_REASONS[index].as_str(), self.reasons[index]))
    }
}

impl AddAssign<&Self> for BatchTotals {
    fn add_assign(&mut self, other: &Self) {
        self.batches += other.batches;
        self.items += other.items;
        self.room += other.room;
        self.reasons.iter_mut().zip(other.reasons).for_each(|(sum, more)| *sum += more);
        self.padding.real += other.padding.real;
        self.padding.padded += other.padding.padded;
        self.answered_batches += other.answered_batches;
        self.answered_items += other.answered_items;
        self.answered_requests += other.answered_requests;
        self.queue_ns += other.queue_ns;
        self.compute_ns += other.compute_ns;
        self.failed_batches += other.failed_batches;
    }
}

/// The batches of one size, or of a range of large sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeStatistics {
    /// The fewest items of such a batch.
    pub smallest: u32,
    /// The most; the same for sizes that are counted each by itself.
    pub largest: u32,
    /// What was counted.
    pub totals: BatchTotals,
}

/// What the batches of a model version came to, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchStatistics {
    /// The sizes that were dispatched, ascending.
    pub sizes: Vec<SizeStatistics>,
    /// When the last of them was answered.
    pub last_answer: Option<Instant>,
}

impl BatchStatistics {
    /// All sizes together.
    pub fn total(&self) -> BatchTotals {
        let mut total = BatchTotals::default();
        self.sizes.iter().for_each(|size| total += &size.totals);
        total
    }

    /// How many batches were how large. A bin never crosses one of the bounds.
    pub(crate) fn batch_items(&self) -> Distribution {
        let mut counts = vec![0; ITEMS.len() + 1];
        for size in &self.sizes {
            let bucket = ITEMS.partition_point(|bound| *bound < size.largest.into());
            counts[bucket] += size.totals.batches;
        }
        Distribution { bounds: ITEMS, counts, sum: self.total().items, fine: None }
    }
}

/// The batches of a model version by size, while they are counted.
#[derive(Debug)]
pub(crate) struct BatchMeter {
    /// None before the first batch.
    bins: OnceLock<Box<[OnceLock<Box<SizeBin>>; BINS]>>,
    begun: Instant,
    /// Nanoseconds from then to the last answer; 0 before there was one.
    last_ns: AtomicU64,
}

impl Default for BatchMeter {
    fn default() -> Self {
        Self { bins: OnceLock::new(), begun: Instant::now(), last_ns: AtomicU64::new(0) }
    }
}

impl BatchMeter {
    /// A batch is dispatched; one of this model may hold `items_max` items.
    pub(super) fn dispatched(&self, dispatch: &Dispatch, items_max: u32) {
        let bin = self.bin(dispatch.items);
        count(&bin.batches, 1);
        count(&bin.items, dispatch.items.into());
        count(&bin.room, items_max.max(dispatch.items).into());
        if let Some(at) = DISPATCH_REASONS.iter().position(|known| *known == dispatch.reason) {
            count(&bin.reasons[at], 1);
        }
        if let Some(Padding { real, padded }) = dispatch.padding {
            count(&bin.real, real);
            count(&bin.padded, padded);
        }
    }

    /// A batch of this size was answered; its requests have waited for `queue` altogether.
    pub(super) fn answered(&self, items: u32, requests: u64, queue: Duration, compute: Duration) {
        let bin = self.bin(items);
        count(&bin.answered_batches, 1);
        count(&bin.answered_items, items.into());
        count(&bin.answered_requests, requests);
        count(&bin.queue_ns, queue.as_nanos() as u64);
        count(&bin.compute_ns, compute.as_nanos() as u64);
    }

    /// A batch was answered now.
    pub(super) fn answered_at(&self, now: Instant) {
        let nanos = now.saturating_duration_since(self.begun).as_nanos() as u64;
        self.last_ns.store(nanos.max(1), Relaxed);
    }

    /// The model or its worker failed on a batch of this size.
    pub(super) fn failed(&self, items: u32) {
        count(&self.bin(items).failed_batches, 1);
    }

    pub(crate) fn read(&self) -> BatchStatistics {
        let seen = |(at, bin): (usize, &OnceLock<Box<SizeBin>>)| {
            let (smallest, largest) = range(at);
            Some(SizeStatistics { smallest, largest, totals: bin.get()?.read() })
        };
        let last = Some(self.last_ns.load(Relaxed)).filter(|nanos| *nanos > 0);
        BatchStatistics {
            sizes: self
                .bins
                .get()
                .into_iter()
                .flat_map(|bins| bins.iter())
                .enumerate()
                .filter_map(seen)
                .collect(),
            last_answer: last.map(|nanos| self.begun + Duration::from_nanos(nanos)),
        }
    }

    fn bin(&self, items: u32) -> &SizeBin {
        let new = || Box::new([const { OnceLock::new() }; BINS]);
        self.bins.get_or_init(new)[bin_of(items)].get_or_init(Box::default)
    }
}

impl SizeBin {
    fn read(&self) -> BatchTotals {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        BatchTotals {
            batches: read(&self.batches),
            items: read(&self.items),
            room: read(&self.room),
            reasons: std::array::from_fn(|index| read(&self.reasons[index])),
            padding: Padding { real: read(&self.real), padded: read(&self.padded) },
            answered_batches: read(&self.answered_batches),
            answered_items: read(&self.answered_items),
            answered_requests: read(&self.answered_requests),
            queue_ns: read(&self.queue_ns),
            compute_ns: read(&self.compute_ns),
            failed_batches: read(&self.failed_batches),
        }
    }
}

/// Adds to a counter that has one writer.
fn count(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// The bin of a batch of so many items.
fn bin_of(items: u32) -> usize {
    if items <= EXACT_MAX {
        return items.saturating_sub(1) as usize;
    }
    let doublings = (items - 1).ilog2() - EXACT_MAX.ilog2();
    (EXACT_MAX + doublings).min(BINS as u32 - 1) as usize
}

/// The fewest and the most items of a batch in this bin.
fn range(bin: usize) -> (u32, u32) {
    let size = bin as u32 + 1;
    match size.checked_sub(EXACT_MAX) {
        None | Some(0) => (size, size),
        Some(doublings) => ((EXACT_MAX << (doublings - 1)) + 1, EXACT_MAX << doublings),
    }
}

/// Endpoints that are counted each by itself, so that metrics stay few; further ones are counted together.
const APART_MAX: usize = 31;

/// The name of the further ones; no function of Python is called so.
const FURTHER: &str = "(others)";

/// Where the endpoint with this number among so many is counted; nowhere if it is the only one.
pub(super) fn index_of(number: usize, count: usize) -> Option<EndpointIndex> {
    (count > 1).then_some(EndpointIndex(number.min(APART_MAX) as u8))
}

/// What an endpoint did so far.
#[derive(Clone, Debug)]
pub struct EndpointMeasures {
    /// Its name.
    pub name: String,
    /// Requests for it that fit.
    pub requests: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Those of them that were answered after their deadline or objective.
    pub late: u64,
    /// Microseconds from admission to answer.
    pub latency_us: Distribution,
    /// Microseconds that answered requests waited.
    pub queue_us: Distribution,
    /// Microseconds that answered batches ran.
    pub compute_us: Distribution,
    /// Items of dispatched batches.
    pub batch_items: Distribution,
}

#[derive(Debug)]
struct EndpointMeter {
    name: String,
    requests: AtomicU64,
    answered: AtomicU64,
    late: AtomicU64,
    latency_us: TimeHistogram,
    queue_us: AtomicHistogram,
    compute_us: AtomicHistogram,
    batch_items: AtomicHistogram,
}

/// The meters of all endpoints, by their index.
#[derive(Debug, Default)]
pub(crate) struct EndpointMeters(Box<[EndpointMeter]>);

impl EndpointMeters {
    pub(crate) fn new(names: &[String]) -> Self {
        if names.len() < 2 {
            return Self::default();
        }
        let further = (names.len() > APART_MAX).then_some(FURTHER);
        let names = names.iter().take(APART_MAX).map(String::as_str).chain(further);
        let meter = |name: &str| EndpointMeter {
            name: name.to_owned(),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            late: AtomicU64::new(0),
            latency_us: TimeHistogram::default(),
            queue_us: AtomicHistogram::new(TIME_US),
            compute_us: AtomicHistogram::new(TIME_US),
            batch_items: AtomicHistogram::new(ITEMS),
        };
        Self(names.map(meter).collect())
    }

    /// A request for it came.
    pub(super) fn requested(&self, index: EndpointIndex) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.requests.fetch_add(1, Relaxed);
        }
    }

    /// A batch of it is dispatched.
    pub(super) fn dispatched(&self, index: EndpointIndex, items: u32) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.batch_items.record(items.into());
        }
    }

    /// A request for it waited so long; the first of its batch says how long that ran.
    pub(super) fn ran(&self, index: EndpointIndex, queue: Duration, compute: Option<Duration>) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.queue_us.record(queue.as_micros() as u64);
            if let Some(compute) = compute {
                meter.compute_us.record(compute.as_micros() as u64);
            }
        }
    }

    /// A request for it was answered.
    pub(super) fn answered(&self, index: EndpointIndex, latency: Duration, is_late: bool) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.answered.fetch_add(1, Relaxed);
            meter.late.fetch_add(is_late.into(), Relaxed);
            meter.latency_us.record(latency.as_micros() as u64);
        }
    }

    pub(super) fn read(&self) -> Vec<EndpointMeasures> {
        let read = |meter: &EndpointMeter| EndpointMeasures {
            name: meter.name.clone(),
            requests: meter.requests.load(Relaxed),
            answered: meter.answered.load(Relaxed),
            late: meter.late.load(Relaxed),
            latency_us: meter.latency_us.read(),
            queue_us: meter.queue_us.read(),
            compute_us: meter.compute_us.read(),
            batch_items: meter.batch_items.read(),
        };
        self.0.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_lies_in_its_bin_and_the_bins_follow_each_other_without_a_gap() {
        for items in (1..=5000).chain([65_535, 65_536]) {
            let (smallest, largest) = range(bin_of(items));
            assert!(smallest <= items && items <= largest, "{items} in {smallest}..={largest}");
            assert_eq!(smallest == largest, items <= EXACT_MAX, "{items}");
        }
        assert_eq!((1..BINS).find(|bin| range(bin - 1).1 + 1 != range(*bin).0), None);
        assert_eq!((range(BINS - 1).1, bin_of(0), bin_of(u32::MAX)), (65_536, 0, BINS - 1));
    }

    #[test]
    fn no_bin_crosses_a_bound_of_the_metric() {
        let bound = |size: u32| ITEMS.partition_point(|bound| *bound < size.into());
        for (smallest, largest) in (0..BINS).map(range) {
            assert_eq!(bound(smallest), bound(largest), "{smallest}..={largest}");
        }
    }

    #[test]
    fn sizes_that_never_were_are_not_listed_and_the_total_is_their_sum() {
        let meter = BatchMeter::default();
        assert_eq!(meter.read(), BatchStatistics::default());
        let ms = Duration::from_millis;
        meter.answered(3, 3, ms(6), ms(5));
        meter.answered(3, 2, ms(4), ms(7));
        meter.failed(200);
        let read = meter.read();
        let sizes: Vec<_> = read.sizes.iter().map(|it| (it.smallest, it.largest)).collect();
        assert_eq!(sizes, [(3, 3), (129, 256)]);
        let total = read.total();
        assert_eq!(
            (total.answered_batches, total.answered_items, total.answered_requests),
            (2, 6, 5)
        );
        assert_eq!((total.queue_ns, total.compute_ns), (10_000_000, 12_000_000));
        assert_eq!((total.failed_batches, read.sizes[1].totals.failed_batches), (1, 1));
    }
}

#[cfg(test)]
mod endpoint_meters_tests {
    use super::*;

    #[test]
    fn a_model_with_one_endpoint_counts_nothing_and_one_with_many_not_more_than_a_few() {
        let names = |count: usize| (0..count).map(|at| format!("e{at}")).collect::<Vec<_>>();
        assert_eq!(index_of(0, 1), None);
        assert!(EndpointMeters::new(&names(1)).read().is_empty());
        let meters = EndpointMeters::new(&names(100));
        for number in 0..100 {
            meters.requested(index_of(number, 100).expect("an index"));
        }
        let read = meters.read();
        assert_eq!((read.len(), read[0].requests, read[31].requests), (32, 1, 69));
        assert_eq!(read[31].name, FURTHER);
    }
}
