//! Workers that come and go by a rule, in the simulator: ours, and Ray Serve's.
//!
//! The batcher is the same under every rule, so that only the number of workers differs. A worker costs
//! from the moment it is asked for until it has ended its last batch.

use jitney_batcher::{Adaptive, Capacity, CapacityFacts, Config, LOOK_EVERY, Nanos, Policy};
use jitney_sim::dice::Dice;
use jitney_sim::{JitneyScheduler, Job, Load, Orders, Scheduler, ServiceCurve, Took, World, run};

/// What a rule is told at every look.
#[derive(Clone, Copy, Debug)]
pub struct CapacityView {
    /// Requests that have come.
    pub arrived: u64,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests that are with a worker.
    pub running: u32,
}

/// A rule for the number of workers.
pub trait CapacityRule {
    /// How many there should be.
    fn look(&mut self, now: Nanos, view: CapacityView, batcher: &JitneyScheduler) -> u32;
}

/// The bounds and the load time of a model.
#[derive(Clone, Copy, Debug)]
pub struct ScaledModel {
    /// The fewest and the most workers.
    pub bounds: (u32, u32),
    /// How long a worker takes to load.
    pub load: Nanos,
    /// The objective.
    pub objective: Nanos,
    /// Processors that the workers share; none: each has its own.
    pub processors: Option<usize>,
}

/// Always so many.
pub struct FixedWorkers(pub u32);

impl CapacityRule for FixedWorkers {
    fn look(&mut self, _: Nanos, _: CapacityView, _: &JitneyScheduler) -> u32 {
        self.0
    }
}

/// The rule of the server.
pub struct OurRule {
    capacity: Capacity,
    model: ScaledModel,
}

impl OurRule {
    /// Beginning with the fewest workers.
    #[must_use]
    pub fn new(model: ScaledModel) -> Self {
        Self { capacity: Capacity::new(0, model.bounds.0), model }
    }
}

impl CapacityRule for OurRule {
    fn look(&mut self, now: Nanos, view: CapacityView, batcher: &JitneyScheduler) -> u32 {
        let findings = batcher.batcher().findings();
        let curve: Vec<_> = findings.curve().collect();
        let before = findings.curve_before();
        let before = before.map(|(workers, curve)| (workers, curve.collect::<Vec<_>>()));
        let ScaledModel { bounds, load, objective, .. } = self.model;
        let facts = CapacityFacts {
            arrived: view.arrived,
            waiting: view.waiting,
            curve: &curve,
            serving: findings.worker_count(),
            before: before.as_ref().map(|(workers, curve)| (*workers, &curve[..])),
            unit: 1.0,
            beside: 1.0,
            objective: Some(objective),
            load,
            failing: false,
            bounds,
            idle: Nanos::MAX,
        };
        self.capacity.look(now, &facts).workers
    }
}

/// Ray Serve's autoscaling: requests under way, averaged over a while, over a target for each replica; up and
/// down only when that was so for a delay.
#[derive(Clone, Copy, Debug)]
pub struct RaySettings {
    /// `target_ongoing_requests`.
    pub target: f64,
    /// `look_back_period_s`.
    pub look_back: u32,
    /// `upscale_delay_s`.
    pub up: u32,
    /// `downscale_delay_s`.
    pub down: u32,
    /// `upscaling_factor` and `downscaling_factor`.
    pub factors: (f64, f64),
}

impl Default for RaySettings {
    /// Ray 2.60's.
    fn default() -> Self {
        Self { target: 2.0, look_back: 30, up: 30, down: 600, factors: (1.0, 1.0) }
    }
}

/// That rule.
pub struct RayRule {
    settings: RaySettings,
    bounds: (u32, u32),
    ongoing: Vec<u32>,
    workers: u32,
    /// Looks in a row that wanted more, and fewer.
    more: u32,
    fewer: u32,
}

impl RayRule {
    /// Beginning with the fewest workers.
    #[must_use]
    pub fn new(settings: RaySettings, bounds: (u32, u32)) -> Self {
        Self { settings, bounds, ongoing: Vec::new(), workers: bounds.0, more: 0, fewer: 0 }
    }
}

