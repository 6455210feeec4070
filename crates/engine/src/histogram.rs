//! How often a number was how large: a histogram that any thread may add to without waiting.
//!
//! Buckets are fixed when it is made, so that recording is a short search and two atomic adds: no
//! lock, no allocation. Readers may see a record's bucket before its sum; for a metric that is enough.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// One per bound, and one for what is above the last.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl AtomicHistogram {
    /// An empty one; a bound is the largest number that its bucket holds.
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// The total of what was recorded.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    pub(crate) fn read(&self) -> Distribution {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
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
}
