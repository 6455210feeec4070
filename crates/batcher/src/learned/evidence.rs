//! Whether clients come back because they were answered, or requests only come over connections that
//! are used again.
//!
//! A pool of connections makes independent requests look like clients that return. So after every
//! answered batch two guesses are made of how many requests come within a moment: one by who was
//! answered and how long clients took to come back, the other by the mere rate of requests. What
//! then comes tells how much likelier it was by the one than by the other. Where clients do come
//! back, every batch adds to the score. Where they come by chance the rate is the better guess in
//! the mean, whatever the pool does. Only the last batches count, so that a change is soon noticed.

use crate::request::Nanos;

/// How much likelier it must be that clients return, as a logarithm: 400 times. Measured: lower and
/// pools of connections pass for clients (example `traffic`).
const PROVEN: f64 = 6.0;
/// The score stays within this, so that a change is noticed. Chosen: about three times the proof.
const SCORE_MAX: f64 = 20.0;
/// A single batch counts for at most this. Chosen: a third of the proof, so that no single batch is
/// one.
const ONCE_MAX: f64 = 2.0;
/// How fast the score forgets, per batch. Chosen: it counts the last 64 batches.
const FORGET_SCORE: f64 = 1.0 / 64.0;
/// How fast the rates of the two guesses forget, per batch. Chosen: faster than the score, since
/// rates change sooner.
const FORGET_RATE: f64 = 1.0 / 16.0;
/// A moment is at most this share of the time between two answered batches. Chosen: half, so that
/// the next batch does not disturb it.
const MOMENT_MAX: f64 = 0.5;
/// No guess is below this many requests. Chosen: a guess of none would make any arrival a proof.
const LEAST: f64 = 1e-3;

/// The score of the two guesses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    score: f64,
    /// When the last batch was answered, and what has come since: all, and what was no return.
    since: Nanos,
    arrivals: u64,
    strangers: u64,
    /// Sums of these, of the time between batches, and of the batches; old ones fade.
    all: f64,
    open: f64,
    time: f64,
    batches: f64,
    /// Until when the moment lasts, how many clients are expected in it, and how many requests came.
    until: Nanos,
    expected: f64,
    came: u64,
}

impl Evidence {
    /// A request came; `returned`: over a connection that was answered before.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Nanos, returned: bool) {
        self.arrivals += 1;
        self.strangers += u64::from(!returned);
        self.came += u64::from(now <= self.until);
    }

    /// A batch was answered: judges the guesses that were made at the last one. A moment that was
    /// not over says nothing.
    pub(crate) fn judge(&mut self, now: Nanos) {
        if self.expected > 0.0 && self.until <= now && self.time > 0.0 {
            let moment = (self.until - self.since) as f64 / self.time;
            let by_rate = (moment * self.all).max(LEAST);
            let by_answers = (moment * self.open + self.expected).max(LEAST);
            let likelier =
                self.came as f64 * logarithm(by_answers / by_rate) - (by_answers - by_rate);
            let score = self.score + likelier.clamp(-ONCE_MAX, ONCE_MAX);
            self.score = (score * (1.0 - FORGET_SCORE)).clamp(-SCORE_MAX, SCORE_MAX);
        }
        let keep = 1.0 - FORGET_RATE;
        self.all = self.all * keep + self.arrivals as f64;
        self.open = self.open * keep + self.strangers as f64;
        self.time = self.time * keep + now.saturating_sub(self.since) as f64;
        self.batches = self.batches * keep + 1.0;
        (self.since, self.arrivals, self.strangers, self.came) = (now, 0, 0, 0);
        (self.until, self.expected) = (now, 0.0);
    }

    /// The moment in which the guesses are compared, at most this long.
    pub(crate) fn moment(&self, most: Nanos) -> Nanos {
        most.min((MOMENT_MAX * self.time / self.batches.max(1.0)) as Nanos)
    }

    /// So many clients are expected to come back within this moment from now.
    pub(crate) fn guess(&mut self, now: Nanos, moment: Nanos, expected: f64) {
        (self.until, self.expected) = (now + moment, expected);
    }

    /// Whether clients come back because they were answered.
    pub(crate) fn proven(&self) -> bool {
        self.score > PROVEN
    }
}

/// The natural logarithm of a positive number, by arithmetic that gives the same bits everywhere.
fn logarithm(x: f64) -> f64 {
    const ROOT: f64 = std::f64::consts::SQRT_2;
    let (bits, one) = (x.to_bits(), 1.0f64.to_bits());
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | one);
    let y = (mantissa - ROOT) / (mantissa + ROOT);
    let series = 2.0 * y * (1.0 + y * y * (1.0 / 3.0 + y * y / 5.0));
    (f64::from(exponent) + 0.5) * std::f64::consts::LN_2 + series
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Batches of about eight that take 10 ms; in the first 2 ms after each of them as many requests
    /// come as `early` says of this one, and the rest later. By the answers six were expected.
    fn play(evidence: &mut Evidence, from: u64, batches: u64, early: impl Fn(u64) -> u64) {
        for batch in from..from + batches {
            let now = batch * 10 * MS;
            evidence.judge(now);
            let moment = evidence.moment(2 * MS);
            evidence.guess(now, moment, 6.0);
            (0..8).for_each(|n| {
                let after = if n < early(batch) { MS } else { 5 * MS };
                evidence.arrived(now + after, true);
            });
        }
    }

    #[test]
    fn clients_that_come_right_after_their_answer_are_soon_proven() {
        let mut evidence = Evidence::default();
        assert!(!evidence.proven(), "it is not taken for granted");
        play(&mut evidence, 1, 10, |_| 6);
        assert!(evidence.proven(), "{evidence:?}");
    }

    #[test]
    fn requests_that_come_evenly_or_by_chance_prove_nothing() {
        let chance = |batch: u64| [0, 1, 1, 2, 2, 2, 3, 5][(batch * 5 % 8) as usize];
        let mut evidence = Evidence::default();
        for round in 0..50 {
            play(&mut evidence, 1 + 20 * round, 20, chance);
            assert!(!evidence.proven(), "{evidence:?}");
        }
    }

    #[test]
    fn a_change_is_noticed_both_ways() {
        let mut evidence = Evidence::default();
        play(&mut evidence, 1, 1000, |_| 6);
        play(&mut evidence, 1001, 30, |_| 2);
        assert!(!evidence.proven(), "{evidence:?}");
        play(&mut evidence, 1031, 1000, |_| 2);
        play(&mut evidence, 2031, 60, |_| 6);
        assert!(evidence.proven(), "{evidence:?}");
    }

    #[test]
    fn a_moment_that_was_cut_short_says_nothing() {
        let mut evidence = Evidence::default();
        for batch in 1..100 {
            evidence.judge(batch * MS);
            evidence.guess(batch * MS, 2 * MS, 6.0);
            (0..6).for_each(|_| evidence.arrived(batch * MS + 1, true));
        }
        assert_eq!(evidence.score, 0.0);
    }

    #[test]
    fn the_logarithm_is_one() {
        for x in [1e-6, 0.3, 0.999, 1.0, 1.5, 2.0, 7.7, 1e6] {
            assert!((logarithm(x) - x.ln()).abs() < 1e-5, "{x}: {}", logarithm(x));
        }
    }
}
