//! How often a number was how large: a histogram that any thread may add to without waiting.
//!
//! Buckets are fixed when it is made, so that recording is a short search and two atomic adds: no
//! lock, and no allocation after the first. Readers may see a record's bucket before its sum; for a metric that is enough.
//!
//! Times of requests and batches, counted so finely that two forms of histograms can be told from them.
//!
//! One form has the few fixed bounds that every Prometheus knows. The other is its native histogram, whose
//! buckets grow by a constant factor. A bound of either form is a bound here, so both are exact. Recording
//! takes one look into a table, a step or two, and two atomic adds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

/// Microseconds: from a tenth of a millisecond to a minute.
pub(crate) const TIME_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
/// Microseconds that loading takes: from a tenth of a second to half an hour.
pub(crate) const LOAD_US: &[u64] = &[
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    1_800_000_000,
];
/// Items of a batch.
pub(crate) const ITEMS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Thousandths of a full batch.
pub(crate) const FILL_PERMILLE: &[u64] = &[100, 200, 300, 400, 500, 600, 700, 800, 900, 1000];
/// Thousandths of what was expected.
pub(crate) const RATIO_PERMILLE: &[u64] =
    &[500, 700, 800, 900, 950, 980, 1000, 1020, 1050, 1100, 1200, 1500, 2000, 5000];

/// A histogram of whole numbers.
#[derive(Debug)]
pub(crate) struct AtomicHistogram {
    bounds: &'static [u64],
    /// One per bound, and one for what is above the last. None before the first number: most models of a server with
    /// very many are never asked.
    buckets: OnceLock<Box<[AtomicU64]>>,
    sum: AtomicU64,
}

impl AtomicHistogram {
    /// An empty one; a bound is the largest number that its bucket holds.
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, buckets: OnceLock::new(), sum: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let new = || (0..=self.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        self.buckets.get_or_init(new)[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// The total of what was recorded.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    pub(crate) fn read(&self) -> Distribution {
        let mut counts = vec![0; self.bounds.len() + 1];
        for (count, bucket) in counts.iter_mut().zip(self.buckets.get().into_iter().flatten()) {
            *count = bucket.load(Relaxed);
        }
        Distribution { bounds: self.bounds, counts, sum: self.sum(), fine: None }
    }
}

/// What a histogram held when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The largest number of each bucket but the last, which has no limit.
    pub bounds: &'static [u64],
    /// How many fell into each bucket; one more than there are bounds.
    pub counts: Vec<u64>,
    /// Their total.
    pub sum: u64,
    /// The same counts in finer buckets, of times that are counted so.
    pub fine: Option<FineCounts>,
}

/// Counts in the buckets of a native histogram of Prometheus, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FineCounts {
    /// There are `2^schema` buckets to a doubling.
    pub schema: i32,
    /// How many took no time that could be measured.
    pub zero: u64,
    /// Bucket and count, ascending, without those that are empty. Bucket `i` ends with `2^(i / 2^schema)`.
    pub buckets: Vec<(i32, u64)>,
}

