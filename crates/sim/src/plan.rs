//! How many workers, and which largest batch, carry a load within an objective?
//!
//! It plays the load with the adaptive policy on more and more workers until the share that has to
//! be in time is. Of the batches that are enough for these it takes the smallest that costs nothing. Latencies
//! were played; the fluid limit gives the starting point and the room that is left.

use jitney_batcher::Nanos;

use crate::arrivals::Arrivals;
use crate::curve::{ServiceCurve, WrittenCurve, ms};
use crate::demand::Demand;
use crate::fluid;
use crate::noise::Noise;
use crate::pipeline::Stages;
use crate::policy::SimulatedPolicy;
use crate::runner::run;
use crate::world::World;

/// The most of the smooth limit that a load should be: beyond it chance makes queues long. Chosen: in a queue of one
/// worker the mean wait doubles from 70 % to 82 % of what it can do, and triples at 88 %.
pub const LOAD_SHARE_MAX: f64 = 0.7;
/// A p99 that is not longer than this many times the best one costs nothing. Chosen: the worst of three runs differs
/// as much by chance.
const P99_FACTOR: f64 = 1.05;

/// The load, the objective and the limits.
#[derive(Clone, Debug)]
pub struct CapacityQuestion {
    /// How long batches take.
    pub curve: WrittenCurve,
    /// Sizes at which the model runs; empty: any.
    pub sizes: Vec<u32>,
    /// How batches are prepared while others run, if they are.
    pub stages: Option<Stages>,
    /// The largest batch that may be considered.
    pub max_batch: usize,
    /// Most workers that may be considered.
    pub max_workers: usize,
    /// Requests per second.
    pub rate: f64,
    /// When they come.
    pub arrivals: Arrivals,
    /// The objective in milliseconds.
    pub objective: f64,
    /// The share of requests that must keep it, such as 0.99.
    pub share: f64,
    /// What chance adds to the curve.
    pub noise: Noise,
    /// Requests per run.
    pub count: usize,
    /// Runs with different chance, all of which must succeed.
    pub seeds: u64,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub enum CapacityAnswer {
    /// This many are enough.
    Enough(CapacityPlan),
    /// Even a batch of one takes longer than the objective.
    TooSlow {
        /// What it takes in milliseconds.
        alone: f64,
    },
    /// Not even the most workers carry it.
    TooMuch {
        /// The workers that the fluid limit asks for at least.
        workers: usize,
        /// The best trial with the most workers, if one was played.
        best: Option<Trial>,
    },
}

/// A number of workers and a largest batch that are enough.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityPlan {
    /// The fewest workers, with the smallest batch with which they lose nothing.
    pub chosen: Trial,
    /// Everything that was tried, in order.
    pub trials: Vec<Trial>,
}

/// One combination, played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Workers.
    pub workers: usize,
    /// The largest batch.
    pub max_batch: usize,
    /// The worst share in time over all seeds.
    pub on_time: f64,
    /// Median and p99 of those answered, in milliseconds, the worst of all seeds.
    pub p50: f64,
    /// See above.
    pub p99: f64,
    /// Share of the workers' time that was used.
    pub busy: f64,
    /// Requests in an average batch.
    pub fill: f64,
    /// The rate at which it would just fail, by the fluid limit.
    pub limit: f64,
}

impl CapacityQuestion {
    /// Plays until an answer is found; `progress` is told before every trial.
    pub fn answer(&self, progress: &mut dyn FnMut(usize, usize)) -> CapacityAnswer {
        let objective = ms(self.objective);
        let curve = self.curve.curve(self.max_batch);
        let alone = self.alone(&curve, 1);
        if alone > objective {
            return CapacityAnswer::TooSlow { alone: alone as f64 / 1e6 };
        }
        let least = self.least_workers(&curve, objective);
        let mut trials = Vec::new();
        for workers in least..=self.max_workers {
            let widest = self.widest(&curve, objective);
            progress(workers, widest);
            let trial = self.play(&curve, workers, widest);
            trials.push(trial);
            if trial.on_time >= self.share {
                return CapacityAnswer::Enough(self.narrow(&curve, trials, progress));
            }
        }
        CapacityAnswer::TooMuch { workers: least, best: trials.pop() }
    }

    /// No fewer can carry it even if requests flowed like water and any could be dropped.
    fn least_workers(&self, curve: &ServiceCurve, objective: Nanos) -> usize {
        let one = fluid::lossy(curve, 1, objective).max(1e-9);
        ((self.rate * self.share / one).ceil() as usize).max(1)
    }

    /// Larger batches could never be answered in time.
    fn widest(&self, curve: &ServiceCurve, objective: Nanos) -> usize {
        (1..=curve.max()).rev().find(|&size| self.alone(curve, size) <= objective).unwrap_or(1)
    }

    /// What a batch takes on an idle worker.
    fn alone(&self, curve: &ServiceCurve, size: usize) -> Nanos {
        curve.time(size) + self.stages.as_ref().map_or(0, |stages| stages.prepare.time(size))
    }

