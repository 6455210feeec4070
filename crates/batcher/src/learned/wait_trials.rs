//! What waiting for larger batches has really brought.
//!
//! The rules of waiting predict what a wait gains, by rates and curves that may be wrong, and what it costs
//! the requests behind it they do not see. So they are put to the test: for a stretch of batches they
//! hold, for as many nothing waits, by turns, and the mean time of the requests is compared. Where waiting
//! loses it stops, and is tested again after longer and longer pauses. It never looks at a single wait: what
//! one brings is mostly chance.

/// Batches of a stretch until the first test is over, and twice as many later. Measured: example `traffic`; so few say
/// too little where batches differ much, and more cost too much in the beginning.
const BATCHES: u32 = 24;
/// Requests of a stretch, if that takes more batches. Chosen: where batches are small their number is not
/// enough.
const REQUESTS: u32 = 64;
/// Batches after a change that tell nothing yet. Chosen: those that were on their way.
const SETTLE: u32 = 8;
/// Pairs of stretches before anything is said. Chosen: of two nobody knows how far they differ by chance.
const PAIRS_MIN: u32 = 3;
/// Where waiting gains so much, as the logarithm of a ratio, one pair is enough in the first test to go on with it.
/// Chosen: clients that come back together lose as much of their answers in every stretch without.
const CLEAR_GAIN: f64 = 0.2;
/// Batches after which a stretch without waiting ends where that loses as much. Chosen: it costs the most there.
const EARLY: u32 = 8;
/// Pairs after which the mean decides, sure or not. Chosen: longer tests cost more than they can find.
const PAIRS_MAX: u32 = 12;
/// So many standard errors are no chance. Chosen: they are looked at again and again.
const SURE: f64 = 3.0;
/// So many are enough to go on with waiting. Measured: example `traffic`.
const LIKELY: f64 = 1.0;
/// What is kept of how far pairs differed in earlier tests. Chosen: three pairs alone say little about it.
const KEPT: f64 = 0.5;
/// What waiting may lose, as the logarithm of a ratio. Chosen: less is not worth a change.
const LOSS_MAX: f64 = 0.004;
/// Stretches before the first test. Chosen: until then the rates and curves are hardly known.
const FIRST: u32 = 6;
/// Stretches until the next test. Chosen: in a hundred thousand requests waiting that loses then holds for
/// less than one percent, which the slowest percent does not show.
const PAUSE: u32 = 96;
/// The most stretches until the next test, which come after as many tests that said the same. Chosen: tests
/// then cost less than one percent.
const PAUSE_MAX: u32 = 4096;

/// What the tests of waiting have found, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitScore {
    /// Whether nothing waits at present, since waiting has lost.
    pub stopped: bool,
    /// Tests until now.
    pub tests: u32,
    /// The mean time of requests with waiting over that without, as the last test found it.
    pub ratio: Option<f64>,
}

/// What is being done at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// What the last test has found.
    #[default]
    Settled,
    /// A stretch of a test with waiting.
    With,
    /// A stretch without.
    Without,
}

/// Requests of a stretch, and how long they were here in all.
#[derive(Clone, Copy, Debug, Default)]
struct StretchOfBatches {
    batches: u32,
    requests: u32,
    nanos: f64,
}

/// The logarithms of the ratios of a test: how many, their sum and the sum of their squares.
#[derive(Clone, Copy, Debug, Default)]
struct RatioSum {
    pairs: u32,
    sum: f64,
    squares: f64,
    /// The squares of their deviations in earlier tests, and how many were free; old ones fade.
    deviations: f64,
    free: f64,
}

/// The tests of one model.
#[derive(Debug, Default)]
pub(crate) struct WaitTrials {
    pub(crate) score: WaitScore,
    phase: Phase,
    stretch: StretchOfBatches,
    /// Batches that tell nothing yet.
    settling: u32,
    /// Whether anything has waited in this stretch.
    waited: bool,
    /// The mean time of the last stretch with waiting.
    with: f64,
    ratios: RatioSum,
    /// Stretches since the last test, and until the next one.
    rested: u32,
    pause: u32,
}

impl WaitTrials {
    /// Whether the rules of waiting hold now.
    pub(crate) fn allows(&self) -> bool {
        match self.phase {
            Phase::Settled => !self.score.stopped,
            Phase::With => true,
            Phase::Without => false,
        }
    }

    /// The rules have let a batch wait.
    pub(crate) fn waited(&mut self) {
        self.waited = true;
    }

    /// A batch was answered: its requests, and how long they were here in all.
    pub(crate) fn answered(&mut self, requests: u32, nanos: u64) {
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        let stretch = &mut self.stretch;
        stretch.batches += 1;
        stretch.requests += requests;
        stretch.nanos += nanos as f64;
        let mean = stretch.nanos / f64::from(stretch.requests.max(1));
        let gain = || (mean.max(1.0) / self.with.max(1.0)).ln();
        let clear = self.phase == Phase::Without && gain() > CLEAR_GAIN;
        let longer = if self.score.tests == 0 { 1 } else { 2 };
        let batches = if clear { EARLY } else { longer * BATCHES };
        if stretch.batches >= batches && stretch.requests >= longer * REQUESTS {
            self.stretch = StretchOfBatches::default();
            self.stretch_over(mean);
            self.waited = false;
        }
    }

