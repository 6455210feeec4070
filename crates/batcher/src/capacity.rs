//! How many workers should a model have?
//!
//! [`Capacity::look`] is told twice a second how many requests have come, and answers with a number of
//! workers. Like the batcher it is pure: time is an argument, and the same facts give the same answers.
//! The engine, the simulator and the tests drive the same function.
//!
//! What is needed follows from the rate at which requests come, what the learned curve says that one of
//! them costs, and how bursty they are: so many workers that three times the mean wait of such a queue
//! fits into the time that the objective leaves (Sakasegawa's formula). More are wanted at once. Fewer are
//! wanted only when fewer would have been enough for a while, and for longer where that was wrong before.

use crate::learned::CurvePoint;
use crate::request::Nanos;

/// Time between two looks. Chosen: half a second is short beside the start of a worker.
pub const LOOK_EVERY: Nanos = 500_000_000;
/// Looks that are remembered. Bound: a minute.
const LOOKS: usize = 120;
/// A rate is taken over at least so many looks. Chosen: ten seconds even out most of chance.
const RATE_LOOKS: usize = 20;
/// A surge is seen in one look, or in so many. Chosen: three seconds even out bursts.
const SURGE_LOOKS: usize = 6;
/// A count is more than chance when it is so many standard deviations above what the rate gives. Chosen:
/// such a look comes by chance once in hours.
const SURPRISE: f64 = 4.5;
/// How bursty arrivals may be found: variance over mean of the counts. Chosen: beyond it the objective
/// cannot be kept by any number of workers.
const BURSTY_MAX: f64 = 8.0;
/// How much the times of equal batches vary: variance over squared mean. Chosen: usual for models.
const SERVICE_VARIES: f64 = 0.2;
/// The mean wait fits so many times into the time that is left for it. Chosen: about one request in
/// twenty waits longer than that.
const WAIT_MARGIN: f64 = 3.0;
/// A worker more is wanted when this share of it is needed. Chosen: less is noise.
const MORE_AT: f64 = 0.05;
/// One less is wanted when so much would be left over: a share of a worker, and of all that is needed. Chosen: wider than
/// the noise of a rate, which grows with it.
const LESS_AT: f64 = 0.1;
const LESS_SHARE: f64 = 0.07;
/// Where more than this is left over, a sixth of the time is enough to tell. Chosen: a whole worker.
const FAR_LESS_AT: f64 = 1.0;
/// Fewer are wanted when they would have been enough for so many times a load, within bounds. Chosen: a
/// worker that is started again costs a load, and the requests of that time.
const HOLD_LOADS: u64 = 12;
const HOLD_MIN: Nanos = 30_000_000_000;
const HOLD_MAX: Nanos = 600_000_000_000;
/// How much longer it is held after it was wrong to go down, at most. Bound: three doublings.
const HOLD_GROWTH_MAX: u32 = 3;
/// Bound: needs are remembered as the maxima of so many parts of the usual time.
const HOLD_PARTS: u64 = 16;

/// What is known at a look.
#[derive(Clone, Copy, Debug)]
pub struct CapacityFacts<'a> {
    /// Requests that have come so far, whatever became of them.
    pub arrived: u64,
    /// Requests that wait now.
    pub waiting: u32,
    /// The learned curve of the group with the most batches.
    pub curve: &'a [CurvePoint],
    /// What a request adds to the size of a batch on average, in the unit of the curve.
    pub unit: f64,
    /// Batches that a worker runs at the same time without slowing down.
    pub beside: f64,
    /// Latency that is asked for; without one it is twice the time of a batch of one.
    pub objective: Option<Nanos>,
    /// How long a worker takes until it serves.
    pub load: Nanos,
    /// Whether the last load failed.
    pub failing: bool,
    /// The fewest and the most workers.
    pub bounds: (u32, u32),
    /// With a minimum of 0: without a request for so long the last worker goes.
    pub idle: Nanos,
}

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
        self.needs.push(hold.part(now), need);
        let (min, max) = facts.bounds;
        let stays = self.wanted > 0 && self.quiet(now) < facts.idle;
        let least = if asked || stays { min.max(1) } else { min };
        if least == 0 {
            // Nobody has asked for so long that the last one goes too.
            self.wanted = 0;
        }
        let enough = |workers: f64| (workers.ceil() as u32).clamp(least, max.max(least));
        let most = |hold_of: Nanos| self.needs.most(hold.part(now.saturating_sub(hold_of)));
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

