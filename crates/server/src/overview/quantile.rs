//! Quantiles of what came into a histogram between two looks at it.

use jitney_engine::Distribution;
use serde::Serialize;

/// Half of the requests took no longer than the first, all but one in a hundred no longer than the second;
/// nothing where there were none. Between the bounds of a bucket they are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Quantiles {
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl Quantiles {
    /// Of what came into `now` (in microseconds) since it held `before`.
    pub(super) fn between(before: &[u64], now: &Distribution) -> Self {
        let before = before.iter().copied().chain(std::iter::repeat(0));
        let counts: Vec<u64> =
            now.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect();
        let millis = |share| {
            let micros = quantile(now.bounds, &counts, share)?;
            Some((micros / 10.0).round() / 100.0)
        };
        Self { p50_ms: millis(0.5), p99_ms: millis(0.99) }
    }
}

/// The number below which this share lies, as if the numbers of a bucket were spread evenly.
fn quantile(bounds: &[u64], counts: &[u64], share: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let rank = all as f64 * share;
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        if (below + count) as f64 >= rank {
            let low = bucket.checked_sub(1).map_or(0, |under| bounds[under]) as f64;
            // The last bucket has no upper bound.
            let high = bounds.get(bucket).map_or(low, |bound| *bound as f64);
            return Some(low + (high - low) * (rank - below as f64) / *count as f64);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[u64] = &[1_000, 2_000, 4_000];

    fn between(before: [u64; 4], now: [u64; 4]) -> Quantiles {
        let now = Distribution { bounds: BOUNDS, counts: now.to_vec(), sum: 0, fine: None };
        Quantiles::between(&before, &now)
    }

    #[test]
    fn only_what_came_since_counts() {
        let quantiles = between([500, 0, 0, 0], [500, 100, 0, 0]);
        assert_eq!(quantiles, Quantiles { p50_ms: Some(1.5), p99_ms: Some(1.99) });
        assert_eq!(between([5, 5, 5, 5], [5, 5, 5, 5]), Quantiles::default());
    }

    #[test]
    fn what_is_above_the_last_bound_counts_as_the_bound() {
        let quantiles = between([0; 4], [98, 0, 0, 2]);
        assert_eq!((quantiles.p50_ms, quantiles.p99_ms), (Some(0.51), Some(4.0)));
    }
}
