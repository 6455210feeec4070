//! Who would travel if a batch left now: how many hurried heads to pass over, how many to take.
//!
//! Normally all who fit. If that would make the head late, `outlook` says which batch loses the
//! fewest in the end. Under overload it is the one that serves the most per unit of time, which
//! passes over those at the head: dropping only the expired would leave everybody else just too
//! little time, and goodput would collapse. Where some have far more time than others, a small batch
//! for the hurried ones, if all behind them can still be served. Who was passed over comes along
//! where there is room and luck may help: a batch can be faster than planned. It never says when.

use super::curves::Curve;
use super::fleet::Fleet;
use super::line::Line;
use crate::config::Config;
use crate::request::{NEVER, Nanos};

/// Time kept between a planned finish and a deadline.
pub(crate) const MARGIN: Nanos = 50_000;
/// Heads that are considered for being passed over.
const SCAN: usize = 1024;
/// Batches planned ahead to see whether everybody will be in time.
const PLAN: usize = 24;
/// Workers keep up with batches that would take this share of their time: not quite 1, because
/// batches that are small for a deadline's sake are followed by larger ones.
const KEEPS_UP: f64 = 1.05;
/// Deadlines further apart than this are classes of their own.
const MIXED: f64 = 1.5;

/// A batch that could leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Formed {
    pub(crate) skip: usize,
    pub(crate) len: usize,
    pub(crate) size: u64,
    /// Whether a deadline, and no other limit, kept it from being larger.
    pub(crate) hurried: bool,
}

/// All that a formation looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) line: &'a Line,
    pub(crate) curve: Curve<'a>,
    pub(crate) config: &'a Config,
    pub(crate) fleet: &'a Fleet,
    /// When the batch would start.
    pub(crate) start: Nanos,
    /// Time to keep between the planned finish and a deadline.
    pub(crate) margin: Nanos,
    /// Largest size to form, apart from the limits of the model.
    pub(crate) cap: u64,
    /// Size units that arrive per nanosecond.
    pub(crate) rate: f64,
}

