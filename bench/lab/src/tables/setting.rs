//! The scenarios of the tables.

use crate::bounds;
use crate::contender::Contender;
use crate::search;
use jitney_sim::arrivals::Arrivals;
use jitney_sim::curve::{ServiceCurve, ms};
use jitney_sim::demand::Demand;
use jitney_sim::fluid;
use jitney_sim::noise::Noise;
use jitney_sim::outcome::Outcome;
use jitney_sim::runner::run;
use jitney_sim::world::World;

/// A convolutional network on a mid-range GPU: five milliseconds and one per item.
#[must_use]
pub fn r50() -> ServiceCurve {
    ServiceCurve::affine(5.072, 1.053, 64)
}

/// A text model on a GPU: nearly all of the time is fixed.
#[must_use]
pub fn bert() -> ServiceCurve {
    ServiceCurve::affine(5.0, 0.1, 64)
}

/// A model on a CPU: batching hardly helps.
#[must_use]
pub fn cpu() -> ServiceCurve {
    ServiceCurve::affine(1.0, 4.0, 32)
}

/// A compiled model: padded to multiples of eight, flat up to sixteen.
#[must_use]
pub fn step8() -> ServiceCurve {
    ServiceCurve::stepped(3.26, 0.11, 8, 16, 64)
}

/// A world, the requests that come to it, and their deadline.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// As in the table's header.
    pub name: &'static str,
    /// The workers.
    pub world: World,
    /// The arrivals.
    pub demand: Demand,
    /// The deadline in milliseconds.
    pub deadline: f64,
    /// How much faster than the mean a burst is.
    pub burst: f64,
}

impl Scenario {
    /// Poisson arrivals.
    #[must_use]
    pub fn new(name: &'static str, curve: ServiceCurve, workers: usize, deadline: f64) -> Self {
        let world = World::new(curve, workers);
        Self { name, world, demand: Demand::poisson(deadline), deadline, burst: 1.0 }
    }

    /// With chance in the service times.
    #[must_use]
    pub fn noisy(mut self) -> Self {
        self.world.noise = Noise::NOISY;
        self
    }

    /// With bursts of four times the rate for half a second in the mean. For several workers the
    /// limit is that of the burst, which is 1.6 times the mean rate.
    #[must_use]
    pub fn bursty(mut self) -> Self {
        self.demand.arrivals = Arrivals::Bursts { ratio: 4.0, dwell: 0.5 };
        self.burst = if self.world.workers > 1 { 1.6 } else { 1.0 };
        self
    }

    /// Most requests per second a fluid allows without loss.
    #[must_use]
    pub fn fluid(&self) -> f64 {
        fluid::lossless(&self.world.curve, self.world.workers, ms(self.deadline)) / self.burst
    }

    /// The rate at which even the clairvoyant has 99 % on time; of more than two workers the fluid
    /// limit.
    #[must_use]
    pub fn bound(&self, count: usize, seed: u64) -> f64 {
        let World { curve, workers, .. } = &self.world;
        let feasible = |rate: f64| {
            let jobs = self.demand.jobs(rate, count, seed);
            match workers {
                1 => bounds::clairvoyant(curve, &jobs, count / 100),
                _ => bounds::clairvoyant_pair(curve, &jobs, count / 100, ms(0.5)),
            }
        };
        match workers {
            1 | 2 => search::highest(self.fluid(), 0.002, |rate| feasible(rate).is_some()),
            _ => self.fluid(),
        }
    }

    /// Plays `count` requests at `rate` per second.
    #[must_use]
    pub fn play(&self, contender: &Contender, rate: f64, count: usize, seed: u64) -> Outcome {
        let load = self.demand.load(rate, count, seed);
        run(&self.world, &load, contender.build(&self.world).as_mut())
    }

    /// The best rate at which 99 % are on time over several settings of a policy, and which one.
    #[must_use]
    pub fn g99<'a>(
        &self,
        members: &'a [Contender],
        count: usize,
        seed: u64,
    ) -> (f64, Option<&'a Contender>) {
        let mut best = (0.0, None);
        for member in members {
            let good = |rate| self.play(member, rate, count, seed).on_time_share() >= 0.99;
            // Most settings are worse than the best so far and need one run to show it.
            if best.0 == 0.0 || good(best.0 * 1.003) {
                let rate = search::highest(self.fluid() * 0.9, 0.003, good);
                if rate > best.0 {
                    best = (rate, Some(member));
                }
            }
        }
        best
    }
}
