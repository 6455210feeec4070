//! How fast requests come: a decayed count of what arrived.
//!
//! Only sums, no distribution; `returns` knows which clients come back.

use crate::request::Nanos;

/// What arrives per nanosecond, over about the last `tau`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    per_nano: f64,
    /// How much of the memory is filled; 1 once `tau` is long past.
    filled: f64,
    last: Option<Nanos>,
}

impl Rate {
    /// This much arrived.
    pub(crate) fn learn(&mut self, now: Nanos, amount: f64, tau: f64) {
        let Some(last) = self.last.replace(now) else { return };
        let part = 1.0 / tau;
        let decay = decay(now.saturating_sub(last) as f64 * part);
        self.per_nano = self.per_nano * decay + amount * part;
        // Filled by what has passed, never less than by this one arrival.
        self.filled = (1.0 - (1.0 - self.filled) * decay).max(1000.0 * part);
    }

    /// The rate; after a long silence still the rate before it.
    pub(crate) fn get(&self) -> f64 {
        if self.filled > 0.0 { self.per_nano / self.filled } else { 0.0 }
    }

    /// The rate, no faster than a silence that lasts until now allows.
    pub(crate) fn after_silence(&self, now: Nanos, amount: f64) -> f64 {
        let silence = now.saturating_sub(self.last.unwrap_or(0)).max(1) as f64;
        self.get().min(amount / silence)
    }

    /// When the last one came.
    pub(crate) fn last(&self) -> Nanos {
        self.last.unwrap_or(0)
    }
}

/// Arrivals over which it is learned whether they come in groups. Chosen: chance makes fewer look
/// like groups.
const GROUPS: f64 = 128.0;

/// What arrives in a group, and what of it is not a return.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) all: Rate,
    /// None as long as no client has come back: it would be the same.
    open: Option<Rate>,
    /// Share of the arrivals without returns that came within a `moment` of one another.
    together: f64,
    pub(crate) moment: f64,
}

impl Flow {
    /// This much arrived.
    pub(crate) fn learn(&mut self, now: Nanos, amount: f64, tau: f64, returned: bool) {
        if returned && self.open.is_none() {
            self.open = Some(self.all.clone());
        }
        if !returned {
            let close = now.saturating_sub(self.open().last()) as f64 <= self.moment;
            self.together += (if close { 1.0 } else { 0.0 } - self.together) / GROUPS;
        }
        self.all.learn(now, amount, tau);
        if let Some(open) = self.open.as_mut().filter(|_| !returned) {
            open.learn(now, amount, tau);
        }
    }

    /// How much likelier another one comes within a moment of the last than by mere chance.
    pub(crate) fn company(&self, unit: f64) -> f64 {
        self.together - 1.0 + decay(self.open().get() / unit * self.moment)
    }

    /// The arrivals without returns.
    pub(crate) fn open(&self) -> &Rate {
        self.open.as_ref().unwrap_or(&self.all)
    }
}

/// About e^-x for x >= 0, by arithmetic that gives the same bits everywhere.
fn decay(x: f64) -> f64 {
    1.0 / (1.0 + x * (1.0 + x * (0.5 + x / 6.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_settles_at_the_rate_of_even_and_of_bunched_arrivals() {
        let (mut even, mut bunched) = (Rate::default(), Rate::default());
        for n in 0..4000 {
            even.learn(n * 1000, 1.0, 100_000.0);
            bunched.learn(n / 10 * 10_000, 1.0, 100_000.0);
        }
        assert!((even.get() * 1000.0 - 1.0).abs() < 0.03, "{}", even.get() * 1000.0);
        assert!((bunched.get() * 1000.0 - 1.0).abs() < 0.12, "{}", bunched.get() * 1000.0);
    }

    #[test]
    fn the_first_arrivals_already_give_the_right_magnitude() {
        let mut rate = Rate::default();
        (0..5).for_each(|n| rate.learn(n * 1000, 1.0, 1e6));
        assert!((0.5..2.0).contains(&(rate.get() * 1000.0)), "{}", rate.get() * 1000.0);
    }

    #[test]
    fn groups_are_told_from_many_who_come_by_chance() {
        let flow = |gap: fn(u64) -> u64| {
            let (mut flow, mut now) = (Flow { moment: 300.0, ..Flow::default() }, 0);
            for n in 0..2000 {
                now += gap(n);
                flow.learn(now, 1.0, 1e6, false);
            }
            flow.company(1.0)
        };
        assert!(flow(|n| if n % 4 == 0 { 4000 } else { 5 }) > 0.4);
        assert!(flow(|_| 1000) < 0.0);
        assert!(flow(|_| 100) < 0.8, "all are close, as chance would have it too");
        let mut closed = Flow { moment: 300.0, ..Flow::default() };
        (0..2000).for_each(|n| closed.learn(n * 10, 1.0, 1e6, true));
        assert!(closed.company(1.0) <= 0.0, "returns are expected elsewhere");
    }

    #[test]
    fn a_silence_lowers_the_rate_that_may_be_counted_on() {
        let mut rate = Rate::default();
        (0..1000).for_each(|n| rate.learn(n * 1000, 1.0, 1e5));
        assert!(rate.after_silence(999_500, 1.0) > 0.9e-3);
        assert!(rate.after_silence(1_009_000, 1.0) <= 1e-4);
    }
}
