//! Chance and misfortune in service times: jitter, outliers, and a machine that becomes slower.
//!
//! Apart from `curve`, which stays the truth that a profile would have measured.

use jitney_batcher::Nanos;

use crate::dice::Dice;

/// What happens to the time of every batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noise {
    /// Standard deviation of the logarithm of the time; 0.05 is five percent.
    pub jitter: f64,
    /// Share of batches that take [`Noise::outlier`] times as long.
    pub outliers: f64,
    /// How much longer those take.
    pub outlier: f64,
    /// From this time on everything takes this many times as long.
    pub slow: Option<(Nanos, f64)>,
    /// Until this time everything takes this many times as long: what is done for the first time.
    pub cold: Option<(Nanos, f64)>,
}

impl Noise {
    /// No chance at all.
    pub const NONE: Self =
        Self { jitter: 0.0, outliers: 0.0, outlier: 1.0, slow: None, cold: None };

    /// The columns called noisy: five percent of jitter, and two in a thousand take twice as long.
    pub const NOISY: Self = Self { jitter: 0.05, outliers: 0.002, outlier: 2.0, ..Self::NONE };

    /// How long a batch that should take `time` takes when it starts `now`.
    pub fn apply(&self, time: Nanos, now: Nanos, dice: &mut Dice) -> Nanos {
        let mut factor = 1.0;
        if self.jitter > 0.0 {
            factor *= (self.jitter * dice.normal()).exp();
        }
        if self.outliers > 0.0 && dice.chance(self.outliers) {
            factor *= self.outlier;
        }
        if let Some((from, times)) = self.slow
            && now >= from
        {
            factor *= times;
        }
        if let Some((until, times)) = self.cold
            && now < until
        {
            factor *= times;
        }
        ((time as f64 * factor) as Nanos).max(1)
    }
}
