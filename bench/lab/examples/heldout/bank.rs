//! A bank of settings that nobody chose: curve, largest batch, deadline, workers, arrivals and noise
//! of every cell are drawn from a seed, so that anybody can draw another bank.
//!
//! Each cell shows the highest rate with 99 % on time of ours over that of the best peer. The peers
//! are tuned by an oracle for each cell on the same arrivals, ours learns.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jitney_lab::contender::Contender;
use jitney_lab::grid::{PolicyFamily, families};
use jitney_lab::search;
use jitney_lab::tables::Scenario;
use jitney_sim::arrivals::Arrivals;
use jitney_sim::curve::{ServiceCurve, ms};
use jitney_sim::dice::Dice;
use jitney_sim::noise::Noise;

const PEERS: [&str; 4] = ["eager = Triton {}", "TorchServe*", "BentoML*", "Triton*"];

/// A setting with words for what was drawn.
struct ClosedLoop {
    name: String,
    setting: Scenario,
}

/// What one cell came to, in requests per second.
struct Found {
    ours: f64,
    best: f64,
    peer: String,
}

fn pick<T: Clone>(dice: &mut Dice, of: &[T]) -> T {
    of[dice.below(of.len())].clone()
}

/// Between two figures, every ratio as likely.
fn between(dice: &mut Dice, low: f64, high: f64) -> f64 {
    low * (high / low).powf(dice.unit())
}

fn curve(dice: &mut Dice) -> (String, ServiceCurve) {
    let max = pick(dice, &[4, 8, 16, 32, 64]);
    let one = between(dice, 2.0, 20.0);
    let kind = pick(dice, &["flat", "affine", "affine", "linear", "power of 2", "root", "bent"]);
    let curve = match kind {
        "flat" => ServiceCurve::affine(one, 0.005 * one, max),
        "linear" => ServiceCurve::affine(0.2 * one, 0.8 * one, max),
        "power of 2" => {
            ServiceCurve::from_fn(max, |size| one * (0.7 + 0.3 * size.next_power_of_two() as f64))
        }
        "root" => ServiceCurve::from_fn(max, |size| one * (0.4 + 0.6 * (size as f64).sqrt())),
        "bent" => ServiceCurve::from_fn(max, |size| one * (0.9 + 0.1 * (size as f64).powf(1.4))),
        _ => {
            let part = between(dice, 0.02, 0.5);
            ServiceCurve::affine(one * (1.0 - part), one * part, max)
        }
    };
    (format!("{kind} {one:.1} ms B{max}"), curve)
}

fn arrivals(dice: &mut Dice, deadline: f64) -> (&'static str, Arrivals) {
    let dwell = between(dice, 5.0, 100.0) * deadline / 1e3;
    pick(
        dice,
        &[
            ("Poisson", Arrivals::Poisson),
            ("MMPP", Arrivals::Bursts { ratio: 4.0, dwell }),
            ("on-off", Arrivals::OnOff { dwell }),
            ("H2", Arrivals::Hyper { cv2: 4.0 }),
            ("jittered", Arrivals::Jittered { share: 0.5 }),
            ("clusters", Arrivals::Clusters { mean: 8.0, spread: deadline / 2e3 }),
            ("wave", Arrivals::Wave { depth: 0.7, period: 5.0 * dwell }),
            ("groups", Arrivals::Groups { mean: 3.0 }),
        ],
    )
}

