//! How many requests came lately: the rate to plan for, and how bursty they are.

use super::facts::LOOK_EVERY;
use crate::request::Nanos;

/// Looks that are remembered. Bound: a minute.
const LOOKS: usize = 120;
/// A rate is taken over at least so many looks. Chosen: ten seconds even out most of chance.
const RATE_LOOKS: usize = 20;
/// A surge is seen in one look, or in so many. Chosen: three seconds even out bursts.
const SURGE_LOOKS: usize = 6;
/// A count is more than chance when it is so many standard deviations above what the rate gives. Chosen:
/// such a look comes by chance once in hours.
const SURPRISE: f64 = 4.5;
/// The same for a look by itself. Chosen: few counts have a long tail, and at 4.5 one of 36 steady runs of ten minutes
/// took one look for a burst.
const SURPRISE_ONCE: f64 = 6.0;
/// How bursty arrivals may be found: variance over mean of the counts. Chosen: beyond it the objective
/// cannot be kept by any number of workers.
const BURSTY_MAX: f64 = 8.0;

/// The requests of the last looks.
#[derive(Clone, Debug)]
pub(super) struct RecentCounts {
    /// A ring.
    looks: [u64; LOOKS],
    seen: usize,
    /// Variance over mean.
    pub(super) bursty: f64,
}

impl Default for RecentCounts {
    fn default() -> Self {
        Self { looks: [0; LOOKS], seen: 0, bursty: 1.0 }
    }
}

impl RecentCounts {
    pub(super) fn push(&mut self, count: u64) {
        self.looks[self.seen % LOOKS] = count;
        self.seen += 1;
        self.bursty += (self.burstiness() - self.bursty) / LOOKS as f64;
    }

    /// The counts, the last one first.
    fn recent(&self) -> impl Iterator<Item = u64> {
        let known = self.seen.min(LOOKS);
        (1..=known).map(|ago| self.looks[(self.seen - ago) % LOOKS])
    }

    /// Requests per look of so many looks, beginning so many ago.
    fn mean(&self, from: usize, looks: usize) -> Option<f64> {
        (self.seen.min(LOOKS) >= from + looks)
            .then(|| self.recent().skip(from).take(looks).sum::<u64>() as f64 / looks as f64)
    }

    /// Requests per second to plan for, when a worker takes so long to start.
    pub(super) fn rate(&self, load: Nanos) -> f64 {
        let chance = |rate: f64, looks: usize| {
            let surprise = if looks == 1 { SURPRISE_ONCE } else { SURPRISE };
            surprise * (rate * self.bursty / looks as f64).sqrt() + 1.0 / looks as f64
        };
        // Over as long a time as has the same rate by all that can be told.
        let like = |mean: f64, looks: usize| {
            self.mean(0, looks).is_none_or(|last| (mean - last).abs() <= chance(mean, looks))
        };
        let same = |looks: &usize| {
            self.mean(0, *looks).filter(|it| like(*it, RATE_LOOKS) && like(*it, SURGE_LOOKS))
        };
        let known = self.seen.min(LOOKS);
        let steady = [LOOKS, LOOKS / 2, LOOKS / 3, RATE_LOOKS].iter().find_map(same);
        let steady = steady.or_else(|| self.mean(0, known.min(SURGE_LOOKS))).unwrap_or_default();
        let surge = |looks: usize| {
            self.mean(0, looks).filter(|mean| *mean > steady + chance(steady, looks))
        };
        let now = [1, SURGE_LOOKS].into_iter().filter_map(surge).fold(steady, f64::max);
        // What it will have grown to when a worker that is started now serves.
        let growth = self.mean(0, RATE_LOOKS).zip(self.mean(RATE_LOOKS, RATE_LOOKS));
        let growth = growth.map_or(0.0, |(last, before)| last - before);
        let grows = growth > chance(steady, RATE_LOOKS);
        let later = if grows {
            growth * load as f64 / (LOOK_EVERY as f64 * RATE_LOOKS as f64)
        } else {
            0.0
        };
        (now + later.min(now / 4.0)) * (1e9 / LOOK_EVERY as f64)
    }

    /// Variance over mean of the counts, from the differences between neighbours: a level that changes
    /// slowly is not a burst, and one step counts once.
    fn burstiness(&self) -> f64 {
        let known = self.seen.min(LOOKS);
        let mean = self.recent().sum::<u64>() as f64 / known.max(1) as f64;
        if known < RATE_LOOKS || mean < 1.0 {
            return 1.0;
        }
        // Up and down again of one burst do not count.
        let (mut sum, mut largest) = (0.0, [0.0; 2]);
        for (one, next) in self.recent().zip(self.recent().skip(1)) {
            let square = (one.abs_diff(next) as f64).powi(2);
            sum += square;
            let [most, second] = largest;
            largest = if square > most { [square, most] } else { [most, f64::max(second, square)] };
        }
        let variance = (sum - largest[0] - largest[1]) / (2.0 * (known - 3) as f64);
        (variance / mean).clamp(1.0, BURSTY_MAX)
    }
}
