//! How many workers should a model have?
//!
//! [`Capacity::look`] is told twice a second how many requests have come, and answers with a number of
//! workers. Like the batcher it is pure: time is an argument, and the same facts give the same answers.
//! The engine, the simulator and the tests drive the same function.
//!
//! What is needed follows from the rate at which requests come, what the learned curve says that one of
//! them costs, and how bursty they are: so many workers that three times the mean wait of such a queue
//! fits into the time that the objective leaves (Sakasegawa's formula). More are wanted at once. Fewer are
//! wanted only when fewer would have been enough for a while, and for longer where that was wrong before. None is wanted
//! that brought nothing when it was tried.

mod facts;
mod held_needs;
mod recent_counts;
mod request_cost;
mod useful_workers;

pub use self::facts::{CapacityFacts, LOOK_EVERY};
use self::held_needs::{HOLD_GROWTH_MAX, HeldNeeds, Hold};
use self::recent_counts::RecentCounts;
use self::request_cost::RequestCost;
use self::useful_workers::UsefulWorkers;
use crate::request::Nanos;

/// A worker more is wanted when this share of it is needed. Chosen: less is noise.
const MORE_AT: f64 = 0.05;
/// One less is wanted when so much would be left over: a share of a worker, and of all that is needed. Chosen: wider than
/// the noise of a rate, which grows with it.
const LESS_AT: f64 = 0.1;
const LESS_SHARE: f64 = 0.07;
/// Where more than this is left over, the time of a load is enough to tell. Chosen: a whole worker.
const FAR_LESS_AT: f64 = 1.0;

/// How many workers are wanted, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WantedWorkers {
    /// So many.
    pub workers: u32,
    /// Requests per second that are planned for.
    pub rate: f64,
    /// The workers that they need.
    pub need: f64,
    /// The latency that this is for, in nanoseconds; 0 while nothing was learned.
    pub target: Nanos,
    /// More than so many were found to bring nothing, and are needed.
    pub useful: Option<u32>,
}

/// What is remembered from look to look.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Requests by look, the last one first.
    counts: RecentCounts,
    arrived: Option<u64>,
    last_arrival: Nanos,
    wanted: u32,
    /// Since when the needs are known that decide whether fewer are enough.
    since: Nanos,
    /// The needs of the time that is held, as a few maxima.
    needs: HeldNeeds,
    /// When fewer were wanted last, and how often it was wrong.
    went_down: Option<Nanos>,
    wrong: u32,
    useful: UsefulWorkers,
}

impl Capacity {
    /// A model with so many workers at this time.
    #[must_use]
    pub fn new(now: Nanos, workers: u32) -> Self {
        Self {
            counts: RecentCounts::default(),
            arrived: None,
            last_arrival: now,
            wanted: workers,
            since: now,
            needs: HeldNeeds::default(),
            went_down: None,
            wrong: 0,
            useful: UsefulWorkers::default(),
        }
    }