impl CapacityRule for RayRule {
    fn look(&mut self, _: Nanos, view: CapacityView, _: &JitneyScheduler) -> u32 {
        self.ongoing.push(view.waiting + view.running);
        let looks = |seconds: u32| (u64::from(seconds) * 1_000_000_000 / LOOK_EVERY) as u32;
        let back = looks(self.settings.look_back) as usize;
        let last = &self.ongoing[self.ongoing.len().saturating_sub(back)..];
        let mean = last.iter().map(|&it| f64::from(it)).sum::<f64>() / last.len() as f64;
        let (running, (up, down)) = (f64::from(self.workers.max(1)), self.settings.factors);
        let ratio = mean / (running * self.settings.target);
        let factor = if ratio >= 1.0 { up } else { down };
        let mut wanted = (running * (1.0 + (ratio - 1.0) * factor)).ceil();
        if (running * ratio).ceil() < running && wanted >= running {
            // Fewer would do, and the factor keeps them: one goes.
            wanted = running - 1.0;
        }
        let wanted = (wanted as u32).clamp(self.bounds.0, self.bounds.1);
        self.more = if wanted > self.workers { self.more + 1 } else { 0 };
        self.fewer = if wanted < self.workers { self.fewer + 1 } else { 0 };
        if self.more > looks(self.settings.up) || self.fewer > looks(self.settings.down) {
            (self.workers, self.more, self.fewer) = (wanted, 0, 0);
        }
        self.workers
    }
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Away,
    /// Until this time.
    Loading(Nanos),
    Here,
}

/// The batcher with workers that a rule starts and ends.
pub struct ScaledScheduler<'a> {
    inner: JitneyScheduler,
    rule: &'a mut dyn CapacityRule,
    load: Nanos,
    workers: Vec<Place>,
    arrived: u64,
    next_look: Nanos,
    inner_timer: Option<Nanos>,
    /// Time that workers were there or loading.
    pub worker_time: Nanos,
    /// When the number that was wanted changed.
    pub changes: Vec<(Nanos, u32)>,
    wanted: u32,
    last: Nanos,
}

impl<'a> ScaledScheduler<'a> {
    /// So many workers are there at the start.
    pub fn new(
        world: &World,
        model: ScaledModel,
        first: u32,
        rule: &'a mut dyn CapacityRule,
    ) -> Self {
        let objective = Some(model.objective);
        let policy = Policy::Adaptive(Adaptive { objective, ..Adaptive::default() });
        let config = Config { policy, max_items: world.curve.max() as u32, ..Config::default() };
        let mut inner = JitneyScheduler::new(config, world.workers);
        let mut none = Orders::default();
        for worker in first as usize..world.workers {
            inner.retire_worker(0, worker, &mut none);
        }
        let place = |worker| if worker < first as usize { Place::Here } else { Place::Away };
        Self {
            inner,
            rule,
            load: model.load,
            workers: (0..world.workers).map(place).collect(),
            arrived: 0,
            next_look: LOOK_EVERY,
            inner_timer: None,
            worker_time: 0,
            changes: Vec::new(),
            wanted: first,
            last: 0,
        }
    }

    /// Does what is due besides the batcher's own work, and sets the timer for the next of it.
    fn settle(&mut self, now: Nanos, out: &mut Orders) {
        let here = self.workers.iter().filter(|it| **it != Place::Away).count() as Nanos;
        self.worker_time += here * (now - self.last);
        self.last = now;
        for worker in 0..self.workers.len() {
            if matches!(self.workers[worker], Place::Loading(until) if until <= now) {
                self.workers[worker] = Place::Here;
                self.with_inner(out, |inner, out| inner.start_worker(now, worker, out));
            }
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.look(now, out);
        }
        let loads = self.workers.iter().filter_map(|it| match it {
            Place::Loading(until) => Some(*until),
            Place::Away | Place::Here => None,
        });
        out.wake(loads.chain([self.next_look]).chain(self.inner_timer).min());
    }