impl Scene<'_> {
    /// The batch that should leave if one leaves now. Where nobody can be planned to be in time it
    /// is one that may be. None: there is no hope.
    pub(crate) fn form(&self, free: &mut Vec<Nanos>) -> Option<Formed> {
        self.planned(free).or_else(|| self.with_luck().planned(free))
    }

    /// The same scene for those who can only be in time if all goes well.
    fn with_luck(&self) -> Self {
        let margin = self.margin.saturating_sub(MARGIN);
        Self { curve: self.curve.with_luck(), margin, ..*self }
    }

    /// The batch with nobody in it who is planned to be late.
    fn planned(&self, free: &mut Vec<Nanos>) -> Option<Formed> {
        let head = self.line.head()?;
        let (all, size) = self.prefix(0, u64::MAX);
        let time = self.time_left(head.deadline);
        if all > 0 && self.curve.planned(size) <= time {
            return Some(Formed { skip: 0, len: all, size, hurried: false });
        }
        let (len, small) = self.prefix(0, self.curve.largest_within(self.cap_at(0), time));
        let mixed = self.mixed();
        if !mixed && self.bearable() {
            let formed = self.fewest_lost(free).or_else(|| self.best_rate());
            return formed.map(|formed| self.with_long_shots(formed));
        }
        let may_stay = len > 0 && (self.sustainable(small) || mixed);
        if may_stay && self.feasible(len, small, free) {
            return Some(Formed { skip: 0, len, size: small, hurried: true });
        }
        self.best_rate().map(|formed| self.with_long_shots(formed))
    }

    /// The batch with those who were passed over and may be in time with luck, if that makes nobody
    /// late.
    fn with_long_shots(&self, formed: Formed) -> Formed {
        let time = self.time_left(self.line.get(formed.skip).deadline);
        let (lucky, mut formed) = (self.with_luck(), formed);
        while let Some(skip) = formed.skip.checked_sub(1) {
            let head = self.line.get(skip);
            let size = formed.size + u64::from(head.size);
            let len = formed.len + 1;
            let harmless = self.curve.planned(size) <= time && self.prefix(skip, size).0 == len;
            if !harmless || lucky.curve.planned(size) > lucky.time_left(head.deadline) {
                break;
            }
            formed = Formed { skip, len, size, ..formed };
        }
        formed
    }

    /// The batch to leave with while nothing is known: as many as may be tried.
    pub(crate) fn first(&self) -> Option<Formed> {
        self.line.head()?;
        let (len, size) = self.prefix(0, u64::MAX);
        Some(Formed { skip: 0, len, size, hurried: false })
    }

    /// Time a batch has that starts now, for this deadline.
    pub(crate) fn time_left(&self, deadline: Nanos) -> f64 {
        if deadline == NEVER {
            return f64::INFINITY;
        }
        deadline as f64 - (self.start + self.margin) as f64
    }

    /// What others may add to a batch that takes the whole line, without making its head late.
    pub(crate) fn room(&self, formed: Formed) -> u64 {
        if formed.skip + formed.len < self.line.len() {
            return 0;
        }
        let time = self.time_left(self.line.get(formed.skip).deadline);
        self.curve.largest_within(self.cap, time).saturating_sub(formed.size)
    }

    /// Whether batches of this size keep up with the arrivals.
    pub(crate) fn sustainable(&self, size: u64) -> bool {
        self.load(size) <= KEEPS_UP
    }

    /// The share of the workers' time that batches of this size take.
    pub(crate) fn load(&self, size: u64) -> f64 {
        self.rate * self.curve.mean(size) / (size.max(1) as f64 * self.fleet.len())
    }

    /// How many from `skip` on, and of what size, travel within the limits and this size.
    pub(crate) fn prefix(&self, skip: usize, within: u64) -> (usize, u64) {
        let within = within.min(self.cap_at(skip));
        if skip == 0
            && self.line.size <= within
            && self.config.holds(self.line.items, self.line.cost)
        {
            return (self.line.len(), self.line.size);
        }
        let (mut size, mut items, mut cost) = (0, 0, 0);
        for position in skip..self.line.len() {
            let entry = self.line.get(position);
            items += u64::from(entry.items);
            cost += u128::from(entry.cost);
            let next = size + u64::from(entry.size);
            if next > within || !self.config.holds(items, cost) {
                return (position - skip, size);
            }
            size = next;
        }
        (self.line.len() - skip, size)
    }

    /// A request larger than the cap travels alone.
    pub(crate) fn cap_at(&self, position: usize) -> u64 {
        self.cap.max(self.line.get(position).size.into())
    }

    /// Whether the last in line has far more time than the head had.
    fn mixed(&self) -> bool {
        let ends = self.line.head().zip(self.line.last());
        ends.is_some_and(|(head, last)| last.given() > MIXED * head.given())
    }

    /// When each worker is free if a batch of this size leaves now.
    pub(crate) fn workers_after(&self, size: u64, free: &mut Vec<Nanos>) {
        free.clear();
        free.push(self.start + self.curve.mean(size) as Nanos);
        free.extend((1..self.fleet.open).map(|_| self.start));
        free.extend(self.fleet.busy.iter().map(|time| self.start + time));
    }

    /// Whether everybody behind this batch will be in time if all leave in order of deadline.
    fn feasible(&self, len: usize, size: u64, free: &mut Vec<Nanos>) -> bool {
        self.workers_after(size, free);
        let mut position = len;
        for _ in 0..PLAN {
            if position >= self.line.len() {
                return true;
            }
            let Some(slot) = free.iter_mut().min() else { return false };
            let later = Scene { start: *slot, ..*self };
            let deadline = self.line.get(position).deadline;
            let within =
                later.curve.largest_within(self.cap_at(position), later.time_left(deadline));
            let (len, size) = later.prefix(position, within);
            if len == 0 {
                return false;
            }
            *slot += self.curve.mean(size) as Nanos;
            position += len;
        }
        true
    }

    /// The run of the line that serves the most per unit of time with nobody in it late.
    fn best_rate(&self) -> Option<Formed> {
        let (mut best, mut best_rate) = (None, 0.0);
        let (mut end, mut size, mut items, mut cost) = (0, 0u64, 0u64, 0u128);
        for skip in 0..self.line.len().min(SCAN) {
            let head = self.line.get(skip);
            let time = self.time_left(head.deadline);
            let within = self.curve.largest_within(self.cap_at(skip), time);
            // Who stands behind has no less time, so the end of the run only moves on.
            while end < self.line.len() {
                let next = self.line.get(end);
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
            let rate = size as f64 / self.curve.mean(size);
            if rate > best_rate * (1.0 + 1e-9) {
                best_rate = rate;
                best = Some(Formed { skip, len: end - skip, size, hurried: true });
            }
            // Nobody is passed over who is never late: behind them stand only others like them.
            if head.deadline == NEVER {
                break;
            }
            size -= u64::from(head.size);
            items -= u64::from(head.items);
            cost -= u128::from(head.cost);
        }
        best
    }
}

#[cfg(test)]
#[path = "form/tests.rs"]
mod tests;