    /// The workers are found; smaller batches are played as long as they are enough.
    fn narrow(
        &self,
        curve: &ServiceCurve,
        mut trials: Vec<Trial>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> CapacityPlan {
        let widest = trials[trials.len() - 1];
        let mut enough = vec![widest];
        let powers = (0..).map(|power| 1usize << power).take_while(|&size| size < widest.max_batch);
        for max_batch in powers.collect::<Vec<_>>().into_iter().rev() {
            let fits = curve.capped(max_batch).capacity(widest.workers) >= self.rate * self.share;
            if !fits {
                break;
            }
            progress(widest.workers, max_batch);
            let trial = self.play(curve, widest.workers, max_batch);
            trials.push(trial);
            if trial.on_time < self.share {
                break;
            }
            enough.push(trial);
        }
        let chosen = self.smallest_for_nothing(&enough).unwrap_or(widest);
        CapacityPlan { chosen, trials }
    }

    /// The smallest batch that costs neither latency nor the room for chance.
    fn smallest_for_nothing(&self, enough: &[Trial]) -> Option<Trial> {
        let best = enough.iter().map(|trial| trial.p99).fold(f64::INFINITY, f64::min);
        let costs_nothing = |trial: &&Trial| {
            trial.p99 <= best * P99_FACTOR && self.rate <= trial.limit * LOAD_SHARE_MAX
        };
        enough.iter().rev().find(costs_nothing).copied()
    }

    /// What the workers and the batch of a trial would do at another rate.
    #[must_use]
    pub fn at(&self, rate: f64, trial: Trial) -> Trial {
        let there = Self { rate, ..self.clone() };
        there.play(&self.curve.curve(self.max_batch), trial.workers, trial.max_batch)
    }

    fn play(&self, curve: &ServiceCurve, workers: usize, max_batch: usize) -> Trial {
        let demand = Demand::new(self.arrivals.clone(), self.objective);
        let limit = fluid::lossless(&curve.capped(max_batch), workers, ms(self.objective));
        let (on_time, p50, p99, busy, fill) = (1.0, 0.0, 0.0, 0.0, 0.0);
        let mut worst = Trial { workers, max_batch, on_time, p50, p99, busy, fill, limit };
        for seed in 1..=self.seeds.max(1) {
            let mut world =
                World::new(curve.capped(max_batch), workers).with_noise(self.noise.clone());
            world = world.at_sizes(self.sizes.clone());
            (world.seed, world.stages) = (seed, self.stages.clone());
            let load = demand.load(self.rate, self.count, seed);
            let outcome = run(&world, &load, &mut SimulatedPolicy::Adaptive.build(&world));
            let latencies = outcome.latencies(0);
            worst.on_time = worst.on_time.min(outcome.on_time_share());
            worst.p50 = worst.p50.max(latencies.quantile(0.5));
            worst.p99 = worst.p99.max(latencies.quantile(0.99));
            let time = outcome.until.max(1) as f64 * workers as f64;
            worst.busy = worst.busy.max(outcome.busy as f64 / time);
            worst.fill = worst.fill.max(outcome.fill());
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(curve: &str, rate: f64, objective: f64) -> CapacityQuestion {
        CapacityQuestion {
            curve: curve.parse().expect("a curve"),
            sizes: Vec::new(),
            stages: None,
            max_batch: 32,
            max_workers: 8,
            rate,
            arrivals: Arrivals::Poisson,
            objective,
            share: 0.99,
            noise: Noise::NONE,
            count: 2000,
            seeds: 1,
        }
    }

    #[test]
    fn a_small_load_needs_one_worker() {
        let answer = question("5+0.2b", 100.0, 100.0).answer(&mut |_, _| {});
        assert!(matches!(answer, CapacityAnswer::Enough(plan) if plan.chosen.workers == 1));
    }

    #[test]
    fn more_load_needs_more_workers_and_never_fewer() {
        let workers = |rate| match question("5+5b", rate, 50.0).answer(&mut |_, _| {}) {
            CapacityAnswer::Enough(plan) => plan.chosen.workers,
            other @ (CapacityAnswer::TooSlow { .. } | CapacityAnswer::TooMuch { .. }) => {
                panic!("{other:?}")
            }
        };
        assert!(workers(100.0) < workers(400.0));
    }

    #[test]
    fn a_larger_batch_is_taken_where_it_costs_nothing() {
        let answer = question("5+0.2b", 500.0, 100.0).answer(&mut |_, _| {});
        let CapacityAnswer::Enough(plan) = answer else { panic!("{answer:?}") };
        assert_eq!((plan.chosen.workers, plan.chosen.max_batch), (1, 8));
        let best = plan.trials.iter().map(|trial| trial.p99).fold(f64::INFINITY, f64::min);
        assert!(plan.chosen.p99 <= best * P99_FACTOR, "{plan:?}");
        assert!(500.0 <= plan.chosen.limit * LOAD_SHARE_MAX, "{plan:?}");
    }

    #[test]
    fn what_cannot_be_done_is_said_with_its_reason() {
        let answer = question("50+1b", 10.0, 40.0).answer(&mut |_, _| {});
        assert_eq!(answer, CapacityAnswer::TooSlow { alone: 51.0 });
        let answer = question("5+5b", 10_000.0, 50.0).answer(&mut |_, _| {});
        assert!(
            matches!(answer, CapacityAnswer::TooMuch { workers: 55, best: None }),
            "{answer:?}"
        );
    }
}
