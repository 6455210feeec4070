//! Workers that follow the load, beside a fixed number and Ray Serve's rule.
//!
//! `cargo run --release -p jitney-lab --example capacity -- [hours of the day that are played] [files of recorded traces]`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_batcher::Nanos;
use jitney_lab::capacity::{
    CapacityResult, CapacityRule, FixedWorkers, OurRule, RayRule, RaySettings, ScaledModel, play,
    varying,
};
use jitney_sim::trace::Trace;
use jitney_sim::{Load, ServiceCurve, ms};

const MINUTE: Nanos = 60_000_000_000;

fn main() {
    let hours = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(24.0);
    let curve = ServiceCurve::affine(200.0, 20.0, 8);
    let model =
        ScaledModel { bounds: (1, 8), load: ms(5_000.0), objective: ms(1_500.0), processors: None };
    let full = curve.capacity(8);
    println!("curve 200+20b ms, largest batch 8, objective 1.5 s, 8 workers: {full:.0} requests/s");
    steady(&curve, model);
    shared(&curve, ScaledModel { processors: Some(2), ..model });
    for file in std::env::args().skip(2) {
        match std::fs::read_to_string(&file).map(|text| Trace::parse(&text)) {
            Ok(Ok(trace)) => {
                let load = |_| as_recorded(&trace, 0.3 * full, model);
                compare(&file, (&curve, model), &GRID, 1, load);
                let finer = format!("{file}, searched finer");
                compare(&finer, (&curve, model), &FINER_GRID, 1, load);
            }
            other => println!("{file}: {other:?}"),
        }
    }
    let bursts = |t: f64| if t % 300.0 < 30.0 { full * 0.7 } else { full * 0.07 };
    let bursts = |seed| varying(bursts, hours * 900.0, 4.0, model.objective, 2 + seed);
    compare("bursts", (&curve, model), &GRID_OF_BURSTS, 5, bursts);
    compare("bursts, searched finer", (&curve, model), &FINER_GRID, 5, bursts);
    let day = |t: f64| {
        let hour = (t / (hours * 3600.0) * std::f64::consts::TAU).sin();
        full * (0.32 - 0.28 * hour)
    };
    let day = |_| varying(day, hours * 3600.0, 4.0, model.objective, 1);
    compare("day", (&curve, model), &GRID, 1, day);
}

/// The same rate for ten minutes: how often the number changes.
fn steady(curve: &ServiceCurve, model: ScaledModel) {
    for run in 0..40_u32 {
        let tenth = 1 + run % 10;
        let rate = curve.capacity(8) * f64::from(tenth) / 10.0;
        let load = varying(|_| rate, 600.0, 1.0, model.objective, 10 + u64::from(run));
        let ran = play(curve, model, &load, 1, &mut OurRule::new(model));
        let late = ran.changes.iter().filter(|(at, _)| *at > MINUTE).count();
        println!(
            "steady {tenth}/10: on time {:.4}, changes after a minute {late}: {:?}",
            ran.on_time,
            ran.changes.iter().map(|(at, to)| (at / 1_000_000_000, *to)).collect::<Vec<_>>()
        );
    }
}

/// More workers than processors, for 25 minutes: how many are kept.
fn shared(curve: &ServiceCurve, model: ScaledModel) {
    for tenth in [3_u32, 8, 10, 15] {
        let rate = curve.capacity(2) * f64::from(tenth) / 10.0;
        let load = varying(|_| rate, 1500.0, 1.0, model.objective, 200 + u64::from(tenth));
        let ran = play(curve, model, &load, 1, &mut OurRule::new(model));
        let late = ran.changes.iter().filter(|(at, _)| *at > MINUTE).count();
        let (on_time, mean) = (ran.on_time, ran.worker_seconds / 1500.0);
        println!(
            "two processors, {tenth}/10 of what they do: on time {on_time:.4}, workers {mean:.2} in the mean, changes after a minute {late}"
        );
    }
}

/// Requests whose rate rises and falls as in a trace, every five seconds, with this mean.
fn as_recorded(trace: &Trace, mean: f64, model: ScaledModel) -> Load {
    const SPAN: f64 = 5.0;
    let seconds = trace.times.last().copied().unwrap_or_default();
    let mut counts = vec![0.0; (seconds / SPAN) as usize + 1];
    trace.times.iter().for_each(|at| counts[(at / SPAN) as usize] += 1.0);
    let scale = mean * seconds / SPAN / trace.times.len().max(1) as f64;
    let rate = |t: f64| (counts[(t / SPAN) as usize] * scale).max(mean / 20.0);
    varying(rate, seconds, 4.0, model.objective, 3)
}

/// What a rule came to over 8 fixed workers, in the mean of several loads.
#[derive(Clone, Copy, Debug)]
struct Share {
    on_time: f64,
    worker_seconds: f64,
}

