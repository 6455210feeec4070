//! Worlds in which it matters how many batches a worker holds, drawn by a seed.
//!
//! Workers prepare batches, run them and slow themselves down while they do both; the first batches may
//! take many times as long, and so may a few later ones. Clients come back, and come for the first time
//! slowly, at once or in waves. What counts is how many are answered once a policy has had time to learn.

use jitney_batcher::{Adaptive, Config, Nanos, Policy};
use jitney_sim::dice::Dice;
use jitney_sim::world::{ClientStart, Clients, Load, ThinkSpread, World};
use jitney_sim::{GpuSharing, JitneyScheduler, Noise, ServiceCurve, SimulatedEnd, Stages, ms};
use jitney_sim::{SimulatedModel, run, run_on_one_gpu};

/// Most batches that a worker holds in these worlds.
pub const SLOTS: usize = 3;
/// Time to learn: so many milliseconds or batches of a worker, whichever is longer.
const LEARN: (f64, f64) = (2_000.0, 60.0);
/// Batches over which answers are counted after that.
const COUNTED: f64 = 500.0;
/// So many times each world is played, with other chance: what is compared are the means. One batch in a
/// hundred may take eight times as long, so that a single play of the best number against another of itself
/// is below 0.97 in 8 of 100 worlds, and the best of several single plays is one that was lucky.
const PLAYS: u64 = 4;
/// A rule that brings less than this share of the best one in the first play is not played again: that it is
/// the best on average is out of the question.
const RULED_OUT: f64 = 0.8;

/// What decides in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapRule {
    /// The adaptive policy, which finds how many batches a worker holds.
    Found,
    /// The adaptive policy with so many at most.
    Fixed(usize),
    /// Whatever is there goes to every free slot.
    Opportunistic,
}

/// What the found number is compared with.
pub const OTHERS: [OverlapRule; 4] = [
    OverlapRule::Fixed(1),
    OverlapRule::Fixed(2),
    OverlapRule::Fixed(3),
    OverlapRule::Opportunistic,
];

/// What the models of a world run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapKind {
    /// One model; each worker has a device of its own.
    Own,
    /// One model whose two or three workers share a GPU.
    Workers,
    /// Two models that share a GPU, each with its own workers, clients and policy.
    Models,
}

impl OverlapKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Own, Self::Workers, Self::Models];

    /// The kind of a seed: of every four worlds two are of the first one.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        [Self::Workers, Self::Own, Self::Models, Self::Own][(seed % 4) as usize]
    }
}

/// A model of a world, with its clients.
#[derive(Clone, Debug)]
struct OverlapModel {
    world: World,
    load: Load,
    /// After how many milliseconds all clients are there.
    came: f64,
}

/// One world with its clients.
#[derive(Clone, Debug)]
pub struct OverlapWorld {
    models: Vec<OverlapModel>,
    /// How all workers share one GPU; none: each has its own.
    sharing: Option<GpuSharing>,
    /// From when until when answers are counted.
    counted: (Nanos, Nanos),
}