impl Distribution {
    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Native buckets to a doubling, as a power of two: neighbours differ by 9 percent.
const SCHEMA: i32 = 3;
const PER_DOUBLING: i32 = 1 << SCHEMA;
/// The native bucket of one microsecond; bucket `i` ends with `2^(i/8)` seconds.
const FIRST: i32 = -159;
/// The last one: it ends with 4096 seconds. Longer times are counted in the one after it.
const LAST: i32 = 12 * PER_DOUBLING;

/// Times in microseconds are looked up by their length in bits and the three bits after the first.
const KEYS: usize = 240;
const LONGEST_US: u64 = u32::MAX as u64;

static CELLS: LazyLock<Cells> = LazyLock::new(Cells::new);

/// All bounds of both forms, ascending. A cell holds the times up to its bound and above the one before.
#[derive(Debug)]
struct Cells {
    /// Microseconds; the last cell has no limit.
    bounds: Vec<u64>,
    /// The first cell that a time of this key can be in.
    starts: [u16; KEYS],
    /// The bucket of each cell in the fixed form.
    fixed: Vec<usize>,
    /// The same in the native form; none for no time at all.
    native: Vec<Option<i32>>,
}

impl Cells {
    fn new() -> Self {
        let end = |bucket: i32| (1e6 * (f64::from(bucket) / f64::from(PER_DOUBLING)).exp2()) as u64;
        let native: Vec<u64> = (FIRST..=LAST).map(end).collect();
        let mut bounds: Vec<u64> = native.iter().chain(TIME_US).copied().chain([0]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds.push(u64::MAX);
        let cell = |time: u64| bounds.partition_point(|bound| *bound < time);
        let bucket = |bound: &u64| native.partition_point(|end| *end < *bound) as i32 + FIRST;
        Self {
            starts: std::array::from_fn(|key| cell(first_of(key)) as u16),
            fixed: bounds.iter().map(|it| TIME_US.partition_point(|end| end < it)).collect(),
            native: bounds.iter().map(|it| (*it > 0).then(|| bucket(it))).collect(),
            bounds,
        }
    }
}

/// The key of a time.
fn key_of(time: u64) -> usize {
    let bits = time.max(8).ilog2();
    let low = if time < 8 { 0 } else { (bits - 2) * 8 };
    low as usize + ((time >> (bits - 3)) & 7) as usize
}

/// The shortest time of a key.
fn first_of(key: usize) -> u64 {
    let (doubling, step) = (key as u64 / 8, key as u64 % 8);
    if doubling == 0 { step } else { (8 + step) << (doubling - 1) }
}

/// A histogram of times in microseconds.
#[derive(Debug)]
pub(crate) struct TimeHistogram {
    cells: &'static Cells,
    /// None before the first time.
    counts: OnceLock<Box<[AtomicU64]>>,
    sum: AtomicU64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self { cells: &CELLS, counts: OnceLock::new(), sum: AtomicU64::new(0) }
    }
}

impl TimeHistogram {
    pub(crate) fn record(&self, micros: u64) {
        let mut cell = usize::from(self.cells.starts[key_of(micros.min(LONGEST_US))]);
        while self.cells.bounds[cell] < micros {
            cell += 1;
        }
        let new = || self.cells.bounds.iter().map(|_| AtomicU64::new(0)).collect();
        self.counts.get_or_init(new)[cell].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    pub(crate) fn read(&self) -> Distribution {
        let mut counts = vec![0; TIME_US.len() + 1];
        let mut fine = FineCounts { schema: SCHEMA, ..FineCounts::default() };
        for (cell, count) in self.counts.get().into_iter().flatten().enumerate() {
            let count = count.load(Relaxed);
            if count == 0 {
                continue;
            }
            counts[self.cells.fixed[cell]] += count;
            match (self.cells.native[cell], fine.buckets.last_mut()) {
                (None, _) => fine.zero += count,
                (Some(bucket), Some((last, sum))) if *last == bucket => *sum += count,
                (Some(bucket), _) => fine.buckets.push((bucket, count)),
            }
        }
        let (bounds, sum) = (TIME_US, self.sum.load(Relaxed));
        Distribution { bounds, counts, sum, fine: Some(fine) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket_and_the_last_bucket_takes_the_rest() {
        let histogram = AtomicHistogram::new(&[1, 2, 4]);
        for value in [0, 1, 2, 3, 4, 5, 1000] {
            histogram.record(value);
        }
        let read = histogram.read();
        assert_eq!(read.counts, [2, 1, 2, 2]);
        assert_eq!((read.count(), read.sum), (7, 1015));
    }

    #[test]
    fn every_set_of_bounds_rises() {
        for bounds in [TIME_US, LOAD_US, ITEMS, FILL_PERMILLE, RATIO_PERMILLE] {
            assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        }
    }

    /// Times around every bound, and some others.
    fn times() -> Vec<u64> {
        let near =
            CELLS.bounds.iter().flat_map(|it| [it.saturating_sub(1), *it, it.wrapping_add(1)]);
        near.chain(0..300).chain([u64::MAX / 2, LONGEST_US, LONGEST_US + 1]).collect()
    }

    #[test]
    fn the_fixed_buckets_are_those_of_the_plain_histogram() {
        let (fine, plain) = (TimeHistogram::default(), AtomicHistogram::new(TIME_US));
        for time in times().into_iter().filter(|time| *time < 1 << 50) {
            fine.record(time);
            plain.record(time);
        }
        let (fine, plain) = (fine.read(), plain.read());
        assert_eq!((fine.bounds, &fine.counts, fine.sum), (plain.bounds, &plain.counts, plain.sum));
        let all = fine.fine.clone().expect("fine counts");
        let counted: u64 = all.zero + all.buckets.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(counted, fine.count());
    }

    #[test]
    fn a_time_is_in_the_native_bucket_that_its_logarithm_says() {
        for time in times().into_iter().filter(|time| (1..4_096_000_000).contains(time)) {
            let histogram = TimeHistogram::default();
            histogram.record(time);
            let fine = histogram.read().fine.expect("fine counts");
            let [(bucket, 1)] = fine.buckets[..] else { panic!("{time}: {fine:?}") };
            let seconds = time as f64 / 1e6;
            let end = |bucket: i32| (f64::from(bucket) / 8.0).exp2();
            assert!(seconds <= end(bucket) * (1.0 + 1e-12), "{time} in {bucket}");
            assert!(seconds > end(bucket - 1) * (1.0 - 1e-12), "{time} in {bucket}");
        }
    }

    #[test]
    fn no_time_is_too_short_or_too_long() {
        let histogram = TimeHistogram::default();
        [0, u64::MAX].into_iter().for_each(|time| histogram.record(time));
        let fine = histogram.read().fine.expect("fine counts");
        assert_eq!((fine.zero, &fine.buckets[..]), (1, &[(LAST + 1, 1)][..]));
        assert_eq!(key_of(LONGEST_US), KEYS - 1);
    }
}
