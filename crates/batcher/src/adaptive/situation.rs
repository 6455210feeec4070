//! Which requests a batch would hold if it were dispatched now: how many heads to pass over, and how
//! many to take.
//!
//! Normally all that fit. If that would make the head late, `outlook` finds the batch that loses the
//! fewest in the end. Under overload it is the batch that serves the most per unit of time, which
//! passes over the heads: dropping only expired requests would leave all others just too little
//! time, and goodput would collapse. Where some requests have far more time than others, it is a
//! small batch for the urgent ones, if all behind them can still be served. Requests that were
//! passed over are added where there is room and they may be in time with luck, because a batch can
//! be faster than planned. `trim` ends a batch at a step of the curve. When the batch is dispatched
//! is decided elsewhere.

mod outlook;

use super::rhythm::Rhythm;
use crate::config::Config;
use crate::forecast::WorkerForecast;
use crate::learned::curves::Curve;
use crate::queue::sorted::SortedQueue;
use crate::request::{NEVER, Nanos};

/// Time kept between a planned finish and a deadline, in nanoseconds. Chosen: what a thread may be
/// late by.
pub(crate) const MARGIN: Nanos = 50_000;
/// Heads that are considered for being passed over. Chosen: it limits the time of a decision.
const SCAN: usize = 1024;
/// Batches planned ahead to see whether all requests will be in time. Chosen: it limits the time of
/// a decision.
pub(crate) const PLAN: usize = 12;
/// Workers keep up with batches that would take this share of their time: not quite 1, because
/// batches that are small for a deadline's sake are followed by larger ones. Chosen: with that in
/// mind.
const KEEPS_UP: f64 = 1.05;
/// Deadlines further apart than this are classes of their own. Chosen: what is nearer can share a
/// batch.
const MIXED: f64 = 1.5;
/// How far below a batch's size a step is looked for. Chosen: a step of 8 or 16 is what compiled
/// models have.
const REACH: u64 = 16;

/// A batch that could be dispatched: a run of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) skip: usize,
    pub(crate) len: usize,
    pub(crate) size: u64,
    /// Whether a deadline, and no other limit, kept it from being larger.
    pub(crate) hurried: bool,
}

/// All that the choice of a candidate looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) queue: &'a SortedQueue,
    pub(crate) curve: Curve<'a>,
    pub(crate) config: &'a Config,
    pub(crate) forecast: &'a WorkerForecast,
    /// When the batch would start.
    pub(crate) start: Nanos,
    /// Time to keep between the planned finish and a deadline.
    pub(crate) margin: Nanos,
    /// Largest size to try, apart from the limits of the model.
    pub(crate) cap: u64,
    /// Size units that arrive per nanosecond.
    pub(crate) rate: f64,
    /// How clients that come back are served, where that has been weighed.
    pub(crate) rhythm: Option<Rhythm>,
}

