//! BentoML's dispatcher: one per worker process, each with a queue of its own, requests by lot.
//!
//! A line through the last 50 batches predicts the next; the oldest is cancelled when the prediction
//! for the whole queue exceeds `max_latency`; a cork holds the batch while the harm done to those
//! waiting is below the wait seen lately. It polls every millisecond, and it begins with a training
//! phase.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

use jitney_sim::dice::Dice;
use jitney_sim::job::Job;
use jitney_sim::pipeline::Took;
use jitney_sim::scheduler::{Orders, Scheduler};

const TICK: Nanos = 1_000_000;
const DECAY: f64 = 0.95;
const KEPT: usize = 50;
const SKIPPED: u32 = 2;
const REFILL_PER_SECOND: f64 = 0.2;

/// The decorator's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BentoMlSettings {
    /// Most requests in a batch.
    pub max_batch_size: usize,
    /// The bound on the predicted latency of the oldest.
    pub max_latency: Nanos,
}

/// Batches still to be run in training, the size waited for and the factor in the wait's limit.
#[derive(Clone, Copy, Debug)]
struct Lesson {
    batches: u32,
    size: usize,
    factor: f64,
    refit: bool,
}

const LESSONS: [Lesson; 4] = [
    Lesson { batches: 8, size: 1, factor: 0.0, refit: false },
    Lesson { batches: 1, size: 1, factor: 0.0, refit: true },
    Lesson { batches: 1, size: 2, factor: 5.0, refit: true },
    Lesson { batches: 1, size: 3, factor: 7.0, refit: true },
];

/// What the dispatcher does after a look at its queue.
#[derive(Debug, PartialEq)]
enum BentoMlDecision {
    Sleep,
    Cancel,
    Run,
}

#[derive(Debug)]
struct BentoMlBatch {
    size: usize,
    wait: f64,
}

#[derive(Debug)]
struct Dispatcher {
    settings: BentoMlSettings,
    queue: VecDeque<(u32, Nanos)>,
    fit: BentoMlFit,
    lessons: VecDeque<Lesson>,
    running: Option<BentoMlBatch>,
    dead: bool,
    /// When it looks again, if it polls.
    tick: Option<Nanos>,
}

impl Dispatcher {
    fn new(settings: BentoMlSettings) -> Self {
        let fit = BentoMlFit::new(settings.max_latency as f64 / 1e9);
        let lessons = LESSONS.into();
        Self {
            settings,
            queue: VecDeque::new(),
            fit,
            lessons,
            running: None,
            dead: false,
            tick: None,
        }
    }

    /// Polls until it sleeps or nothing is queued; returns what to run.
    fn look(&mut self, now: Nanos, out: &mut Orders) -> Option<Vec<u32>> {
        self.tick = None;
        let mut batch = None;
        while !self.queue.is_empty() && !self.dead {
            match self.poll(now) {
                BentoMlDecision::Sleep => {
                    self.tick = Some(now + TICK);
                    break;
                }
                BentoMlDecision::Cancel => {
                    out.reject(self.queue.pop_front().expect("it is not empty").0)
                }
                BentoMlDecision::Run => batch = Some(self.take(now)),
            }
        }
        batch
    }

    fn poll(&self, now: Nanos) -> BentoMlDecision {
        let seconds = |at: Nanos| (now - at) as f64 / 1e9;
        let (n, bound) = (self.queue.len(), self.settings.max_latency as f64 / 1e9);
        let oldest = seconds(self.queue[0].1);
        let newest = seconds(self.queue[n - 1].1);
        let BentoMlFit { slope, fixed, wait, .. } = self.fit;
        if let Some(lesson) = self.lessons.front() {
            return self.train(lesson, n, oldest, bound);
        }
        let count = n as f64;
        if n > 1 && oldest + slope * count + fixed >= bound {
            BentoMlDecision::Cancel
        } else if self.running.is_some() {
            if n == 1 && oldest >= bound { BentoMlDecision::Cancel } else { BentoMlDecision::Sleep }
        } else if n < self.settings.max_batch_size
            && count * (newest + TICK as f64 / 1e9 + slope) <= DECAY * wait
        {
            BentoMlDecision::Sleep
        } else {
            BentoMlDecision::Run
        }
    }

