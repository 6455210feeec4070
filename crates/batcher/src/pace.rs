//! How long a batch takes on average, so that a rejected client can be told when to try again.
//!
//! One running mean for the policies that do not plan; it never influences a dispatch.

use crate::request::Nanos;

/// The mean remembers about this many batches.
const MEMORY: u64 = 32;
/// A batch slower than this many means, plus a little for tiny means, counts as that much.
const OUTLIER: u64 = 4;
const OUTLIER_FLOOR: Nanos = 1_000_000;

/// Running mean of the time a batch takes.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    mean: Nanos,
    seen: u64,
}

impl Pace {
    /// A batch took this long.
    pub(crate) fn learn(&mut self, exec: Nanos) {
        self.seen = MEMORY.min(self.seen + 1);
        let most = self.mean.saturating_mul(OUTLIER).saturating_add(OUTLIER_FLOOR);
        let exec = if self.seen == 1 { exec } else { exec.min(most) };
        self.mean = match exec >= self.mean {
            true => self.mean + (exec - self.mean) / self.seen,
            false => self.mean - (self.mean - exec) / self.seen,
        };
    }

    /// How long `batches` take when `at_once` of them run at a time, if anything is known.
    pub(crate) fn predict(&self, batches: u64, at_once: u64) -> Option<Nanos> {
        let known = self.seen > 0 && at_once > 0;
        known.then(|| batches.div_ceil(at_once).saturating_mul(self.mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn nothing_is_predicted_before_the_first_batch_or_without_workers() {
        let mut pace = Pace::default();
        assert_eq!(pace.predict(3, 1), None);
        pace.learn(MS);
        assert_eq!(pace.predict(3, 0), None);
        assert_eq!(pace.predict(3, 2), Some(2 * MS));
    }

    #[test]
    fn the_mean_follows_a_lasting_change_and_shrugs_at_an_outlier() {
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.learn(10 * MS));
        pace.learn(60_000 * MS);
        assert!(pace.mean < 12 * MS, "{}", pace.mean);
        (0..200).for_each(|_| pace.learn(30 * MS));
        assert!((28 * MS..31 * MS).contains(&pace.mean), "{}", pace.mean);
    }
}
