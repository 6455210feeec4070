//! How long clients take to come back: a histogram in half octaves that forgets.
//!
//! Kept as running sums, because it is always asked how many are back by a time. Times beyond the
//! last edge and clients that never came are counted together.

use crate::request::Nanos;

/// Half octaves from 20 us to about 116 ms. Bound: a histogram of return times.
const EDGES_LEN: usize = 26;
pub(crate) static EDGES: [Nanos; EDGES_LEN] = edges();
/// One over the distance of each edge from the one below it.
static PER_NANO: [f64; EDGES_LEN] = per_nano();

/// A sample weighs this much more than the one before, so that old ones fade. Chosen: the last 512
/// count.
const GROWTH: f64 = 1.0 + 1.0 / 512.0;
/// Weights are scaled down beyond this. Derived: far below where doubles lose digits.
const RENORM: f64 = 1e12;

const fn edges() -> [Nanos; EDGES_LEN] {
    let mut edges = [0; EDGES_LEN];
    let mut at = 0;
    while at < EDGES_LEN {
        let base = if at % 2 == 0 { 20_000 } else { 28_284 };
        edges[at] = base << (at / 2);
        at += 1;
    }
    edges
}

const fn per_nano() -> [f64; EDGES_LEN] {
    let edges = edges();
    let mut per_nano = [1.0 / edges[0] as f64; EDGES_LEN];
    let mut at = 1;
    while at < EDGES_LEN {
        per_nano[at] = 1.0 / (edges[at] - edges[at - 1]) as f64;
        at += 1;
    }
    per_nano
}

/// The first edge that is not below this time.
fn position(time: Nanos) -> usize {
    let octaves = time.saturating_sub(1) / EDGES[0];
    if octaves == 0 {
        return 0;
    }
    let at = 2 * octaves.ilog2() as usize + 1;
    at.min(EDGES_LEN) + usize::from(EDGES.get(at).is_some_and(|&edge| edge < time))
}

/// Times between an answer and the next request of the same client.
#[derive(Clone, Debug)]
pub(crate) struct ReturnTimes {
    /// Weight of all times up to each edge.
    sums: [f64; EDGES_LEN],
    never: f64,
    weight: f64,
}

impl Default for ReturnTimes {
    fn default() -> Self {
        Self { sums: [0.0; EDGES_LEN], never: 0.0, weight: 1.0 }
    }
}

impl ReturnTimes {
    /// A client came back after this long.
    pub(crate) fn learn(&mut self, time: Nanos) {
        let at = position(time);
        self.sums[at..].iter_mut().for_each(|sum| *sum += self.weight);
        self.never += if at == EDGES_LEN { self.weight } else { 0.0 };
        self.grow();
    }

    /// This many clients have been away for too long.
    pub(crate) fn give_up(&mut self, clients: u32) {
        self.never += self.weight * f64::from(clients);
        self.grow();
    }

    /// A client that was given up came back after all; `learn` follows.
    pub(crate) fn take_back(&mut self) {
        self.never = (self.never - self.weight).max(0.0);
    }

    fn grow(&mut self) {
        self.weight *= GROWTH;
        if self.weight > RENORM {
            self.sums.iter_mut().for_each(|sum| *sum /= self.weight);
            self.never /= self.weight;
            self.weight = 1.0;
        }
    }

    /// Whether clients come back often enough to be waited for.
    pub(crate) fn worth_asking(&self) -> bool {
        let back = self.sums[EDGES_LEN - 1];
        back > 0.0 && back >= 0.1 * self.never
    }

    /// Weight of the clients that were back by then.
    pub(crate) fn by(&self, time: Nanos) -> f64 {
        let at = position(time);
        let Some(&above) = self.sums.get(at) else { return self.sums[EDGES_LEN - 1] };
        let (low, below) = if at == 0 { (0, 0.0) } else { (EDGES[at - 1], self.sums[at - 1]) };
        below + (above - below) * (time - low) as f64 * PER_NANO[at]
    }

    /// The time by which half of those were back that came back at all.
    pub(crate) fn median(&self) -> Nanos {
        let half = self.sums[EDGES_LEN - 1] / 2.0;
        EDGES[self.sums.partition_point(|&sum| sum < half).min(EDGES_LEN - 1)]
    }

    /// Weight of all clients.
    pub(crate) fn total(&self) -> f64 {
        self.sums[EDGES_LEN - 1] + self.never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_a_time_is_that_of_the_first_edge_not_below_it() {
        let near = EDGES.iter().flat_map(|&edge| [edge - 1, edge, edge + 1]);
        for time in near.chain([0, 1, 1 << 40, Nanos::MAX]) {
            assert_eq!(position(time), EDGES.partition_point(|&edge| edge < time), "{time}");
        }
    }

    #[test]
    fn half_of_them_are_back_by_the_median() {
        let mut histogram = ReturnTimes::default();
        (1..=1000u64).for_each(|n| histogram.learn(n % 100 * 10_000));
        let share = histogram.by(500_000) / histogram.total();
        assert!((0.45..0.55).contains(&share), "{share}");
        assert_eq!(histogram.by(Nanos::MAX), histogram.total());
    }

    #[test]
    fn clients_that_never_come_make_it_not_worth_asking() {
        let mut histogram = ReturnTimes::default();
        assert!(!histogram.worth_asking());
        histogram.learn(1_000_000);
        assert!(histogram.worth_asking());
        histogram.give_up(100);
        assert!(!histogram.worth_asking());
    }

    #[test]
    fn it_forgets_and_never_overflows() {
        let mut histogram = ReturnTimes::default();
        (0..100_000).for_each(|_| histogram.learn(100_000));
        (0..5_000).for_each(|_| histogram.learn(10_000_000));
        assert!(histogram.by(1_000_000) / histogram.total() < 0.01);
        assert!(histogram.total().is_finite());
    }
}
