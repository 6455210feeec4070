//! BentoML's line: ordinary least squares through the last 50 batches, at most every 5 seconds.
//!
//! With samples of one size only the smallest solution is taken, as its library does; nothing is
//! robust here, because theirs is not.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

const KEPT: usize = 50;
const SKIPPED: u32 = 2;
const REFILL_PER_SECOND: f64 = 0.2;

#[derive(Debug)]
pub(super) struct BentoMlFit {
    /// Seconds per request.
    pub(super) slope: f64,
    /// Seconds per batch.
    pub(super) fixed: f64,
    /// Mean wait of the first request of a batch, in seconds.
    pub(super) wait: f64,
    samples: VecDeque<(f64, f64, f64)>,
    skipped: u32,
    tokens: f64,
    refilled: Nanos,
}

impl BentoMlFit {
    pub(super) fn new(max_latency: f64) -> Self {
        Self {
            slope: (max_latency * 2.0 / 30.0).min(2.0),
            fixed: (max_latency / 30.0).min(1.0),
            wait: 0.0,
            samples: VecDeque::with_capacity(KEPT + 1),
            skipped: 0,
            tokens: 2.0,
            refilled: 0,
        }
    }

    pub(super) fn sample(&mut self, now: Nanos, size: f64, duration: f64, wait: f64) {
        if self.skipped < SKIPPED {
            self.skipped += 1;
            return;
        }
        self.samples.push_back((size, duration, wait));
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
        if self.allowed(now) {
            self.refit();
        }
    }

    /// A token bucket that starts with two tokens and holds one.
    fn allowed(&mut self, now: Nanos) -> bool {
        let refill = (now - self.refilled) as f64 / 1e9 * REFILL_PER_SECOND;
        self.refilled = now;
        self.tokens = self.tokens.max((self.tokens + refill).min(1.0));
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }

    pub(super) fn refit(&mut self) {
        let n = self.samples.len() as f64;
        if n == 0.0 {
            return;
        }
        let mean = |of: fn(&(f64, f64, f64)) -> f64| self.samples.iter().map(of).sum::<f64>() / n;
        let (size, duration, wait) = (mean(|s| s.0), mean(|s| s.1), mean(|s| s.2));
        let variance = mean(|s| s.0 * s.0) - size * size;
        let covariance = mean(|s| s.0 * s.1) - size * duration;
        let (slope, fixed) = if variance > 1e-9 {
            let slope = covariance / variance;
            (slope, duration - slope * size)
        } else {
            let norm = size * size + 1.0;
            (duration * size / norm, duration / norm)
        };
        self.slope = slope.max(1e-6);
        self.fixed = fixed.max(0.0);
        self.wait = wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_size_give_the_smallest_solution() {
        let mut fit = BentoMlFit::new(1.0);
        for at in 0..5 {
            fit.sample(at, 1.0, 0.01, 0.0);
        }
        assert!((fit.slope - 0.005).abs() < 1e-9 && (fit.fixed - 0.005).abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn the_line_is_fitted_at_most_every_five_seconds() {
        let mut fit = BentoMlFit::new(1.0);
        for size in 1..=4 {
            fit.sample(0, f64::from(size), 0.010 + 0.001 * f64::from(size), 0.0);
        }
        assert!((fit.slope - 0.001).abs() < 1e-9, "two tokens: {fit:?}");
        fit.sample(4_900_000_000, 9.0, 1.0, 0.0);
        assert!((fit.slope - 0.001).abs() < 1e-9, "none left: {fit:?}");
        fit.sample(5_100_000_000, 9.0, 1.0, 0.0);
        assert!(fit.slope > 0.01, "one again: {fit:?}");
    }
}