    fn stretch_over(&mut self, mean: f64) {
        match self.phase {
            Phase::Settled => {
                self.rested = self.rested.saturating_add(1);
                let rests = if self.score.tests == 0 { FIRST } else { self.pause };
                // Where nothing waits there is nothing to test.
                if self.rested >= rests && (self.waited || self.score.stopped) {
                    self.ratios = self.ratios.next_test();
                    self.enter(Phase::With);
                }
            }
            Phase::With => {
                self.with = mean;
                self.enter(Phase::Without);
            }
            Phase::Without => {
                self.ratios.add((self.with.max(1.0) / mean.max(1.0)).ln());
                self.judge();
            }
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.settling) = (phase, SETTLE);
    }

    /// Ends the test if it has found something, or goes on. To stop waiting takes proof, and so does to
    /// begin it again; to go on with it takes less. In the end the mean decides.
    fn judge(&mut self) {
        let RatioSum { pairs, .. } = self.ratios;
        let (mean, error) = self.ratios.mean();
        let lost = mean - LOSS_MAX;
        let doubt = if self.score.stopped { SURE } else { LIKELY };
        let found = lost > SURE * error || -lost > doubt * error;
        let clear = self.score.tests == 0 && mean < -CLEAR_GAIN;
        if !clear && (pairs < PAIRS_MIN || !found && pairs < PAIRS_MAX) {
            return self.enter(Phase::With);
        }
        let stops = lost > 0.0;
        let same = stops == self.score.stopped && self.score.tests > 0;
        self.pause = if same { (2 * self.pause).min(PAUSE_MAX) } else { PAUSE };
        self.rested = 0;
        let tests = self.score.tests.saturating_add(1);
        self.score = WaitScore { stopped: stops, tests, ratio: Some(mean.exp()) };
        self.enter(Phase::Settled);
    }
}

impl RatioSum {
    fn add(&mut self, ratio: f64) {
        self.pairs += 1;
        self.sum += ratio;
        self.squares += ratio * ratio;
    }

    /// The squares of the deviations until now, and how many are free.
    fn spread(&self) -> (f64, f64) {
        let pairs = f64::from(self.pairs.max(1));
        let own = (self.squares - self.sum * self.sum / pairs).max(0.0);
        (self.deviations + own, self.free + pairs - 1.0)
    }

    /// The mean, and its standard error.
    fn mean(&self) -> (f64, f64) {
        let pairs = f64::from(self.pairs);
        let (deviations, free) = self.spread();
        (self.sum / pairs, (deviations / free.max(1.0) / pairs).sqrt())
    }

    /// That of the next test, which knows how far pairs have differed.
    fn next_test(&self) -> Self {
        let (deviations, free) = self.spread();
        Self { deviations: KEPT * deviations, free: KEPT * free, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCHES_PLAYED: u32 = 200_000;

    /// Numbers that look like chance.
    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Batches of four requests that take 10 ms each without waiting and `ratio` times as long with it, and by
    /// chance up to `noise` more or less. The share of batches that the rules of waiting held for.
    fn share_of_waiting(
        trials: &mut WaitTrials,
        ratio: f64,
        noise: f64,
        chance: &mut Chance,
    ) -> f64 {
        let mut held = 0;
        for _ in 0..BATCHES_PLAYED {
            let waits = trials.allows();
            if waits {
                held += 1;
                trials.waited();
            }
            let mean = 1e7 * if waits { ratio } else { 1.0 };
            let time = mean * (1.0 + noise * (2.0 * chance.next() - 1.0));
            trials.answered(4, (4.0 * time) as u64);
        }
        f64::from(held) / f64::from(BATCHES_PLAYED)
    }

    #[test]
    fn waiting_that_loses_costs_at_most_three_hundredths_of_what_it_would() {
        let chance = &mut Chance(0x9e37_79b9_7f4a_7c15);
        for world in 0..200 {
            let (ratio, noise) = (1.03 + 3.0 * chance.next(), 0.6 * chance.next());
            let mut trials = WaitTrials::default();
            let held = share_of_waiting(&mut trials, ratio, noise, chance);
            assert!(held < 0.03, "world {world}: {ratio:.3} with {noise:.2}: {held:.4}");
            assert!(trials.score.stopped && trials.score.ratio.is_some_and(|it| it > 1.0));
        }
    }

    #[test]
    fn waiting_that_gains_loses_at_most_a_hundredth_of_it() {
        let chance = &mut Chance(0x2545_f491_4f6c_dd1d);
        for world in 0..200 {
            let (ratio, noise) = (0.97 - 0.7 * chance.next(), 0.6 * chance.next());
            let mut trials = WaitTrials::default();
            let held = share_of_waiting(&mut trials, ratio, noise, chance);
            assert!(held > 0.99, "world {world}: {ratio:.3} with {noise:.2}: {held:.4}");
            assert!(!trials.score.stopped);
        }
    }

    #[test]
    fn waiting_comes_back_when_it_begins_to_pay_and_stops_when_it_ceases_to() {
        let chance = &mut Chance(7);
        let mut trials = WaitTrials::default();
        for ratio in [1.3, 0.7, 1.3, 0.7] {
            share_of_waiting(&mut trials, ratio, 0.3, chance);
            share_of_waiting(&mut trials, ratio, 0.3, chance);
            assert_eq!(trials.score.stopped, ratio > 1.0);
        }
    }

    #[test]
    fn where_nothing_waits_nothing_is_tested() {
        let mut trials = WaitTrials::default();
        (0..BATCHES_PLAYED).for_each(|_| trials.answered(1, 5_000_000));
        assert_eq!(trials.score, WaitScore::default());
        assert!(trials.allows());
    }
}
