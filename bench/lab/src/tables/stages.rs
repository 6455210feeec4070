//! Workers that prepare one batch while they run another: a ResNet-152 in CUDA graphs that decodes its
//! images on the device, by the number of clients and by how much the stages slow each other down.
//!
//! Beside ours the two fixed rules: one batch at a time, and every slot filled as if it were a worker.

use std::collections::VecDeque;

use crate::contender::Contender;
use jitney_batcher::{Adaptive, Config, Nanos, Policy};
use jitney_sim::curve::{ServiceCurve, WrittenCurve, ms};
use jitney_sim::job::Job;
use jitney_sim::noise::Noise;
use jitney_sim::outcome::Outcome;
use jitney_sim::runner::run;
use jitney_sim::text_table::TextTable;
use jitney_sim::world::{Clients, Load, ThinkSpread, World};
use jitney_sim::{JitneyScheduler, Orders, Scheduler, Stages, Took};

use super::Effort;

/// Sizes at which the model runs.
pub const SIZES: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256];

/// Milliseconds of a captured batch of the model.
const MODEL: [(usize, f64); 11] = [
    (1, 2.65),
    (2, 2.68),
    (4, 2.72),
    (8, 3.1),
    (16, 3.77),
    (32, 5.38),
    (64, 9.11),
    (96, 12.9),
    (128, 16.8),
    (192, 24.3),
    (256, 31.7),
];

/// The rules that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The adaptive policy, which decides how many batches a worker holds.
    Ours,
    /// The adaptive policy with one batch at a time.
    Single,
    /// The adaptive policy with two slots that are workers of their own to it.
    Apart,
    /// Both slots take what is there.
    Eager,
}

/// All of them.
pub const RULES: [Rule; 4] = [Rule::Ours, Rule::Single, Rule::Apart, Rule::Eager];

/// A number of clients, or a rate of requests, and how much the stages slow each other down.
#[derive(Clone, Copy, Debug)]
pub struct StagedCell {
    /// Clients that wait for their answers.
    pub clients: usize,
    /// The largest batch.
    pub max: usize,
    /// How many times as long both stages run while they overlap.
    pub contention: f64,
    /// What chance adds.
    pub noisy: bool,
    /// Whether the model runs only at [`SIZES`].
    pub sized: bool,
}

impl StagedCell {
    /// The world with so many slots.
    #[must_use]
    pub fn world(&self, slots: usize) -> World {
        let curve = WrittenCurve::points(MODEL.to_vec()).expect("points").curve(self.max);
        let prepare = ServiceCurve::affine(0.35, 0.05, self.max);
        let stages = Stages { prepare, slots, contention: self.contention };
        let noise = if self.noisy { Noise::NOISY } else { Noise::NONE };
        let sizes = SIZES.iter().copied().filter(|&it| it as usize <= self.max);
        let sizes = if self.sized { sizes.collect() } else { Vec::new() };
        World::new(curve, 1).with_stages(stages).at_sizes(sizes).with_noise(noise)
    }

    /// The clients for so many milliseconds.
    #[must_use]
    pub fn closed(&self, time: f64, seed: u64) -> Load {
        Load::closed(Clients {
            count: self.clients,
            turn: ms(0.15),
            think: ms(0.15),
            spread: ThinkSpread::Exponential,
            deadline: Nanos::MAX,
            until: ms(time),
            seed,
        })
    }

    /// Plays a load by a rule.
    #[must_use]
    pub fn play(&self, rule: Rule, load: &Load) -> Outcome {
        let world = self.world(if rule == Rule::Ours { 3 } else { 2 });
        let adaptive = Policy::Adaptive(Adaptive::default());
        let policy = if rule == Rule::Eager { Policy::Opportunistic } else { adaptive };
        let (max_items, sizes) = (self.max as u32, world.sizes.clone());
        let config = Config { policy, max_items, sizes, ..Config::default() };
        match rule {
            Rule::Ours => run(&world, load, Contender::Adaptive.build(&world).as_mut()),
            Rule::Single => run(&world, load, &mut JitneyScheduler::new(config, 1)),
            Rule::Apart | Rule::Eager => run(&world, load, &mut SlotsApart::new(config)),
        }
    }

    /// Answers per second in the second half of the time, when the ways to fill slots were tried.
    #[must_use]
    pub fn answers(&self, rule: Rule, time: f64, seed: u64) -> f64 {
        let outcome = self.play(rule, &self.closed(time, seed));
        let late = outcome.jobs.iter().filter(|job| job.at >= ms(time / 2.0)).count();
        late as f64 / (time / 2.0) * 1e3
    }
}

/// A scheduler to which the two slots of the one worker are two workers.
struct SlotsApart {
    inner: JitneyScheduler,
    /// The slots in the order in which the worker got their batches.
    order: VecDeque<usize>,
    orders: Orders,
}

impl SlotsApart {
    fn new(config: Config) -> Self {
        let inner = JitneyScheduler::new(config, 2);
        Self { inner, order: VecDeque::new(), orders: Orders::default() }
    }

    fn pass_on(&mut self, out: &mut Orders) {
        let order = &mut self.order;
        self.orders.pass_on(out, |slot| {
            order.push_back(slot);
            0
        });
    }
}

impl Scheduler for SlotsApart {
    fn arrive(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders) {
        self.inner.arrive(now, id, job, &mut self.orders);
        self.pass_on(out);
    }

    fn done(&mut self, now: Nanos, _: usize, took: Took, out: &mut Orders) {
        let slot = self.order.pop_front().expect("a batch was handed over");
        let took = Took { exec: took.whole(), prepare: None };
        self.inner.done(now, slot, took, &mut self.orders);
        self.pass_on(out);
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        self.orders.wake(None);
        self.inner.timer(now, &mut self.orders);
        self.pass_on(out);
    }

    fn lost(&mut self, _: Nanos, _: usize, _: &[u32], _: &mut Orders) {}

    fn back(&mut self, _: Nanos, _: usize, _: &mut Orders) {}
}

/// The numbers of clients with the largest batch.
pub const CLIENTS: [(usize, usize); 6] =
    [(1, 128), (16, 128), (64, 128), (128, 128), (384, 128), (768, 256)];

/// The table.
#[must_use]
pub fn table(effort: &mut Effort<'_>) -> TextTable {
    let header = CLIENTS.map(|(clients, max)| format!("{clients} (up to {max})"));
    let title = "Workers that prepare while they run: answers per second, mean ms, mean batch";
    let mut table = TextTable::new(title, header);
    for (contention, noisy, sized) in
        [(1.0, false, true), (1.15, true, true), (1.4, true, true), (1.4, true, false)]
    {
        for rule in RULES {
            let name =
                format!("{rule:?} x{contention} {}", if sized { "sizes" } else { "any size" });
            (effort.progress)(&name);
            let row = CLIENTS.map(|(clients, max)| {
                let cell = StagedCell { clients, max, contention, noisy, sized };
                let outcome = cell.play(rule, &cell.closed(effort.count as f64 / 5.0, effort.seed));
                let answers = super::closed::steady(&outcome);
                format!("{answers:.0}, {:.1}, {:.0}", outcome.latencies(0).mean(), outcome.fill())
            });
            table.row(name, row);
        }
    }
    table
}
