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

    /// The number of the part of a time.
    pub(super) fn part(self, at: Nanos) -> u64 {
        at / self.part
    }
}

/// The most that was needed lately, as maxima of short parts of the time.
#[derive(Clone, Debug)]
pub(super) struct HeldNeeds {
    /// A ring by the number of the part; each with that number.
    parts: [(u64, f64); Self::PARTS],
}

impl Default for HeldNeeds {
    fn default() -> Self {
        Self { parts: [(0, 0.0); Self::PARTS] }
    }
}

impl HeldNeeds {
    /// Bound: the longest hold, and a part that is not over.
    const PARTS: usize = (HOLD_PARTS << HOLD_GROWTH_MAX) as usize + 2;

    pub(super) fn push(&mut self, part: u64, need: f64) {
        let place = &mut self.parts[(part % Self::PARTS as u64) as usize];
        if place.0 != part {
            *place = (part, 0.0);
        }
        place.1 = place.1.max(need);
    }

    /// The most since this part.
    pub(super) fn most(&self, since: u64) -> f64 {
        let lately = self.parts.iter().filter(|(part, _)| *part >= since);
        lately.fold(0.0, |most, (_, need)| f64::max(most, *need))
    }
}