    fn train(&self, lesson: &Lesson, n: usize, oldest: f64, bound: f64) -> BentoMlDecision {
        let limit = (DECAY * bound).min(lesson.factor * self.fit.slope + self.fit.fixed);
        if n > lesson.size && oldest >= bound {
            BentoMlDecision::Cancel
        } else if self.running.is_some() || (n < lesson.size && oldest <= limit) {
            BentoMlDecision::Sleep
        } else {
            BentoMlDecision::Run
        }
    }

    fn take(&mut self, now: Nanos) -> Vec<u32> {
        let size = self.queue.len().min(self.settings.max_batch_size);
        let oldest = (now - self.queue[0].1) as f64 / 1e9;
        let wait = if self.lessons.is_empty() { oldest } else { 0.0 };
        self.running = Some(BentoMlBatch { size, wait });
        self.queue.drain(..size).map(|(id, _)| id).collect()
    }

    fn learn(&mut self, now: Nanos, exec: Nanos) {
        let Some(BentoMlBatch { size, wait }) = self.running.take() else { return };
        self.fit.sample(now, size as f64, exec as f64 / 1e9, wait);
        let Some(lesson) = self.lessons.front_mut() else { return };
        lesson.batches -= 1;
        if lesson.batches == 0 {
            if lesson.refit {
                self.fit.refit();
            }
            self.lessons.pop_front();
        }
    }
}

/// One dispatcher per worker process.
#[derive(Debug)]
pub struct BentoMl {
    settings: BentoMlSettings,
    dispatchers: Vec<Dispatcher>,
    dice: Dice,
}

impl BentoMl {
    /// One process per worker.
    #[must_use]
    pub fn new(settings: BentoMlSettings, workers: usize, seed: u64) -> Self {
        let dispatchers = (0..workers).map(|_| Dispatcher::new(settings)).collect();
        Self { settings, dispatchers, dice: Dice::new(seed ^ 0xbe_170) }
    }

    fn look(&mut self, at: usize, now: Nanos, out: &mut Orders) {
        if let Some(batch) = self.dispatchers[at].look(now, out) {
            out.dispatch(at, batch);
        }
    }

    fn wake(&self, out: &mut Orders) {
        out.wake(self.dispatchers.iter().filter_map(|each| each.tick).min());
    }
}

impl Scheduler for BentoMl {
    fn arrive(&mut self, now: Nanos, id: u32, _: &Job, out: &mut Orders) {
        let alive: Vec<usize> =
            (0..self.dispatchers.len()).filter(|&at| !self.dispatchers[at].dead).collect();
        let Some(&at) = alive.get(self.dice.below(alive.len())) else { return out.reject(id) };
        self.dispatchers[at].queue.push_back((id, now));
        if self.dispatchers[at].tick.is_none() {
            self.look(at, now, out);
        }
        self.wake(out);
    }

    /// The end of a batch wakes nothing: the dispatcher notices when it polls.
    fn done(&mut self, now: Nanos, worker: usize, took: Took, _: &mut Orders) {
        self.dispatchers[worker].learn(now, took.whole());
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        for at in 0..self.dispatchers.len() {
            if self.dispatchers[at].tick.is_some_and(|tick| tick <= now) {
                self.look(at, now, out);
            }
        }
        self.wake(out);
    }

    fn lost(&mut self, _: Nanos, worker: usize, members: &[u32], out: &mut Orders) {
        let dead = Dispatcher { dead: true, ..Dispatcher::new(self.settings) };
        let gone = std::mem::replace(&mut self.dispatchers[worker], dead);
        gone.queue.iter().for_each(|&(id, _)| out.reject(id));
        members.iter().for_each(|&id| out.reject(id));
        self.wake(out);
    }

    fn back(&mut self, _: Nanos, worker: usize, _: &mut Orders) {
        self.dispatchers[worker].dead = false;
    }
}

/// BentoML's line: ordinary least squares through the last 50 batches, at most every 5 seconds.
///
/// With samples of one size only the smallest solution is taken, as its library does; nothing is
/// robust here, because theirs is not.
#[derive(Debug)]
struct BentoMlFit {
    /// Seconds per request.
    slope: f64,
    /// Seconds per batch.
    fixed: f64,
    /// Mean wait of the first request of a batch, in seconds.
    wait: f64,
    samples: VecDeque<(f64, f64, f64)>,
    skipped: u32,
    tokens: f64,
    refilled: Nanos,
}

impl BentoMlFit {
    fn new(max_latency: f64) -> Self {
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

    fn sample(&mut self, now: Nanos, size: f64, duration: f64, wait: f64) {
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

    fn refit(&mut self) {
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
