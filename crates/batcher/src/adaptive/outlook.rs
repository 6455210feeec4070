//! Which batch loses the fewest when the head has too little time for all who wait.
//!
//! A small batch keeps the head and may cost those behind it; to pass over the head lets the worker
//! do more. Which is better shows only in what comes next, so for each choice the next few batches
//! are played, with newcomers in even gaps and for three guesses of how many come, since it is
//! chance that makes batches late. Only where the workers can keep up: under overload everybody's
//! next batches are lost and the best rate decides. It looks ahead by a handful of batches and
//! never past the first 32 heads.

use super::form::{Formed, Scene};
use crate::request::Nanos;

/// Guesses of how many come, in standard deviations of what arrives while a batch runs.
const GUESSES: [f64; 3] = [-1.2, 0.0, 1.2];
/// Heads that may be passed over.
const HEADS: usize = 32;
/// Most batches that are played.
const BATCHES: usize = 12;

/// The next batches as they are played. Positions count all who wait and then the newcomers.
struct Play<'a> {
    scene: &'a Scene<'a>,
    waiting: usize,
    /// Size of one request, on average.
    unit: f64,
    /// Fewest requests in a batch with which the workers keep up, and most.
    goal: usize,
    most: usize,
    /// Time between two newcomers, and what each is given.
    gap: f64,
    given: f64,
}

impl Scene<'_> {
    /// Whether even large batches keep up, if nobody waits longer than evenly spaced ones ask for.
    pub(crate) fn bearable(&self) -> bool {
        let workers = self.fleet.len();
        let given = self.line.last().map_or(0.0, |last| last.given());
        let size = self.curve.largest_within(self.cap, given * workers / (workers + 1.0));
        self.load(size.max(1)) <= 1.0
    }

    /// Of the batches that pass over none, one, two … heads the one that loses the fewest.
    pub(crate) fn fewest_lost(&self, free: &mut Vec<Nanos>) -> Option<Formed> {
        let mut play = Play::new(self)?;
        let (mut best, mut fewest) = (None, usize::MAX);
        for skip in 0..self.line.len().min(HEADS) {
            let mut lost = skip * GUESSES.len();
            if lost >= fewest {
                break;
            }
            let Some(formed) = self.formed_at(skip) else { continue };
            for guess in GUESSES {
                play.expect(self.curve.mean(formed.size), guess);
                self.workers_after(formed.size, free);
                lost += play.lost(formed.skip + formed.len, fewest - lost, free);
                if lost >= fewest {
                    break;
                }
            }
            if lost < fewest {
                (best, fewest) = (Some(formed), lost);
            }
        }
        best
    }

    /// The batch that passes over so many heads and takes along whom it can.
    fn formed_at(&self, skip: usize) -> Option<Formed> {
        let time = self.time_left(self.line.get(skip).deadline);
        let within = self.curve.largest_within(self.cap_at(skip), time);
        let (len, size) = self.prefix(skip, within);
        (len > 0).then_some(Formed { skip, len, size, hurried: true })
    }
}

impl<'a> Play<'a> {
    fn new(scene: &'a Scene<'a>) -> Option<Self> {
        let (waiting, given) = (scene.line.len(), scene.line.last()?.given());
        let unit = scene.line.size as f64 / waiting as f64;
        let count = |size: u64| ((size as f64 / unit) as usize).max(1);
        let goal = count(scene.keeping_up(1, scene.fleet.len() / scene.rate, f64::INFINITY));
        Some(Self { scene, waiting, unit, goal, most: count(scene.cap), gap: 0.0, given })
    }

    /// So many more or fewer than usual come as chance brings in this time.
    fn expect(&mut self, time: f64, guess: f64) {
        let rate = self.scene.rate / self.unit;
        let scatter = 1.0 / (rate * time).max(1.0).sqrt();
        self.gap = 1.0 / (rate * (1.0 + guess * scatter).max(0.1));
    }

    /// Who is lost from `position` on, counted no further than `enough`.
    fn lost(&self, mut position: usize, enough: usize, free: &mut [Nanos]) -> usize {
        let mut lost = 0;
        for _ in 0..(free.len() + 1).min(BATCHES) {
            let alone = free.len() == 1;
            let Some(slot) = free.iter_mut().min() else { break };
            let (at, here) = self.departure(position, *slot as f64, alone);
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
            *slot =
                (at + if many > 0 { self.scene.curve.mean(self.size(many)) } else { 1.0 }) as Nanos;
            position += many;
        }
        lost
    }

    /// When the next batch leaves a worker that is free at this time, and how many have come by
    /// then. Several workers wait for a batch with which they keep up, while its head has time.
    fn departure(&self, position: usize, free: f64, alone: bool) -> (f64, usize) {
        let mut at = free;
        if !alone && self.here(at) < position + self.goal {
            let takes = self.scene.curve.planned(self.size(self.goal));
            let latest = self.leaves(position) - takes - self.scene.margin as f64;
            at = at.max(self.arrives(position + self.goal - 1).min(latest));
        }
        if self.here(at) <= position {
            at = at.max(self.arrives(position));
        }
        (at, self.here(at).max(position + 1))
    }

    /// How many travel from `position` on; none if its head allows fewer than the workers need.
    fn fitting(&self, position: usize, here: usize, at: f64) -> usize {
        let many = (here - position).min(self.most);
        let left = self.leaves(position) - at - self.scene.margin as f64;
        let within = self.scene.curve.largest_within(self.size(many), left);
        let fit =
            if within == self.size(many) { many } else { (within as f64 / self.unit) as usize };
        if fit >= many.min(self.goal) { fit } else { 0 }
    }

    fn size(&self, many: usize) -> u64 {
        (many as f64 * self.unit + 0.5) as u64
    }

    fn here(&self, at: f64) -> usize {
        self.waiting + ((at - self.scene.start as f64) / self.gap + 0.5) as usize
    }

    fn arrives(&self, position: usize) -> f64 {
        let after = position.saturating_sub(self.waiting) as f64 + 0.5;
        self.scene.start as f64 + self.gap * after
    }

    fn leaves(&self, position: usize) -> f64 {
        match position < self.waiting {
            true => self.scene.line.get(position).deadline as f64,
            false => self.arrives(position) + self.given,
        }
    }
}
