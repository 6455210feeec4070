//! Limits for requests that flow like water: no chance, no rounding in time.

use jitney_batcher::Nanos;

use crate::curve::ServiceCurve;

/// Most requests per second that `workers` staggered workers can serve without losing any: the
/// head of a batch waits while the batch fills, `l(b) / k`, and then runs for `l(b)`.
#[must_use]
pub fn lossless(curve: &ServiceCurve, workers: usize, deadline: Nanos) -> f64 {
    limit(curve, workers, |time| time as f64 * (1.0 + 1.0 / workers as f64) <= deadline as f64)
}

/// Most requests per second that can be served in time if any may be dropped: only the freshest
/// are taken, so that the whole deadline belongs to the batch.
#[must_use]
pub fn lossy(curve: &ServiceCurve, workers: usize, deadline: Nanos) -> f64 {
    limit(curve, workers, |time| time <= deadline)
}

fn limit(curve: &ServiceCurve, workers: usize, fits: impl Fn(Nanos) -> bool) -> f64 {
    let sizes = (1..=curve.max()).filter(|&size| fits(curve.time(size)));
    let rates = sizes.map(|size| size as f64 / curve.time(size) as f64 * 1e9);
    workers as f64 * rates.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::ms;

    #[test]
    fn the_limits_of_a_known_curve_are_those_worked_out_by_hand() {
        let curve = ServiceCurve::affine(5.072, 1.053, 64);
        let rounded = |rate: f64| (rate * 10.0).round() as u64;
        // b = 14 runs for 19.814 ms, 1.25 times which is below 25 ms; b = 15 does not fit.
        assert_eq!(rounded(lossless(&curve, 4, ms(25.0))), 28263);
        // b = 18 runs for 24.026 ms.
        assert_eq!(rounded(lossy(&curve, 1, ms(25.0))), 7492);
        assert_eq!(lossy(&curve, 1, ms(6.0)), 0.0);
    }
}