/// For how long fewer workers would have to be enough.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// For one that is left over with more to spare.
    short: Nanos,
    long: Nanos,
    /// The length of a part of the remembered needs.
    part: Nanos,
}

impl Hold {
    /// With this time of a load, after it was wrong so often to go down.
    fn of(load: Nanos, wrong: u32) -> Self {
        let usual = load.saturating_mul(HOLD_LOADS).clamp(HOLD_MIN, HOLD_MAX);
        Self { short: usual / 6, long: usual << wrong, part: usual / HOLD_PARTS }
    }

    /// The number of the part of a time.
    fn part(self, at: Nanos) -> u64 {
        at / self.part
    }
}

/// The requests of the last looks.
#[derive(Clone, Debug)]
struct RecentCounts {
    /// A ring.
    looks: [u64; LOOKS],
    seen: usize,
    /// Variance over mean.
    bursty: f64,
}

impl Default for RecentCounts {
    fn default() -> Self {
        Self { looks: [0; LOOKS], seen: 0, bursty: 1.0 }
    }
}

impl RecentCounts {
    fn push(&mut self, count: u64) {
        self.looks[self.seen % LOOKS] = count;
        self.seen += 1;
        self.bursty += (self.burstiness() - self.bursty) / LOOKS as f64;
    }

    /// The counts, the last one first.
    fn recent(&self) -> impl Iterator<Item = u64> {
        let known = self.seen.min(LOOKS);
        (1..=known).map(|ago| self.looks[(self.seen - ago) % LOOKS])
    }

    /// Requests per look of so many looks, beginning so many ago.
    fn mean(&self, from: usize, looks: usize) -> Option<f64> {
        (self.seen.min(LOOKS) >= from + looks)
            .then(|| self.recent().skip(from).take(looks).sum::<u64>() as f64 / looks as f64)
    }

    /// Requests per second to plan for, when a worker takes so long to start.
    fn rate(&self, load: Nanos) -> f64 {
        let chance = |rate: f64, looks: usize| {
            SURPRISE * (rate * self.bursty / looks as f64).sqrt() + 1.0 / looks as f64
        };
        // Over as long a time as has the same rate by all that can be told.
        let like = |mean: f64, looks: usize| {
            self.mean(0, looks).is_none_or(|last| (mean - last).abs() <= chance(mean, looks))
        };
        let same = |looks: &usize| {
            self.mean(0, *looks).filter(|it| like(*it, RATE_LOOKS) && like(*it, SURGE_LOOKS))
        };
        let known = self.seen.min(LOOKS);
        let steady = [LOOKS, LOOKS / 2, LOOKS / 3, RATE_LOOKS].iter().find_map(same);
        let steady = steady.or_else(|| self.mean(0, known.min(SURGE_LOOKS))).unwrap_or_default();
        let surge = |looks: usize| {
            self.mean(0, looks).filter(|mean| *mean > steady + chance(steady, looks))
        };
        let now = [1, SURGE_LOOKS].into_iter().filter_map(surge).fold(steady, f64::max);
        // What it will have grown to when a worker that is started now serves.
        let growth = self.mean(0, RATE_LOOKS).zip(self.mean(RATE_LOOKS, RATE_LOOKS));
        let growth = growth.map_or(0.0, |(last, before)| last - before);
        let grows = growth > chance(steady, RATE_LOOKS);
        let later = if grows {
            growth * load as f64 / (LOOK_EVERY as f64 * RATE_LOOKS as f64)
        } else {
            0.0
        };
        (now + later.min(now / 4.0)) * (1e9 / LOOK_EVERY as f64)
    }

