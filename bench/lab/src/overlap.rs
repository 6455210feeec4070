//! Worlds in which it matters how many batches a worker holds, drawn by a seed.
//!
//! Workers prepare batches, run them and slow themselves down while they do both; the first batches may
//! take many times as long, and so may a few later ones. Clients come back, and come for the first time
//! slowly, at once or in waves. What counts is how many are answered once a policy has had time to learn.

use jitney_batcher::{Adaptive, Config, Nanos, Policy};
use jitney_sim::dice::Dice;
use jitney_sim::world::{ClientStart, Clients, Load, ThinkSpread, World};
use jitney_sim::{JitneyScheduler, Noise, ServiceCurve, SimulatedEnd, Stages, ms, run};

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

/// One world with its clients.
#[derive(Clone, Debug)]
pub struct OverlapWorld {
    world: World,
    load: Load,
    /// From when until when answers are counted.
    counted: (Nanos, Nanos),
}

impl OverlapWorld {
    /// The world of this seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let max = [8, 16, 32][dice.below(3)];
        let base = between(&mut dice, 1.0, 8.0);
        let item = base * between(&mut dice, 0.05, 4.0) / max as f64;
        let model = base + item * max as f64;
        let ratio = between(&mut dice, 0.05, 2.0);
        let fixed = dice.unit() * 0.5;
        let prepare = ServiceCurve::affine(
            model * ratio * fixed,
            model * ratio * (1.0 - fixed) / max as f64,
            max,
        );
        let contention = 1.0 + 0.9 * dice.unit() * dice.unit();
        let workers = [1, 1, 1, 1, 2, 3][dice.below(6)];
        let stages = Stages { prepare, slots: SLOTS, contention };
        let curve = ServiceCurve::affine(base, item, max);
        let mut world = World::new(curve, workers).with_stages(stages).with_noise(noise(&mut dice));
        world.seed = dice.bits();
        if dice.chance(0.5) {
            world = world.at_sizes(vec![1, 2, 4, 8, 16, 24, 32]);
        }
        let count = 1 + dice.below(4 * max * workers);
        let (start, came) = start(&mut dice);
        let whole = model * (1.0 + ratio);
        let from = came + LEARN.0.max(LEARN.1 * whole);
        let until = from + COUNTED * model.max(model * ratio);
        let clients = Clients {
            count,
            turn: ms(0.05),
            think: ms(between(&mut dice, 0.02, 2.0)),
            spread: [ThinkSpread::Fixed, ThinkSpread::Exponential][dice.below(2)],
            deadline: Nanos::MAX,
            until: ms(until),
            seed: dice.bits(),
        };
        let load = Load { start, ..Load::closed(clients) };
        Self { world, load, counted: (ms(from), ms(until)) }
    }

    /// What kind of world it is, in a line.
    #[must_use]
    pub fn description(&self) -> String {
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

    /// The same world with other chance, the same for every rule.
    fn again(&self, play: u64) -> Self {
        let Self { mut world, mut load, counted } = self.clone();
        world.seed ^= play.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(clients) = &mut load.clients {
            clients.seed ^= play.wrapping_mul(0xd1b5_4a32_d192_ed03);
        }
        Self { world, load, counted }
    }

    /// Answers per second by this rule, on average over several plays.
    #[must_use]
    pub fn rate(&self, rule: OverlapRule) -> f64 {
        (0..PLAYS).map(|play| self.again(play).once(rule)).sum::<f64>() / PLAYS as f64
    }

    fn once(&self, rule: OverlapRule) -> f64 {
        let adaptive = Policy::Adaptive(Adaptive::default());
        let (policy, slots) = match rule {
            OverlapRule::Found => (adaptive, SLOTS),
            OverlapRule::Fixed(slots) => (adaptive, slots),
            OverlapRule::Opportunistic => (Policy::Opportunistic, SLOTS),
        };
        let (max_items, sizes) = (self.world.curve.max() as u32, self.world.sizes.clone());
        let seek_slots = rule == OverlapRule::Found;
        let config = Config { policy, max_items, sizes, seek_slots, ..Config::default() };
        let mut scheduler = JitneyScheduler::with_slots(config, self.world.workers, slots);
        let outcome = run(&self.world, &self.load, &mut scheduler);
        let (from, until) = self.counted;
        let counts = |end: &&SimulatedEnd| matches!(end, SimulatedEnd::Answered { at, .. } if (from..until).contains(at));
        let answered = outcome.ends.iter().filter(counts).count();
        answered as f64 / (until - from) as f64 * 1e9
    }

    /// What the found number brings, as a share of the best of the others; and which that is.
    #[must_use]
    pub fn share(&self) -> (f64, OverlapRule) {
        let rates = OTHERS.map(|rule| (self.rate(rule), rule));
        let best = rates.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
        let (best, rule) = best.expect("there are others");
        (self.rate(OverlapRule::Found) / best.max(1e-9), rule)
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
