//! For how long fewer workers would have to be enough, and the most that was needed in that time.

use crate::request::Nanos;

/// Fewer are wanted when they would have been enough for so many times a load, within bounds. Chosen: a
/// worker that is started again costs a load, and the requests of that time.
const HOLD_LOADS: u64 = 6;
const HOLD_MIN: Nanos = 30_000_000_000;
const HOLD_MAX: Nanos = 600_000_000_000;
/// How much longer it is held after it was wrong to go down, at most. Bound: three doublings.
pub(super) const HOLD_GROWTH_MAX: u32 = 3;
/// Bound: needs are remembered as the maxima of so many parts of the usual time.
const HOLD_PARTS: u64 = 16;

/// For how long fewer workers would have to be enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// For one that is left over with more to spare.
    pub(super) short: Nanos,
    pub(super) long: Nanos,
    /// The length of a part of the remembered needs.
    part: Nanos,
}

impl Hold {
    /// With this time of a load, after it was wrong so often to go down.
    pub(super) fn of(load: Nanos, wrong: u32) -> Self {
        let usual = load.saturating_mul(HOLD_LOADS).clamp(HOLD_MIN, HOLD_MAX);
        Self { short: usual / HOLD_LOADS, long: usual << wrong, part: usual / HOLD_PARTS }
    }
}

/// The most that was needed lately, as maxima of short parts of the time.
///
/// A part knows its time and not its number: the length of a part follows the time of a load, and what was needed before
/// that changed is neither kept for longer nor forgotten.
#[derive(Clone, Debug)]
pub(super) struct HeldNeeds {
    /// A ring.
    parts: [Part; Self::PARTS],
    last: usize,
}

/// A part of the time.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    from: Nanos,
    /// The last look.
    until: Nanos,
    need: f64,
}

impl Default for HeldNeeds {
    fn default() -> Self {
        Self { parts: [Part::default(); Self::PARTS], last: 0 }
    }
}

impl HeldNeeds {
    /// Bound: the longest hold, and a part that is not over.
    const PARTS: usize = (HOLD_PARTS << HOLD_GROWTH_MAX) as usize + 2;

    pub(super) fn push(&mut self, now: Nanos, hold: Hold, need: f64) {
        if now.saturating_sub(self.parts[self.last].from) >= hold.part {
            self.last = (self.last + 1) % Self::PARTS;
            self.parts[self.last] = Part { from: now, until: now, need };
        }
        let part = &mut self.parts[self.last];
        (part.until, part.need) = (now, part.need.max(need));
    }

    /// The most since this time; the part of it counts wholly.
    pub(super) fn most(&self, since: Nanos) -> f64 {
        let lately = self.parts.iter().filter(|part| part.until >= since);
        lately.fold(0.0, |most, part| f64::max(most, part.need))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn what_was_needed_is_held_as_long_when_the_time_of_a_load_changes() {
        for (before, after) in [(5, 40), (40, 5)] {
            let mut needs = HeldNeeds::default();
            for second in 1000..1100 {
                needs.push(second * SECOND, Hold::of(before * SECOND, 0), 3.0);
            }
            for second in 1100..1300 {
                needs.push(second * SECOND, Hold::of(after * SECOND, 0), 1.0);
            }
            assert_eq!(needs.most(1085 * SECOND), 3.0, "after {before} s, {after} s");
            assert_eq!(needs.most(1120 * SECOND), 1.0, "after {before} s, {after} s");
        }
    }
}