impl OverlapWorld {
    /// The world of this kind and seed.
    #[must_use]
    pub fn draw(kind: OverlapKind, seed: u64) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut models = vec![OverlapModel::draw(&mut dice, kind)];
        if kind == OverlapKind::Models {
            models.push(OverlapModel::draw(&mut dice, kind));
        }
        let sharing = (kind != OverlapKind::Own)
            .then(|| [GpuSharing::Turns, GpuSharing::Parts][dice.below(2)]);
        let whole =
            |it: &OverlapModel| it.came + LEARN.0.max(LEARN.1 * cycle(&models, it, sharing));
        let from = models.iter().map(whole).fold(0.0, f64::max);
        let slowest = models.iter().flat_map(OverlapModel::stages).fold(0.0, f64::max);
        let until = from + COUNTED * slowest;
        for clients in models.iter_mut().filter_map(|it| it.load.clients.as_mut()) {
            clients.until = ms(until);
        }
        Self { models, sharing, counted: (ms(from), ms(until)) }
    }

    /// What kind of world it is, in a line.
    #[must_use]
    pub fn description(&self) -> String {
        let models: Vec<_> = self.models.iter().map(OverlapModel::description).collect();
        let sharing = self.sharing.map(|it| format!("one GPU in {it:?}: ")).unwrap_or_default();
        format!("{sharing}{}", models.join("; and "))
    }

    /// The same world with other chance, the same for every rule.
    fn again(&self, play: u64) -> Self {
        let mut other = self.clone();
        for model in &mut other.models {
            model.world.seed ^= play.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if let Some(clients) = &mut model.load.clients {
                clients.seed ^= play.wrapping_mul(0xd1b5_4a32_d192_ed03);
            }
        }
        other
    }

    /// Answers per second by this rule, on average over several plays.
    #[must_use]
    pub fn rate(&self, rule: OverlapRule) -> f64 {
        self.on_average(rule, self.once(rule))
    }

    /// The same where the first play has brought this.
    fn on_average(&self, rule: OverlapRule, first: f64) -> f64 {
        let plays = self.plays();
        let others = (1..plays).map(|play| self.again(play).once(rule));
        (first + others.sum::<f64>()) / plays as f64
    }

    /// How often it is played: once where nothing is left to chance.
    fn plays(&self) -> u64 {
        let certain = |it: &OverlapModel| {
            let Noise { jitter, outliers, .. } = it.world.noise;
            let fixed = it.load.clients.is_none_or(|it| it.spread == ThinkSpread::Fixed);
            fixed && jitter == 0.0 && outliers == 0.0
        };
        if self.models.iter().all(certain) { 1 } else { PLAYS }
    }

    /// The same in one play; those of all models together.
    fn once(&self, rule: OverlapRule) -> f64 {
        let mut schedulers: Vec<_> = self.models.iter().map(|it| it.scheduler(rule)).collect();
        let outcomes = match self.sharing {
            None => {
                let pairs = self.models.iter().zip(&mut schedulers);
                pairs.map(|(it, scheduler)| run(&it.world, &it.load, scheduler)).collect()
            }
            Some(sharing) => {
                let pairs = self.models.iter().zip(&mut schedulers);
                let mut models: Vec<_> = pairs
                    .map(|(OverlapModel { world, load, .. }, scheduler)| SimulatedModel {
                        world,
                        load,
                        scheduler,
                    })
                    .collect();
                run_on_one_gpu(sharing, &mut models)
            }
        };
        let (from, until) = self.counted;
        let counts = |end: &&SimulatedEnd| matches!(end, SimulatedEnd::Answered { at, .. } if (from..until).contains(at));
        let answered: usize = outcomes.iter().map(|it| it.ends.iter().filter(counts).count()).sum();
        answered as f64 / (until - from) as f64 * 1e9
    }

    /// What the found number brings, as a share of the best of the others; and which that is.
    #[must_use]
    pub fn share(&self) -> (f64, OverlapRule) {
        let first = OTHERS.map(|rule| (self.once(rule), rule));
        let most = first.iter().map(|it| it.0).fold(0.0, f64::max);
        let plausible = first.into_iter().filter(|it| it.0 >= RULED_OUT * most);
        let rates = plausible.map(|(first, rule)| (self.on_average(rule, first), rule));
        let best = rates.max_by(|one, other| one.0.total_cmp(&other.0));
        let (best, rule) = best.expect("there are others");
        (self.rate(OverlapRule::Found) / best.max(1e-9), rule)
    }
}

/// How long a worker takes for a full batch in this model, and until the GPU is its own again.
fn cycle(models: &[OverlapModel], model: &OverlapModel, sharing: Option<GpuSharing>) -> f64 {
    let workers = models.iter().map(|it| it.world.workers as f64);
    let [prepare, run] = model.stages();
    prepare
        + match sharing {
            None => run,
            Some(GpuSharing::Parts) => run * workers.sum::<f64>(),
            Some(GpuSharing::Turns) => {
                models.iter().zip(workers).map(|(it, workers)| it.stages()[1] * workers).sum()
            }
        }
}

