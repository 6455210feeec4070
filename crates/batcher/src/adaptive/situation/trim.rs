//! Ending a batch at a step of the service curve.
//!
//! A model that pads to multiples, or runs at certain sizes only, makes all requests of a batch wait
//! for a few more. These are left for the next worker if that costs them less than it saves the
//! others.

use super::{Candidate, Situation};

/// How far below a batch's size a step is looked for.
const REACH: u64 = 16;
/// A smaller batch must keep this much of the workers' time free.
const BUSY_MAX: f64 = 0.95;
/// The gain must exceed this share of the batch's time.
const WORTH: f64 = 0.02;

impl Situation<'_> {
    /// The batch, or its part up to a step below it. `next_free`: until the next worker is free.
    pub(crate) fn trim(&self, candidate: Candidate, next_free: f64) -> Candidate {
        let lowest = candidate.size.saturating_sub(REACH).max(1);
        let step = (lowest..candidate.size).rev().find(|&size| self.curve.step_above(size));
        let Some(step) = step else { return candidate };
        let (mut size, mut len) = (0, 0);
        while len < candidate.len {
            let next = size + u64::from(self.queue.get(candidate.skip + len).size);
            if next > step {
                break;
            }
            (size, len) = (next, len + 1);
        }
        let part = Candidate { len, size, ..candidate };
        if len > 0 && self.pays(candidate, part, next_free) { part } else { candidate }
    }

    fn pays(&self, whole: Candidate, part: Candidate, next_free: f64) -> bool {
        let rest = whole.size - part.size;
        let left = self.queue.get(whole.skip + part.len).deadline;
        let in_time = next_free + self.curve.planned(rest) <= self.time_left(left);
        let [all, some, few] = [whole.size, part.size, rest].map(|size| self.curve.mean(size));
        let saved = part.size as f64 * (all - some);
        let spent = rest as f64 * (next_free + few - all) + WORTH * whole.size as f64 * all;
        in_time && self.load(part.size) <= BUSY_MAX && saved > spent
    }
}