impl Situation<'_> {
    /// The batch to dispatch if one is dispatched now. Where no request is planned to be in time it
    /// is one that may be with luck. None: all are infeasible.
    pub(crate) fn candidate(&self, free: &mut Vec<Nanos>) -> Option<Candidate> {
        self.planned(free).or_else(|| self.with_luck().planned(free))
    }

    /// The same situation for requests that can only be in time with luck.
    fn with_luck(&self) -> Self {
        let margin = self.margin.saturating_sub(MARGIN);
        Self { curve: self.curve.with_luck(), margin, ..*self }
    }

    /// The batch in which no request is planned to be late.
    fn planned(&self, free: &mut Vec<Nanos>) -> Option<Candidate> {
        let head = self.queue.head()?;
        let (all, size) = self.prefix(0, u64::MAX);
        let time = self.time_left(head.deadline);
        if all > 0 && self.curve.planned(size) <= time {
            return Some(Candidate { skip: 0, len: all, size, hurried: false });
        }
        let (len, small) = self.prefix(0, self.curve.largest_within(self.cap_at(0), time));
        let mixed = self.mixed();
        if !mixed && self.bearable() {
            let candidate = self.fewest_lost(free).or_else(|| self.best_rate());
            return candidate.map(|candidate| self.with_long_shots(candidate));
        }
        let may_stay = len > 0 && (self.sustainable(small) || mixed);
        if may_stay && self.feasible(len, small, free) {
            return Some(Candidate { skip: 0, len, size: small, hurried: true });
        }
        self.best_rate().map(|candidate| self.with_long_shots(candidate))
    }

    /// The batch with requests that were passed over and may be in time with luck, if that makes no
    /// other late.
    fn with_long_shots(&self, candidate: Candidate) -> Candidate {
        let time = self.time_left(self.queue.waiting[candidate.skip].deadline);
        let (lucky, mut candidate) = (self.with_luck(), candidate);
        while let Some(skip) = candidate.skip.checked_sub(1) {
            let head = &self.queue.waiting[skip];
            let size = candidate.size + u64::from(head.size);
            let len = candidate.len + 1;
            let harmless = self.curve.planned(size) <= time && self.prefix(skip, size).0 == len;
            if !harmless || lucky.curve.planned(size) > lucky.time_left(head.deadline) {
                break;
            }
            candidate = Candidate { skip, len, size, ..candidate };
        }
        candidate
    }

    /// The batch to dispatch while nothing is known: as many as may be tried.
    pub(crate) fn first(&self) -> Option<Candidate> {
        self.queue.head()?;
        let (len, size) = self.prefix(0, u64::MAX);
        Some(Candidate { skip: 0, len, size, hurried: false })
    }

    /// Time a batch has that starts now, for this deadline.
    pub(crate) fn time_left(&self, deadline: Nanos) -> f64 {
        if deadline == NEVER {
            return f64::INFINITY;
        }
        deadline as f64 - (self.start + self.margin) as f64
    }

    /// What others may add to a batch that takes the whole queue, without making its head late.
    pub(crate) fn room(&self, candidate: Candidate) -> u64 {
        if candidate.skip + candidate.len < self.queue.waiting.len() {
            return 0;
        }
        let time = self.time_left(self.queue.waiting[candidate.skip].deadline);
        self.curve.largest_within(self.cap, time).saturating_sub(candidate.size)
    }

    /// Whether batches of this size keep up with the arrivals.
    fn sustainable(&self, size: u64) -> bool {
        self.load(size) <= KEEPS_UP
    }

    /// The size beyond which a batch does not wait for more.
    pub(crate) fn goal(&self) -> u64 {
        self.rhythm.map_or(u64::MAX, |rhythm| rhythm.least)
    }

    /// What one more adds to the time of a batch. Where clients come back for a batch of a certain
    /// size it is their mean, for the next size at which the model runs may be far away.
    #[inline]
    pub(crate) fn one_more(&self, candidate: Candidate, own: f64) -> f64 {
        match self.rhythm {
            Some(Rhythm { least, .. }) if least > candidate.size => {
                (self.curve.mean(least) - own) / (least - candidate.size) as f64
            }
            _ => self.curve.mean(candidate.size + 1) - own,
        }
    }

    /// The share of the workers' time that batches of this size take.
    pub(crate) fn load(&self, size: u64) -> f64 {
        self.rate * self.curve.cycle(size) / (size.max(1) as f64 * self.forecast.len())
    }

    /// When the head of this batch must be dispatched so that one more could still be added.
    pub(crate) fn latest(&self, candidate: Candidate, unit: f64) -> Nanos {
        let deadline = self.queue.waiting[candidate.skip].deadline;
        if deadline == NEVER {
            return NEVER;
        }
        let more = candidate.size + (unit as u64).max(1);
        deadline.saturating_sub(self.margin + self.curve.planned(more) as Nanos)
    }

    /// How long until a new request would find a worker if this batch were dispatched now.
    pub(crate) fn next_worker(&self, candidate: Candidate) -> f64 {
        let own = self.curve.cycle(candidate.size);
        let next = self.forecast.soonest_busy().map_or(own, |busy| own.min(busy as f64));
        let spare = f64::from(self.forecast.open.saturating_sub(1));
        if spare == 0.0 { next } else { next - spare / self.rate.max(1e-12) }
    }

    /// The smallest size from this one on that takes no longer than `each` per unit of size; or the
    /// largest that takes no longer than `most` altogether.
    pub(crate) fn keeping_up(&self, from: u64, each: f64, most: f64) -> u64 {
        let (mut size, mut mean) = (from, self.curve.cycle(from));
        while size < self.cap && mean > each * size as f64 {
            let next = size + (size / 32).max(1);
            mean = self.curve.cycle(next);
            if mean > most {
                break;
            }
            size = next;
        }
        size.min(self.cap)
    }

    /// How many requests from `skip` on, and of what size, fit into the limits and this size.
    fn prefix(&self, skip: usize, within: u64) -> (usize, u64) {
        let within = within.min(self.cap_at(skip));
        if skip == 0
            && self.queue.size <= within
            && self.config.holds(self.queue.items, self.queue.cost)
        {
            return (self.queue.waiting.len(), self.queue.size);
        }
        let (mut size, mut items, mut cost) = (0, 0, 0);
        for position in skip..self.queue.waiting.len() {
            let entry = &self.queue.waiting[position];
            items += u64::from(entry.items);
            cost += u128::from(entry.cost);
            let next = size + u64::from(entry.size);
            if next > within || !self.config.holds(items, cost) {
                return (position - skip, size);
            }
            size = next;
        }
        (self.queue.waiting.len() - skip, size)
    }

    /// A request larger than the cap goes alone.
    fn cap_at(&self, position: usize) -> u64 {
        self.cap.max(self.queue.waiting[position].size.into())
    }

    /// Whether the last request was given far more time than the head.
    fn mixed(&self) -> bool {
        let ends = self.queue.head().zip(self.queue.waiting.back());
        ends.is_some_and(|(head, last)| last.given() > MIXED * head.given())
    }

    /// When each worker is free if a batch of this size is dispatched now.
    fn workers_after(&self, size: u64, free: &mut Vec<Nanos>) {
        free.clear();
        free.push(self.start + self.curve.mean(size) as Nanos);
        free.extend((1..self.forecast.open).map(|_| self.start));
        free.extend(self.forecast.busy.iter().map(|time| self.start + time));
    }

    /// Whether all requests behind this batch will be in time if dispatched in order of deadline.
    fn feasible(&self, len: usize, size: u64, free: &mut Vec<Nanos>) -> bool {
        self.workers_after(size, free);
        let mut position = len;
        for _ in 0..PLAN {
            if position >= self.queue.waiting.len() {
                return true;
            }
            let Some(slot) = free.iter_mut().min() else { return false };
            let later = Situation { start: *slot, curve: self.curve.following(), ..*self };
            let deadline = self.queue.waiting[position].deadline;
            let within =
                later.curve.largest_within(self.cap_at(position), later.time_left(deadline));
            let (len, size) = later.prefix(position, within);
            if len == 0 {
                return false;
            }
            *slot += self.curve.cycle(size) as Nanos;
            position += len;
        }
        true
    }

    /// The run of the queue that serves the most per unit of time with no request late.
    fn best_rate(&self) -> Option<Candidate> {
        let (mut best, mut best_rate) = (None, 0.0);
        let (mut end, mut size, mut items, mut cost) = (0, 0u64, 0u64, 0u128);
        for skip in 0..self.queue.waiting.len().min(SCAN) {
            let head = &self.queue.waiting[skip];
            let time = self.time_left(head.deadline);
            let within = self.curve.largest_within(self.cap_at(skip), time);
            // Requests behind have no less time, so the end of the run only moves on.
            while end < self.queue.waiting.len() {
                let next = &self.queue.waiting[end];
                let held = (items + u64::from(next.items), cost + u128::from(next.cost));
                if size + u64::from(next.size) > within || !self.config.holds(held.0, held.1) {
                    break;
                }
                (items, cost) = held;
                size += u64::from(next.size);
                end += 1;
            }
            if end == skip {
                end += 1;
                continue;
            }
            let rate = size as f64 / self.curve.cycle(size);
            if rate > best_rate * (1.0 + 1e-9) {
                best_rate = rate;
                best = Some(Candidate { skip, len: end - skip, size, hurried: true });
            }
            // A request without a deadline is not passed over: all behind it have none either.
            if head.deadline == NEVER {
                break;
            }
            size -= u64::from(head.size);
            items -= u64::from(head.items);
            cost -= u128::from(head.cost);
        }
        best
    }

    // Steps of the service curve: a model that pads to multiples, or runs at certain sizes only, makes
    // all requests of a batch wait for a few more. These are left for the next worker if that costs
    // them less than it saves the others.

    /// The batch, or its part up to a step below it. `next_free`: until the next worker is free.
    pub(crate) fn trim(&self, candidate: Candidate, next_free: f64) -> Candidate {
        if let Some(Rhythm { size, least, .. }) = self.rhythm {
            let part = self.part(candidate, if candidate.size < size { least } else { size });
            return if self.may_part(candidate, part, next_free) { part } else { candidate };
        }
        if self.config.run_sizes().is_empty() {
            let lowest = candidate.size.saturating_sub(REACH).max(1);
            let step = (lowest..candidate.size).rev().find(|&size| self.curve.step_above(size));
            let part = step.map(|step| self.part(candidate, step));
            let part = part.filter(|&part| self.gain(candidate, part, next_free) > 0.0);
            return part.unwrap_or(candidate);
        }
        let (mut best, mut most) = (candidate, 0.0);
        for step in self.curve.steps_below(candidate.size) {
            let part = self.part(candidate, step);
            let gain = self.gain(candidate, part, next_free);
            if gain > most {
                (best, most) = (part, gain);
            }
        }
        best
    }

    /// The part of a batch that is no larger than this.
    fn part(&self, candidate: Candidate, most: u64) -> Candidate {
        let (mut size, mut len) = (0, 0);
        while len < candidate.len {
            let next = size + u64::from(self.queue.waiting[candidate.skip + len].size);
            if next > most {
                break;
            }
            (size, len) = (next, len + 1);
        }
        Candidate { len, size, ..candidate }
    }

    /// Whether there is a part and those whom it leaves will still be in time.
    fn may_part(&self, whole: Candidate, part: Candidate, next_free: f64) -> bool {
        if part.len == 0 || part.len == whole.len {
            return false;
        }
        let left = self.queue.waiting[whole.skip + part.len].deadline;
        let needs = next_free + self.curve.planned(whole.size - part.size);
        needs <= self.time_left(left)
    }

    /// What all requests together save by this part, if the workers keep up.
    fn gain(&self, whole: Candidate, part: Candidate, next_free: f64) -> f64 {
        if !self.may_part(whole, part, next_free) {
            return 0.0;
        }
        let rest = whole.size - part.size;
        let [all, some, few] = [whole.size, part.size, rest].map(|size| self.curve.mean(size));
        let saved = part.size as f64 * (all - some);
        let spent = rest as f64 * (next_free + few - all);
        let sized = || !self.config.run_sizes().is_empty();
        let load = self.load(part.size);
        let bearable = load <= 1.0 || sized() && load < self.load(whole.size);
        if bearable { saved - spent } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