    /// For how long nobody has asked.
    #[must_use]
    pub fn quiet(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.last_arrival)
    }

    /// Somebody else has changed the number of workers: it is held like one of its own.
    pub fn set(&mut self, now: Nanos, workers: u32) {
        (self.since, self.wanted) = (now, workers);
    }

    /// How many workers are wanted; asked every [`LOOK_EVERY`].
    pub fn look(&mut self, now: Nanos, facts: &CapacityFacts<'_>) -> WantedWorkers {
        let came = facts.arrived.saturating_sub(self.arrived.unwrap_or(facts.arrived));
        self.arrived = Some(facts.arrived);
        self.counts.push(came);
        let asked = came > 0 || facts.waiting > 0;
        if asked {
            self.last_arrival = now;
        }
        let rate = self.counts.rate(facts.load);
        let cost = RequestCost::of(facts);
        let need = cost.map_or(0.0, |cost| cost.need(rate, self.counts.bursty, facts));
        let hold = Hold::of(facts.load, self.wrong);
        self.needs.push(now, hold, need);
        let (min, max) = facts.bounds;
        let useful = self.useful.look(now, facts).filter(|most| *most < max);
        let max = useful.map_or(max, |most| most.max(min));
        let stays = self.wanted > 0 && self.quiet(now) < facts.idle;
        let least = if asked || stays { min.max(1) } else { min };
        if least == 0 {
            // Nobody has asked for so long that the last one goes too.
            self.wanted = 0;
        }
        let enough = |workers: f64| (workers.ceil() as u32).clamp(least, max.max(least));
        let most = |hold_of: Nanos| self.needs.most(now.saturating_sub(hold_of));
        let more = enough(need - MORE_AT);
        let near = enough(most(hold.long) * (1.0 + LESS_SHARE) + LESS_AT);
        let less = near.min(enough(most(hold.short) + FAR_LESS_AT));
        if more > self.wanted {
            if !facts.failing {
                if more == self.wanted + 1 {
                    self.went_up(now, hold.long);
                }
                self.wanted = more;
            }
        } else if less < self.wanted && now.saturating_sub(self.since) >= hold.short {
            self.went_down = Some(now);
            self.wanted = less;
        }
        self.wanted = self.wanted.clamp(least.min(max), max);
        WantedWorkers {
            workers: self.wanted,
            rate,
            need,
            target: cost.map_or(0, |it| it.target as Nanos),
            useful: useful.filter(|_| (need - MORE_AT).ceil() as u32 > max),
        }
    }

    /// More are wanted: soon after fewer were, that was wrong.
    fn went_up(&mut self, now: Nanos, hold: Nanos) {
        let Some(down) = self.went_down.take() else { return };
        self.wrong = match now - down < 8 * hold {
            true => (self.wrong + 1).min(HOLD_GROWTH_MAX),
            false => self.wrong.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::CurvePoint;

    const ONE: [CurvePoint; 1] =
        [CurvePoint { group: 0, size: 1, mean: 100_000_000, planned: 120_000_000, samples: 9 }];

    /// A model with batches of one of 100 ms and an objective of 400 ms, and what has come to it.
    struct Asked {
        capacity: Capacity,
        now: Nanos,
        facts: CapacityFacts<'static>,
    }

    impl Asked {
        fn new(bounds: (u32, u32)) -> Self {
            let facts = CapacityFacts {
                arrived: 0,
                waiting: 0,
                curve: &ONE,
                serving: 1,
                before: None,
                unit: 1.0,
                beside: 1.0,
                objective: Some(400_000_000),
                load: 2_000_000_000,
                failing: false,
                bounds,
                idle: 60_000_000_000,
            };
            Self { capacity: Capacity::new(0, bounds.0), now: 0, facts }
        }

        /// So many come per second; the last answer.
        fn for_seconds(&mut self, seconds: u64, per_second: u64) -> WantedWorkers {
            let looks = seconds * 1_000_000_000 / LOOK_EVERY;
            let mut last = WantedWorkers::default();
            for look in 1..=looks {
                let share = |looks: u64| {
                    looks * seconds * per_second / (seconds * 1_000_000_000 / LOOK_EVERY)
                };
                self.facts.arrived += share(look) - share(look - 1);
                self.now += LOOK_EVERY;
                last = self.capacity.look(self.now, &self.facts);
            }
            last
        }
    }

    #[test]
    fn what_is_needed_grows_with_the_rate_and_with_what_a_request_costs() {
        let need = |rate, objective| {
            let mut asked = Asked::new((1, 64));
            asked.facts.objective = Some(objective);
            asked.for_seconds(60, rate).need
        };
        let needs = [5, 10, 20, 40, 80].map(|rate| need(rate, 400_000_000));
        assert!(
            needs.is_sorted() && needs[0] > 0.5 && needs[4] > 8.0 && needs[4] < 10.0,
            "{needs:?}"
        );
        assert!(need(40, 250_000_000) > need(40, 1_000_000_000), "less time to wait in");
        let mut asked = Asked::new((1, 64));
        asked.facts.beside = 10.0;
        assert!(asked.for_seconds(60, 80).need < 2.0, "ten at a time");
    }

    #[test]
    fn more_are_wanted_within_two_looks_and_fewer_after_a_while() {
        let mut asked = Asked::new((1, 8));
        assert_eq!(asked.for_seconds(60, 4).workers, 1);
        assert!(asked.for_seconds(1, 50).workers >= 5);
        asked.for_seconds(10, 50);
        assert!(asked.for_seconds(3, 4).workers >= 5, "not at once");
        assert_eq!(asked.for_seconds(120, 4).workers, 1);
    }

    #[test]
    fn nothing_is_wanted_beyond_the_bounds_or_while_loads_fail() {
        let mut asked = Asked::new((2, 3));
        assert_eq!(asked.for_seconds(60, 0).workers, 2);
        assert_eq!(asked.for_seconds(60, 500).workers, 3);
        let mut asked = Asked::new((1, 8));
        asked.facts.failing = true;
        assert_eq!(asked.for_seconds(60, 50).workers, 1);
        asked.facts.failing = false;
        assert!(asked.for_seconds(1, 50).workers > 4);
    }

    #[test]
    fn none_are_wanted_until_one_asks_and_when_nobody_has_asked_for_long() {
        let mut asked = Asked::new((0, 4));
        assert_eq!(asked.for_seconds(60, 0).workers, 0);
        asked.facts.waiting = 1;
        assert_eq!(asked.for_seconds(1, 0).workers, 1);
        asked.facts.waiting = 0;
        assert_eq!(asked.for_seconds(50, 0).workers, 1);
        assert_eq!(asked.for_seconds(20, 0).workers, 0);
    }

    #[test]
    fn those_that_wait_are_worked_off() {
        let mut asked = Asked::new((1, 8));
        asked.for_seconds(30, 4);
        asked.facts.waiting = 100;
        assert!(asked.for_seconds(1, 4).workers >= 5);
    }
}
