//! A quantile that follows a stream of figures without keeping them.
//!
//! Each figure moves the estimate up or down a step; the steps balance where the share of figures
//! below it is the one asked for.

/// A tracked quantile.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The estimate.
    pub(crate) value: f64,
    /// Which quantile it is.
    pub(crate) share: f64,
    step: f64,
    least_step: f64,
    /// The estimate never leaves these.
    bounds: (f64, f64),
}

impl Tail {
    /// Tracks the quantile at `share`, from a first guess, with a first and a least step.
    pub(crate) fn new(value: f64, share: f64, steps: (f64, f64), bounds: (f64, f64)) -> Self {
        Self { value, share, step: steps.0, least_step: steps.1, bounds }
    }

    /// One more figure.
    pub(crate) fn learn(&mut self, figure: f64) {
        let above = figure > self.value;
        self.value += self.step * if above { self.share } else { self.share - 1.0 };
        self.value = self.value.max(self.bounds.0).min(self.bounds.1);
        self.step = (self.step * 0.97).max(self.least_step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_settles_where_the_share_of_figures_lies_below() {
        let mut tail = Tail::new(0.0, 0.9, (2.0, 0.1), (0.0, 100.0));
        (0..20_000u32).for_each(|n| tail.learn(f64::from(n.wrapping_mul(2_654_435_761) % 100)));
        assert!((80.0..97.0).contains(&tail.value), "{}", tail.value);
    }
}