fn cell(dice: &mut Dice, seed: u64) -> ClosedLoop {
    let (shape, curve) = curve(dice);
    let times = pick(dice, &[1.5, 2.0, 3.0, 4.0, 6.0]);
    let deadline = times * curve.time(1) as f64 / 1e6;
    let workers = pick(dice, &[1, 2, 3, 6]);
    let (process, arrivals) = arrivals(dice, deadline);
    let noise = |jitter, outliers| Noise { jitter, outliers, outlier: 2.0, ..Noise::NONE };
    let noises = [("", Noise::NONE), (" 5 %", noise(0.05, 0.0)), (" 15 %", noise(0.15, 0.0))];
    let (scatter, noise) = match dice.below(4) {
        3 => (" outliers", noise(0.05, 0.004)),
        at => noises[at].clone(),
    };
    let mut setting = Scenario::new("", curve, workers, deadline);
    setting.demand.arrivals = arrivals;
    setting.world.noise = noise;
    setting.world.seed = seed;
    ClosedLoop { name: format!("{shape} D{times} k{workers} {process}{scatter}"), setting }
}

impl ClosedLoop {
    /// The highest rate of the best setting of a family, if above `least`.
    fn highest(&self, family: &PolicyFamily, count: usize, seed: u64, least: f64) -> f64 {
        let guess = self.setting.world.curve.capacity(self.setting.world.workers) / 2.0;
        let mut best = least;
        for member in &family.members {
            let good = |rate| self.setting.play(member, rate, count, seed).on_time_share() >= 0.99;
            if best == 0.0 || good(best * 1.003) {
                best = best.max(search::highest(guess, 0.003, good));
            }
        }
        best
    }

    fn measure(&self, count: usize, seed: u64, peers: bool) -> Found {
        let ours = PolicyFamily { name: "ours", members: vec![Contender::Adaptive] };
        let ours = self.highest(&ours, count, seed, 0.0);
        let mut found = Found { ours, best: 0.0, peer: String::new() };
        let all = families(ms(self.setting.deadline));
        for family in all.iter().filter(|it| peers && PEERS.contains(&it.name)) {
            let best = self.highest(family, count, seed, found.best);
            if best > found.best {
                (found.best, found.peer) = (best, family.name.to_owned());
            }
        }
        found
    }
}

/// Draws so many cells, measures them on a few threads and prints them in order.
pub fn print(cells: usize, draw: u64, count: usize, seed: u64, peers: bool) {
    let mut dice = Dice::new(draw);
    let cells: Vec<ClosedLoop> = (0..cells).map(|_| cell(&mut dice, seed)).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, cell)) = Some(next.fetch_add(1, Ordering::Relaxed))
            .and_then(|at| cells.get(at).map(|cell| (at, cell)))
        {
            let result = cell.measure(count, seed, peers);
            found.lock().expect("no thread has panicked").push((at, result));
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(work)));
    let mut found = found.into_inner().expect("no thread has panicked");
    found.sort_unstable_by_key(|(at, _)| *at);
    println!(
        "Highest rate with 99 % on time, in requests per second: ours, best peer, ours over it"
    );
    for (at, Found { ours, best, peer }) in &found {
        let name = &cells[*at].name;
        println!("{at:3}  {name:52}  {ours:9.1}  {best:9.1}  {:.3}  {peer}", ours / best);
    }
    if peers {
        summary(&found.iter().map(|(_, it)| (it.ours, it.best)).collect::<Vec<_>>());
    }
}

/// How the cells in which anybody keeps 99 % on time went altogether.
fn summary(found: &[(f64, f64)]) {
    let counted = found.iter().filter(|(ours, best)| ours.max(*best) > 0.0);
    let mut ratios: Vec<f64> = counted.map(|(ours, best)| ours / best.max(1e-9)).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let share = |at: usize| ratios.get(ratios.len() * at / 100).copied().unwrap_or(0.0);
    let count = |test: fn(&f64) -> bool| ratios.iter().filter(|ratio| test(ratio)).count();
    let (ahead, behind) = (count(|ratio| *ratio > 1.01), count(|ratio| *ratio < 0.99));
    println!(
        "{} cells: {ahead} more than 1 % ahead, {behind} more than 1 % behind; tenth {:.3}, median \
         {:.3}, ninth tenth {:.3}",
        ratios.len(),
        share(10),
        share(50),
        share(90)
    );
}