impl OverlapModel {
    fn draw(dice: &mut Dice, kind: OverlapKind) -> Self {
        let max = [8, 16, 32][dice.below(3)];
        let base = between(dice, 1.0, 8.0);
        let item = base * between(dice, 0.05, 4.0) / max as f64;
        let model = base + item * max as f64;
        let ratio = between(dice, 0.05, 2.0);
        let fixed = dice.unit() * 0.5;
        let prepare = ServiceCurve::affine(
            model * ratio * fixed,
            model * ratio * (1.0 - fixed) / max as f64,
            max,
        );
        let contention = 1.0 + 0.9 * dice.unit() * dice.unit();
        let workers = match kind {
            OverlapKind::Own => [1, 1, 1, 1, 2, 3][dice.below(6)],
            OverlapKind::Workers => 2 + dice.below(2),
            OverlapKind::Models => 1 + dice.below(2),
        };
        let stages = Stages { prepare, slots: SLOTS, contention };
        let curve = ServiceCurve::affine(base, item, max);
        let mut world = World::new(curve, workers).with_stages(stages).with_noise(noise(dice));
        world.seed = dice.bits();
        if dice.chance(0.5) {
            world = world.at_sizes(vec![1, 2, 4, 8, 16, 24, 32]);
        }
        let count = 1 + dice.below(4 * max * workers);
        let (start, came) = start(dice);
        let clients = Clients {
            count,
            turn: ms(0.05),
            think: ms(between(dice, 0.02, 2.0)),
            spread: [ThinkSpread::Fixed, ThinkSpread::Exponential][dice.below(2)],
            deadline: Nanos::MAX,
            until: Nanos::MAX,
            seed: dice.bits(),
        };
        let load = Load { start, ..Load::closed(clients) };
        Self { world, load, came }
    }

    /// How many milliseconds a full batch is prepared and runs.
    fn stages(&self) -> [f64; 2] {
        let World { stages, curve, .. } = &self.world;
        let prepare = stages.as_ref().map_or(0, |it| it.prepare.time(curve.max()));
        [prepare, curve.time(curve.max())].map(|it| it as f64 / 1e6)
    }

    fn scheduler(&self, rule: OverlapRule) -> JitneyScheduler {
        let adaptive = Policy::Adaptive(Adaptive::default());
        let (policy, slots) = match rule {
            OverlapRule::Found => (adaptive, SLOTS),
            OverlapRule::Fixed(slots) => (adaptive, slots),
            OverlapRule::Opportunistic => (Policy::Opportunistic, SLOTS),
        };
        let (max_items, sizes) = (self.world.curve.max() as u32, self.world.sizes.clone());
        let seek_slots = rule == OverlapRule::Found;
        let config = Config { policy, max_items, sizes, seek_slots, ..Config::default() };
        JitneyScheduler::with_slots(config, self.world.workers, slots)
    }

    fn description(&self) -> String {
        let World { workers, stages, curve, noise, sizes, .. } = &self.world;
        let max = curve.max();
        let times = stages.as_ref().map(|it| {
            let prepare = |size| it.prepare.time(size) as f64 / 1e6;
            (prepare(1), prepare(max), it.contention)
        });
        let (one, all, contention) = times.unwrap_or_default();
        let model = |size| curve.time(size) as f64 / 1e6;
        let clients = self.load.clients.map_or(0, |it| it.count);
        let think = self.load.clients.map_or(0.0, |it| it.think as f64 / 1e6);
        format!(
            "{workers} workers, {clients} clients think {think:.2}, up to {max} (sizes {}), prepare {one:.1}..{all:.1}, model {:.1}..{:.1} ms, x{contention:.2}, outliers {}, cold {:?}, {:?}",
            !sizes.is_empty(),
            model(1),
            model(max),
            noise.outliers,
            noise.cold.map(|it| it.1),
            self.load.start,
        )
    }
}

/// A number between these, evenly by its logarithm.
fn between(dice: &mut Dice, low: f64, high: f64) -> f64 {
    low * (high / low).powf(dice.unit())
}

fn noise(dice: &mut Dice) -> Noise {
    let cold = dice.chance(0.5).then(|| (ms(200.0), between(dice, 2.0, 12.0)));
    let kinds = [
        Noise::NONE,
        Noise::NOISY,
        Noise { jitter: 0.1, outliers: 0.01, outlier: 8.0, ..Noise::NONE },
    ];
    Noise { cold, ..kinds[dice.below(3)].clone() }
}

/// How clients come, and after how many milliseconds all are there.
fn start(dice: &mut Dice) -> (ClientStart, f64) {
    let time = between(dice, 100.0, 2_000.0);
    match dice.below(3) {
        0 => (ClientStart::AtOnce, 0.0),
        1 => (ClientStart::Over(ms(time)), time),
        _ => (ClientStart::Waves(4, ms(time / 4.0)), time),
    }
}
