//! A straight line through the service times of the last few hundred batches.
//!
//! It is used for sizes that were hardly seen. A ridge towards "half of the time is fixed" keeps it
//! sane while all batches have one size, where least squares alone would be singular.

/// Batches remembered.
const MEMORY: f64 = 256.0;
const RIDGE: f64 = 0.05;
/// Batches after which the ridge shrinks no further.
const RIDGE_BATCHES: f64 = 50.0;

/// Running moments of (size, time).
#[derive(Clone, Debug, Default)]
pub(crate) struct LineFit {
    batches: f64,
    size: f64,
    time: f64,
    var: f64,
    cov: f64,
}

impl LineFit {
    /// One more batch.
    pub(crate) fn learn(&mut self, size: f64, time: f64) {
        self.batches += 1.0;
        let share = 1.0 / self.batches.min(MEMORY);
        let (dx, dy) = (size - self.size, time - self.time);
        self.size += share * dx;
        self.time += share * dy;
        self.var = (1.0 - share) * (self.var + share * dx * dx);
        self.cov = (1.0 - share) * (self.cov + share * dx * dy);
    }

    /// All times were and will be this many times as long.
    pub(crate) fn scale(&mut self, ratio: f64) {
        self.time *= ratio;
        self.cov *= ratio;
    }

    /// The time one more unit of size takes.
    pub(crate) fn slope(&self) -> f64 {
        if self.batches == 0.0 {
            return 0.0;
        }
        let whole = self.time / self.size;
        let ridge = RIDGE * self.size * self.size / self.batches.min(RIDGE_BATCHES);
        let slope = (self.cov + ridge * whole / 2.0) / (self.var + ridge);
        slope.clamp(0.0, whole)
    }

    /// The time at a size, by a slope asked for before.
    pub(crate) fn at(&self, size: f64, slope: f64) -> f64 {
        self.time + slope * (size - self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_line_behind_many_sizes() {
        let mut fit = LineFit::default();
        (0..400).for_each(|n| fit.learn(f64::from(n % 20 + 1), 5.0 + 2.0 * f64::from(n % 20 + 1)));
        assert!((fit.slope() - 2.0).abs() < 0.05, "{}", fit.slope());
        assert!((fit.at(40.0, fit.slope()) - 85.0).abs() < 2.0);
    }

    #[test]
    fn with_one_size_only_half_of_the_time_counts_as_fixed() {
        let mut fit = LineFit::default();
        (0..100).for_each(|_| fit.learn(8.0, 16.0));
        assert!((fit.at(16.0, fit.slope()) - 24.0).abs() < 1e-6);
        assert!((fit.at(1.0, fit.slope()) - 9.0).abs() < 1e-6);
    }
}
