//! How long a worker takes for a batch of each size.
//!
//! Always a table with one time per size, whatever it was made from, so that every policy, bound
//! and plan reads the same numbers. Chance is added elsewhere (`noise`).

mod written;

use jitney_batcher::Nanos;

pub use written::{NoCurve, WrittenCurve};

/// Nanoseconds in a millisecond.
pub const MS: f64 = 1e6;

/// Milliseconds as nanoseconds.
#[must_use]
pub fn ms(ms: f64) -> Nanos {
    (ms * MS).round() as Nanos
}

/// Service times of batches of 1 to [`ServiceCurve::max`] items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCurve(Vec<Nanos>);

impl ServiceCurve {
    /// A fixed part and a part per item, in milliseconds.
    #[must_use]
    pub fn affine(fixed: f64, per_item: f64, max: usize) -> Self {
        Self::from_fn(max, |size| fixed + per_item * size as f64)
    }

    /// Batches are padded to multiples of `step`; flat up to `flat` items, then a part per item.
    #[must_use]
    pub fn stepped(fixed: f64, per_item: f64, step: usize, flat: usize, max: usize) -> Self {
        Self::from_fn(max, |size| {
            let padded = size.div_ceil(step.max(1)) * step.max(1);
            fixed + per_item * padded.saturating_sub(flat) as f64
        })
    }

    /// One time in milliseconds for every size, from a function of the size.
    #[must_use]
    pub fn from_fn(max: usize, time: impl Fn(usize) -> f64) -> Self {
        Self((1..=max.max(1)).map(|size| ms(time(size)).max(1)).collect())
    }

    /// The largest batch.
    #[must_use]
    pub fn max(&self) -> usize {
        self.0.len()
    }

    /// The time of a batch of `size`; a size beyond the table costs as many whole batches more.
    #[must_use]
    pub fn time(&self, size: usize) -> Nanos {
        match self.0.get(size.saturating_sub(1)) {
            Some(&time) => time,
            None => self.0[self.max() - 1] + self.time(size - self.max()),
        }
    }

    /// The same curve with a smaller largest batch.
    #[must_use]
    pub fn capped(&self, max: usize) -> Self {
        Self(self.0[..max.clamp(1, self.max())].to_vec())
    }

    /// Items per second of `workers` workers that run full batches only.
    #[must_use]
    pub fn capacity(&self, workers: usize) -> f64 {
        let best = (1..=self.max()).map(|size| size as f64 / self.time(size) as f64);
        best.fold(0.0, f64::max) * workers as f64 * 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_affine_curve_is_a_line() {
        let curve = ServiceCurve::affine(5.0, 0.2, 4);
        assert_eq!(
            (1..=4).map(|b| curve.time(b)).collect::<Vec<_>>(),
            [5_200_000, 5_400_000, 5_600_000, 5_800_000]
        );
    }

    #[test]
    fn a_stepped_curve_is_flat_between_its_steps() {
        let curve = ServiceCurve::stepped(3.0, 0.11, 8, 16, 64);
        assert_eq!(curve.time(1), curve.time(16));
        assert_eq!(curve.time(17), curve.time(24));
        assert_eq!(curve.time(24) - curve.time(16), ms(0.88));
    }

    #[test]
    fn capacity_is_that_of_the_most_efficient_size() {
        assert!((ServiceCurve::affine(1.0, 1.0, 9).capacity(2) - 1800.0).abs() < 1e-6);
    }
}
