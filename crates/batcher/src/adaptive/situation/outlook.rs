//! Which batch loses the fewest requests when the head has too little time for all that wait.
//!
//! A small batch keeps the head and may cost requests behind it; passing over the head lets the
//! worker do more. So for each choice the next few batches are simulated, with new requests at even
//! gaps and for three guesses of how many come, since chance makes batches late. This is done only
//! where the workers keep up: under overload the best rate decides. It looks a few batches ahead and
//! never past the first 32 heads.

use super::{Candidate, PLAN, Situation};
use crate::learned::curves::Curve;
use crate::request::Nanos;

/// Guesses of how many come: as usual, and so many standard deviations more and fewer of what
/// arrives while a batch runs. Measured: table `g99`.
const SPREAD: f64 = 1.2;
/// Heads that may be passed over. Chosen: it limits the time of a decision.
const HEADS: usize = 32;

/// The next batches, simulated. Positions count the requests that wait and then the new ones.
struct Lookahead<'a> {
    situation: &'a Situation<'a>,
    /// What batches take that follow on a busy worker.
    later: Curve<'a>,
    waiting: usize,
    /// Size of one request, on average.
    unit: f64,
    /// Fewest requests in a batch with which the workers keep up, and most.
    goal: usize,
    most: usize,
    /// Time between two new requests, and what each is given.
    gap: f64,
    given: f64,
}

impl Situation<'_> {
    /// Whether even large batches keep up, if no request waits longer than between even batches.
    pub(crate) fn bearable(&self) -> bool {
        let workers = self.forecast.len();
        let given = self.queue.waiting.back().map_or(0.0, |last| last.given());
        let size = self.curve.largest_within(self.cap, given * workers / (workers + 1.0));
        self.load(size.max(1)) <= 1.0
    }

    /// Of the batches that pass over none, one, two … heads the one that loses the fewest.
    pub(crate) fn fewest_lost(&self, free: &mut Vec<Nanos>) -> Option<Candidate> {
        let mut ahead = Lookahead::new(self)?;
        let (mut best, mut fewest) = (None, usize::MAX);
        for skip in 0..self.queue.waiting.len().min(HEADS) {
            let mut lost = skip * 3;
            if lost >= fewest {
                break;
            }
            let Some(candidate) = self.candidate_at(skip) else { continue };
            for guess in [-SPREAD, 0.0, SPREAD] {
                ahead.expect(self.curve.mean(candidate.size), guess);
                self.workers_after(candidate.size, free);
                lost += ahead.lost(candidate.skip + candidate.len, fewest - lost, free);
                if lost >= fewest {
                    break;
                }
            }
            if lost < fewest {
                (best, fewest) = (Some(candidate), lost);
            }
        }
        best
    }

    /// The batch that passes over so many heads and takes what fits.
    fn candidate_at(&self, skip: usize) -> Option<Candidate> {
        let time = self.time_left(self.queue.waiting[skip].deadline);
        let within = self.curve.largest_within(self.cap_at(skip), time);
        let (len, size) = self.prefix(skip, within);
        (len > 0).then_some(Candidate { skip, len, size, hurried: true })
    }
}

impl<'a> Lookahead<'a> {
    fn new(situation: &'a Situation<'a>) -> Option<Self> {
        let (waiting, given) =
            (situation.queue.waiting.len(), situation.queue.waiting.back()?.given());
        let unit = situation.queue.size as f64 / waiting as f64;
        let count = |size: u64| ((size as f64 / unit) as usize).max(1);
        let goal = count(situation.keeping_up(
            1,
            situation.forecast.len() / situation.rate,
            f64::INFINITY,
        ));
        let (later, most) = (situation.curve.following(), count(situation.cap));
        Some(Self { situation, later, waiting, unit, goal, most, gap: 0.0, given })
    }

    /// Sets how many come: more or fewer than usual, as chance may bring in this time.
    fn expect(&mut self, time: f64, guess: f64) {
        let rate = self.situation.rate / self.unit;
        let scatter = 1.0 / (rate * time).max(1.0).sqrt();
        self.gap = 1.0 / (rate * (1.0 + guess * scatter).max(0.1));
    }

    /// How many are lost from `position` on, counted no further than `enough`.
    fn lost(&self, mut position: usize, enough: usize, free: &mut [Nanos]) -> usize {
        let mut lost = 0;
        for _ in 0..(free.len() + 1).min(PLAN) {
            let alone = free.len() == 1;
            let Some(slot) = free.iter_mut().min() else { break };
            let (at, here) = self.dispatch(position, *slot as f64, alone);
            let mut many = 0;
            while position < here && lost < enough {
                many = self.fitting(position, here, at);
                if many > 0 {
                    break;
                }
                (position, lost) = (position + 1, lost + 1);
            }
            if lost >= enough {
                break;
            }
            *slot = (at + if many > 0 { self.later.cycle(self.size(many)) } else { 1.0 }) as Nanos;
            position += many;
        }
        lost
    }

    /// When a worker that is free at this time gets the next batch, and how many requests have come
    /// by then. Several workers wait for a batch with which they keep up, while its head has time.
    fn dispatch(&self, position: usize, free: f64, alone: bool) -> (f64, usize) {
        let mut at = free;
        if !alone && self.here(at) < position + self.goal {
            let takes = self.later.planned(self.size(self.goal));
            let latest = self.deadline(position) - takes - self.situation.margin as f64;
            at = at.max(self.arrives(position + self.goal - 1).min(latest));
        }
        if self.here(at) <= position {
            at = at.max(self.arrives(position));
        }
        (at, self.here(at).max(position + 1))
    }

    /// How many fit from `position` on; none if its head allows fewer than the workers need.
    fn fitting(&self, position: usize, here: usize, at: f64) -> usize {
        let many = (here - position).min(self.most);
        let left = self.deadline(position) - at - self.situation.margin as f64;
        let within = self.later.largest_within(self.size(many), left);
        let fit =
            if within == self.size(many) { many } else { (within as f64 / self.unit) as usize };
        if fit >= many.min(self.goal) { fit } else { 0 }
    }

    fn size(&self, many: usize) -> u64 {
        (many as f64 * self.unit + 0.5) as u64
    }

    fn here(&self, at: f64) -> usize {
        self.waiting + ((at - self.situation.start as f64) / self.gap + 0.5) as usize
    }

    fn arrives(&self, position: usize) -> f64 {
        let after = position.saturating_sub(self.waiting) as f64 + 0.5;
        self.situation.start as f64 + self.gap * after
    }

    fn deadline(&self, position: usize) -> f64 {
        match position < self.waiting {
            true => self.situation.queue.waiting[position].deadline as f64,
            false => self.arrives(position) + self.given,
        }
    }
}
