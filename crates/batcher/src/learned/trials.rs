//! What each number of batches at a time has really brought.
//!
//! The curves promise a rate for each of them, but they know nothing of what passes between the stages of
//! a worker. Where several promise about the same, each is tried for a moment, and the best one kept.
//! Only clients that come back have a rate that can be compared: it is how fast they are answered.

use crate::request::Nanos;

/// Most batches at a time that are weighed. Bound: workers have no more slots that help.
pub(crate) const AT_A_TIME_MAX: usize = 4;
/// Batches after a change that tell nothing yet. Chosen: those that were on their way.
const SETTLE: u32 = 6;
/// Batches over which a rate is taken. Chosen: the shortest time whose rate can be trusted.
const ROUND: u32 = 16;
/// One that promises less than this share of the best is not tried. Measured: on an H200 the
/// promises were wrong by no more.
const HOPE: f64 = 0.85;
/// What one brought is forgotten after so many batches, and it is tried again; twice as many after
/// each round. Chosen: a first look may have been at an odd moment.
const FORGET: u64 = 64;
/// The most batches after which it is tried again. Chosen: trials then cost less than one percent.
const FORGET_MAX: u64 = 4096;
/// With so many times as many clients, or as few, nothing is known any more. Chosen: other numbers
/// have other rhythms.
const OTHER: f64 = 1.25;
/// A pause of so many times the usual is none of the worker's. Chosen: clients pause, workers hardly
/// do.
const PAUSE: u64 = 8;

/// So many batches at a time, and the rate that the curves promise.
pub(crate) type Promise = (u32, f64);

/// What was tried.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    clients: u64,
    /// Batches at a time that run now, and the batches since then.
    current: u32,
    batches: u32,
    /// When the round began, when its last batch was dispatched, and what it has had since.
    began: Nanos,
    last: Nanos,
    size: u64,
    round: u32,
    /// All batches ever.
    count: u64,
    /// By the number of batches at a time.
    brought: [Option<Brought>; AT_A_TIME_MAX],
}

/// What so many batches at a time have brought.
#[derive(Clone, Copy, Debug)]
struct Brought {
    rate: f64,
    /// The batch at which that was known.
    at: u64,
    /// For how many more batches it counts.
    lasts: u64,
}

impl Trials {
    /// The one to go on with. The promises ascend in batches at a time, and each is more than the last.
    pub(crate) fn choose(&self, promises: &[Promise], clients: u64) -> Option<u32> {
        let best = promises.last()?;
        let hopeful = || promises.iter().filter(|it| it.1 >= HOPE * best.1);
        if hopeful().count() == 1 || self.others(clients) {
            return Some(best.0);
        }
        let current = hopeful().find(|it| it.0 == self.current);
        if let Some(current) = current.filter(|_| self.batches < SETTLE + ROUND) {
            return Some(current.0);
        }
        let untried = hopeful().find(|it| self.rate(it.0).is_none());
        let rate = |it: &&Promise| self.rate(it.0).unwrap_or(0.0);
        let tried = hopeful().max_by(|one, other| rate(one).total_cmp(&rate(other)));
        untried.or(tried).map(|it| it.0)
    }

    /// A batch of this size was dispatched.
    pub(crate) fn dispatched(&mut self, now: Nanos, at_a_time: u32, clients: u64, size: u64) {
        if self.others(clients) {
            *self = Self { clients, ..Self::default() };
        }
        self.count += 1;
        if at_a_time != self.current {
            (self.current, self.batches) = (at_a_time, 0);
        }
        let usual = (self.last - self.began) / u64::from(self.round.max(1));
        let paused = self.round > 1 && now - self.last > PAUSE * usual;
        self.batches = self.batches.saturating_add(1);
        self.last = now;
        if self.batches <= SETTLE || paused {
            return self.begin(now);
        }
        self.size += size;
        self.round += 1;
        if self.round == ROUND {
            let rate = self.size as f64 / (now - self.began).max(1) as f64;
            if let Some(brought) = self.brought.get_mut(at_a_time as usize - 1) {
                let lasts = brought.map_or(FORGET, |it| it.lasts);
                let lasts = (2 * lasts).min(FORGET_MAX);
                *brought = Some(Brought { rate, at: self.count, lasts });
            }
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Nanos) {
        (self.began, self.size, self.round) = (now, 0, 0);
    }

    fn others(&self, clients: u64) -> bool {
        let [less, more] = [clients.min(self.clients), clients.max(self.clients)];
        more as f64 > OTHER * less as f64
    }

    fn rate(&self, at_a_time: u32) -> Option<f64> {
        let brought = self.brought.get(at_a_time as usize - 1).copied().flatten();
        brought.filter(|it| self.count - it.at <= it.lasts).map(|it| it.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays batches of 16 that take so long each, by the number at a time; returns the last choices.
    fn play(trials: &mut Trials, batches: usize, promises: &[Promise], took: [u64; 3]) -> Vec<u32> {
        play_from(trials.last, trials, batches, promises, took)
    }

    fn play_from(
        mut now: Nanos,
        trials: &mut Trials,
        batches: usize,
        promises: &[Promise],
        took: [u64; 3],
    ) -> Vec<u32> {
        let mut one = |_| {
            let at_a_time = trials.choose(promises, 16).expect("a choice");
            now += took[at_a_time as usize - 1];
            trials.dispatched(now, at_a_time, 16, 16);
            at_a_time
        };
        (0..batches).map(&mut one).collect()
    }

    #[test]
    fn what_brings_more_is_kept_whatever_was_promised() {
        for (took, best) in [([6, 9, 9], 1), ([9, 6, 9], 2)] {
            let mut trials = Trials::default();
            let promises = [(1, 1.0), (2, 1.1)];
            let chosen = play(&mut trials, 200, &promises, took.map(|it| it * 1_000_000));
            assert!(chosen[..100].contains(&1) && chosen[..100].contains(&2), "both are tried");
            let kept = chosen[100..].iter().filter(|it| **it == best).count();
            assert!(kept >= 70, "{chosen:?}");
        }
    }

    #[test]
    fn what_promises_far_less_is_not_tried() {
        let mut trials = Trials::default();
        let promises = [(1, 0.7), (2, 1.0)];
        assert!(play(&mut trials, 200, &promises, [6, 9, 9]).iter().all(|it| *it == 2));
    }

    #[test]
    fn a_trial_is_repeated_after_a_long_time_and_with_other_clients() {
        let mut trials = Trials::default();
        let promises = [(1, 1.0), (2, 1.1)];
        play(&mut trials, 200, &promises, [6_000, 9_000, 9_000]);
        let later = play(&mut trials, 5000, &promises, [6_000, 9_000, 9_000]);
        let again = later.iter().filter(|it| **it == 2).count();
        assert!((1..=6 * (SETTLE + ROUND) as usize).contains(&again), "{again}");
        let other = trials.choose(&promises, 64);
        assert_eq!(other, Some(2), "nothing is known of 64 clients");
    }

    #[test]
    fn a_pause_of_the_clients_is_not_held_against_a_rhythm() {
        let mut trials = Trials::default();
        let promises = [(1, 1.0), (2, 1.1)];
        play(&mut trials, 200, &promises, [6_000, 9_000, 9_000]);
        let before = trials.rate(1);
        let late = trials.last + 1_000_000_000;
        let chosen = play_from(late, &mut trials, 100, &promises, [6_000, 9_000, 9_000]);
        assert!(chosen.iter().all(|it| *it == 1));
        assert_eq!(trials.rate(1), before);
    }
}