/// Plays a rule on all loads.
fn share(
    (curve, model): (&ServiceCurve, ScaledModel),
    loads: &[(Load, CapacityResult)],
    rule: impl Fn() -> Box<dyn CapacityRule>,
) -> Share {
    let mut sum = Share { on_time: 0.0, worker_seconds: 0.0 };
    for (load, fixed) in loads {
        let ran = play(curve, model, load, 1, &mut *rule());
        sum.on_time += ran.on_time / fixed.on_time / loads.len() as f64;
        sum.worker_seconds += ran.worker_seconds / fixed.worker_seconds / loads.len() as f64;
    }
    sum
}

/// Ray's settings that are searched: each of these with each of the others.
struct Grid {
    target: &'static [f64],
    look_back: &'static [u32],
    up: &'static [u32],
    down: &'static [u32],
    factors: &'static [(f64, f64)],
}

const GRID: Grid = Grid {
    target: &[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0],
    look_back: &[2, 10, 30],
    up: &[0, 3, 10],
    down: &[20, 60, 180, 600],
    factors: &[(1.0, 1.0)],
};

/// Who goes down after 180 s or more keeps the workers of one burst until the next, and a mean over 30 s comes with
/// the end of it: so the factors are searched in place of these.
const GRID_OF_BURSTS: Grid = Grid {
    look_back: &[2, 10],
    down: &[20, 60],
    factors: &[(1.0, 1.0), (0.6, 1.0), (1.5, 1.0), (1.0, 0.3)],
    ..GRID
};

/// Around what is best of these for bursts at our worker-seconds.
const FINER_GRID: Grid = Grid {
    target: &[7.0, 7.5, 8.0, 10.0],
    look_back: &[1, 2, 4],
    up: &[0, 1],
    down: &[10, 15, 20, 30],
    ..GRID
};

impl Grid {
    fn settings(&self) -> Vec<RaySettings> {
        let mut all = Vec::new();
        for &target in self.target {
            for &look_back in self.look_back {
                for &up in self.up {
                    for &down in self.down {
                        let with = |&factors| RaySettings { target, look_back, up, down, factors };
                        all.extend(self.factors.iter().map(with));
                    }
                }
            }
        }
        all
    }
}

fn compare(
    name: &str,
    (curve, model): (&ServiceCurve, ScaledModel),
    grid: &Grid,
    seeds: u64,
    load: impl Fn(u64) -> Load,
) {
    let with_fixed = |seed| {
        let load = load(seed);
        let fixed = play(curve, model, &load, 8, &mut FixedWorkers(8));
        (load, fixed)
    };
    let loads: Vec<_> = (0..seeds).map(with_fixed).collect();
    let show = |who: &str, it: Share| {
        let Share { on_time, worker_seconds } = it;
        println!(
            "{name}: {who}: on time {on_time:.4}, worker-seconds {worker_seconds:.4} of fixed"
        );
    };
    let (world, loads) = ((curve, model), &loads[..]);
    let ours = share(world, loads, || Box::new(OurRule::new(model)));
    show("ours", ours);
    let ray = |settings| share(world, loads, || Box::new(RayRule::new(settings, model.bounds)));
    show("Ray, defaults", ray(RaySettings::default()));
    let settings = grid.settings();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let played = |part: &[RaySettings]| part.iter().map(|it| (*it, ray(*it))).collect();
        let parts = settings.chunks(settings.len().div_ceil(threads));
        let running: Vec<_> =
            parts.map(|part| scope.spawn(move || -> Vec<_> { played(part) })).collect();
        running.into_iter().flat_map(|it| it.join().unwrap_or_default()).collect()
    });
    found.sort_by(|a, b| a.1.worker_seconds.total_cmp(&b.1.worker_seconds));
    let mut best: Vec<Share> = Vec::new();
    for (settings, ran) in found {
        if best.last().is_none_or(|last| ran.on_time > last.on_time) {
            best.push(ran);
            show(&format!("Ray, {settings:?}"), ran);
        }
    }
    if let Some(on_time) = between(&best, ours.worker_seconds) {
        show("Ray's best at our worker-seconds", Share { on_time, ..ours });
    }
}

/// The share in time at so many worker-seconds, on a line between the two nearest.
fn between(best: &[Share], worker_seconds: f64) -> Option<f64> {
    let above = best.iter().position(|it| it.worker_seconds >= worker_seconds);
    let (Some(above), Some(last)) = (above, best.last()) else {
        return best.last().map(|it| it.on_time);
    };
    let (high, low) = (best.get(above).unwrap_or(last), best.get(above.checked_sub(1)?)?);
    let part = (worker_seconds - low.worker_seconds) / (high.worker_seconds - low.worker_seconds);
    Some(low.on_time + part * (high.on_time - low.on_time))
}
