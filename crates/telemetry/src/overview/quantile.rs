//! Quantiles of the times that were counted between two looks at a histogram.

use jitney_engine::FineCounts;

/// The last class of latencies has no end.
const CLASSES: usize = 15;

/// Half of the requests took no longer than the first, all but one in ten, in a hundred and in a thousand no
/// longer than the others; nothing where there were none. Buckets grow by 9 percent, so these are no further
/// off.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Quantiles {
    pub(super) p50_ms: Option<f64>,
    pub(super) p90_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) p999_ms: Option<f64>,
    /// How many took up to 1 ms, 2 ms, 4 ms and so on, without zeros at the end.
    pub(super) classes: Vec<u64>,
}

/// Times that were counted together.
#[derive(Clone, Copy, Debug)]
struct TimeRange {
    low_ms: f64,
    high_ms: f64,
    count: u64,
}

impl Quantiles {
    /// Of what was counted in `now` and not in `before`.
    pub(super) fn between(before: &FineCounts, now: &FineCounts) -> Self {
        let ranges = ranges(before, now);
        let millis = |share| quantile(&ranges, share).map(|ms| (ms * 1e2).round() / 1e2);
        Self {
            p50_ms: millis(0.5),
            p90_ms: millis(0.9),
            p99_ms: millis(0.99),
            p999_ms: millis(0.999),
            classes: classes(ranges.iter().map(|range| (range.high_ms, range.count))),
        }
    }
}

/// Counts by the power of two that a value is no larger than, from 1 on; without zeros at the end.
pub(super) fn classes(values: impl Iterator<Item = (f64, u64)>) -> Vec<u64> {
    let mut classes = Vec::new();
    for (value, count) in values.filter(|(_, count)| *count > 0) {
        let class = (value.log2().ceil().max(0.0) as usize).min(CLASSES - 1);
        classes.resize(classes.len().max(class + 1), 0);
        classes[class] += count;
    }
    classes
}

/// What was counted in `now` and not in `before`, ascending.
fn ranges(before: &FineCounts, now: &FineCounts) -> Vec<TimeRange> {
    let known = |bucket: i32| {
        let found = before.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket);
        found.map_or(0, |place| before.buckets[place].1)
    };
    let end_ms = |bucket: i32| 1e3 * (f64::from(bucket) / f64::from(now.schema).exp2()).exp2();
    let none = TimeRange { low_ms: 0.0, high_ms: 0.0, count: now.zero.saturating_sub(before.zero) };
    let some = now.buckets.iter().map(|(bucket, count)| TimeRange {
        low_ms: end_ms(bucket - 1),
        high_ms: end_ms(*bucket),
        count: count.saturating_sub(known(*bucket)),
    });
    std::iter::once(none).chain(some).filter(|range| range.count > 0).collect()
}

/// The time below which this share lies, as if the times of a range were spread evenly.
fn quantile(ranges: &[TimeRange], share: f64) -> Option<f64> {
    let all: u64 = ranges.iter().map(|range| range.count).sum();
    let rank = all as f64 * share;
    let mut below = 0;
    for TimeRange { low_ms, high_ms, count } in ranges {
        if (below + count) as f64 >= rank {
            return Some(low_ms + (high_ms - low_ms) * (rank - below as f64) / *count as f64);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(zero: u64, buckets: &[(i32, u64)]) -> FineCounts {
        FineCounts { schema: 3, zero, buckets: buckets.to_vec() }
    }

    #[test]
    fn only_what_came_since_counts() {
        // Bucket 0 ends with a second, bucket 8 with two.
        let (before, now) = (counts(5, &[(0, 500)]), counts(5, &[(0, 500), (8, 100)]));
        let low = 1e3 * (7.0_f64 / 8.0).exp2();
        let close = |ms: Option<f64>, expected: f64| (ms.unwrap() - expected).abs() < 0.01;
        let quantiles = Quantiles::between(&before, &now);
        assert!(close(quantiles.p50_ms, f64::midpoint(low, 2e3)), "{quantiles:?}");
        assert!(close(quantiles.p99_ms, low + (2e3 - low) * 0.99), "{quantiles:?}");
        assert_eq!(quantiles.classes, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100]);
        assert_eq!(Quantiles::between(&now, &now), Quantiles::default());
    }

    #[test]
    fn what_took_no_time_is_the_lowest() {
        let quantiles = Quantiles::between(&counts(0, &[]), &counts(98, &[(0, 2)]));
        assert_eq!(quantiles.p50_ms, Some(0.0));
        assert!(quantiles.p99_ms.is_some_and(|ms| ms > 900.0), "{quantiles:?}");
        assert!(quantiles.p90_ms == Some(0.0) && quantiles.p999_ms > quantiles.p99_ms);
        assert_eq!(classes([(1.0, 2), (3.0, 1), (1e9, 5), (9.0, 0)].into_iter()).len(), CLASSES);
    }
}