    fn look(&mut self, now: Nanos, out: &mut Orders) {
        let (waiting, running) = self.inner.under_way();
        let view = CapacityView { arrived: self.arrived, waiting, running };
        let wanted = self.rule.look(now, view, &self.inner);
        if wanted != self.wanted {
            self.wanted = wanted;
            self.changes.push((now, wanted));
        }
        for worker in 0..self.workers.len() {
            match (self.workers[worker], worker < wanted as usize) {
                (Place::Away, true) => self.workers[worker] = Place::Loading(now + self.load),
                (Place::Loading(_), false) => self.workers[worker] = Place::Away,
                (Place::Here, false) => {
                    self.workers[worker] = Place::Away;
                    self.with_inner(out, |inner, out| inner.retire_worker(now, worker, out));
                }
                _ => {}
            }
        }
    }

    /// Lets the batcher do something; its timer is kept apart.
    fn with_inner(
        &mut self,
        out: &mut Orders,
        act: impl FnOnce(&mut JitneyScheduler, &mut Orders),
    ) {
        out.wake(self.inner_timer);
        act(&mut self.inner, out);
        self.inner_timer = out.timer();
    }
}

impl Scheduler for ScaledScheduler<'_> {
    fn arrive(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders) {
        self.arrived += 1;
        self.with_inner(out, |inner, out| inner.arrive(now, id, job, out));
        self.settle(now, out);
    }

    fn done(&mut self, now: Nanos, worker: usize, took: Took, out: &mut Orders) {
        self.with_inner(out, |inner, out| inner.done(now, worker, took, out));
        self.settle(now, out);
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        if self.inner_timer.is_some_and(|at| at <= now) {
            self.inner_timer = None;
            self.with_inner(out, |inner, out| inner.timer(now, out));
        }
        self.settle(now, out);
    }

    fn lost(&mut self, now: Nanos, worker: usize, members: &[u32], out: &mut Orders) {
        self.with_inner(out, |inner, out| inner.lost(now, worker, members, out));
        self.settle(now, out);
    }

    fn back(&mut self, now: Nanos, worker: usize, out: &mut Orders) {
        self.with_inner(out, |inner, out| inner.back(now, worker, out));
        self.settle(now, out);
    }
}

/// What a rule came to.
#[derive(Clone, Debug)]
pub struct CapacityResult {
    /// Requests that were answered in time, as a share of all.
    pub on_time: f64,
    /// Seconds of workers.
    pub worker_seconds: f64,
    /// When the number that was wanted changed, and to what.
    pub changes: Vec<(Nanos, u32)>,
}

/// Plays a load under a rule that begins with so many workers.
pub fn play(
    curve: &ServiceCurve,
    model: ScaledModel,
    load: &Load,
    first: u32,
    rule: &mut dyn CapacityRule,
) -> CapacityResult {
    let world = World::new(curve.clone(), model.bounds.1 as usize);
    let world = World { processors: model.processors, ..world };
    let mut scheduler = ScaledScheduler::new(&world, model, first, rule);
    let outcome = run(&world, load, &mut scheduler);
    CapacityResult {
        on_time: outcome.on_time() as f64 / outcome.jobs.len().max(1) as f64,
        worker_seconds: scheduler.worker_time as f64 / 1e9,
        changes: scheduler.changes,
    }
}

/// Arrivals whose rate is a function of the time in seconds, with gaps of this squared coefficient of
/// variation.
#[must_use]
pub fn varying(
    rate: impl Fn(f64) -> f64,
    seconds: f64,
    cv2: f64,
    deadline: Nanos,
    seed: u64,
) -> Load {
    let mut dice = Dice::new(seed);
    let share = 0.5 * (1.0 + ((cv2 - 1.0).max(0.0) / (cv2 + 1.0)).sqrt());
    let (mut now, mut jobs) = (0.0, Vec::new());
    loop {
        let branch = if dice.chance(share) { share } else { 1.0 - share };
        now += dice.exponential() / (2.0 * branch * rate(now).max(1e-3));
        if now >= seconds {
            return Load::open(jobs);
        }
        let at = (now * 1e9) as Nanos;
        let client = jobs.len() as u64;
        jobs.push(Job { at, deadline: at + deadline, tenant: 0, client });
    }
}