    /// Variance over mean of the counts, from the differences between neighbours: a level that changes
    /// slowly is not a burst, and one step counts once.
    fn burstiness(&self) -> f64 {
        let known = self.seen.min(LOOKS);
        let mean = self.recent().sum::<u64>() as f64 / known.max(1) as f64;
        if known < RATE_LOOKS || mean < 1.0 {
            return 1.0;
        }
        // Up and down again of one burst do not count.
        let (mut sum, mut largest) = (0.0, [0.0; 2]);
        for (one, next) in self.recent().zip(self.recent().skip(1)) {
            let square = (one.abs_diff(next) as f64).powi(2);
            sum += square;
            let [most, second] = largest;
            largest = if square > most { [square, most] } else { [most, f64::max(second, square)] };
        }
        let variance = (sum - largest[0] - largest[1]) / (2.0 * (known - 3) as f64);
        (variance / mean).clamp(1.0, BURSTY_MAX)
    }
}

/// What a request costs a worker at the best size of a batch that the objective allows.
#[derive(Clone, Copy, Debug)]
struct RequestCost {
    /// Requests in such a batch, and its time in nanoseconds.
    requests: f64,
    batch: f64,
    target: f64,
}

impl RequestCost {
    fn of(facts: &CapacityFacts<'_>) -> Option<Self> {
        let unit = facts.unit.max(1e-9);
        let cost =
            |point: &CurvePoint| (((point.size as f64) / unit).max(1.0), point.mean.max(1) as f64);
        let (_, one) = cost(facts.curve.first()?);
        let target = facts.objective.map_or(2.0 * one, |time| time as f64);
        let fits = |(_, batch): &(f64, f64)| 2.0 * batch <= target;
        let of_points = facts.curve.iter().map(cost);
        let best = of_points.filter(fits).min_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (requests, batch) = best.unwrap_or((1.0, one));
        Some(Self { requests, batch, target })
    }

    /// The workers that keep the objective at this rate.
    fn need(self, rate: f64, burstiness: f64, facts: &CapacityFacts<'_>) -> f64 {
        let each = self.batch / self.requests / facts.beside.max(1.0) / 1e9;
        // Those that wait are to be done in the time of a load, beside the others.
        let backlog = f64::from(facts.waiting) - self.requests * facts.beside.max(1.0) * 2.0;
        let extra = backlog.max(0.0) * each / (facts.load as f64 / 1e9).max(1.0);
        let work = rate * each;
        if work <= 0.0 {
            return extra;
        }
        let slack = (self.target - self.batch).max(self.batch / 4.0);
        let waits = |workers: f64| {
            let use_of = work / workers;
            let queued = use_of.powf((2.0 * (workers + 1.0)).sqrt() - 1.0);
            // A batch gathers the requests of a while, which evens them out.
            let bursts = (burstiness / self.requests + SERVICE_VARIES) / 2.0;
            WAIT_MARGIN * bursts * self.batch * queued / (workers * (1.0 - use_of)) > slack
        };
        let most = f64::from(facts.bounds.1.max(1));
        let mut workers = work * 1.01;
        while workers < most && waits(workers) {
            workers += 0.05;
        }
        workers + extra
    }
}

/// The most that was needed lately, as maxima of short parts of the time.
#[derive(Clone, Debug)]
struct HeldNeeds {
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

    fn push(&mut self, part: u64, need: f64) {
        let place = &mut self.parts[(part % Self::PARTS as u64) as usize];
        if place.0 != part {
            *place = (part, 0.0);
        }
        place.1 = place.1.max(need);
    }

    /// The most since this part.
    fn most(&self, since: u64) -> f64 {
        let lately = self.parts.iter().filter(|(part, _)| *part >= since);
        lately.fold(0.0, |most, (_, need)| f64::max(most, *need))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
