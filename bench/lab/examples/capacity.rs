//! Workers that follow the load, beside a fixed number and Ray Serve's rule.
//!
//! `cargo run --release -p jitney-lab --example capacity -- [hours of the day that are played] [files of recorded traces]`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_lab::capacity::{
    CapacityResult, CapacityRule, FixedWorkers, OurRule, RayRule, RaySettings, ScaledModel, play,
    varying,
};
use jitney_sim::trace::Trace;
use jitney_sim::{Load, ServiceCurve, ms};

fn main() {
    let hours = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(24.0);
    let curve = ServiceCurve::affine(200.0, 20.0, 8);
    let model =
        ScaledModel { bounds: (1, 8), load: ms(5_000.0), objective: ms(1_500.0), processors: None };
    let full = curve.capacity(8);
    println!("curve 200+20b ms, largest batch 8, objective 1.5 s, 8 workers: {full:.0} requests/s");
    let day = |t: f64| {
        let hour = (t / (hours * 3600.0) * std::f64::consts::TAU).sin();
        full * (0.32 - 0.28 * hour)
    };
    let day = |_| varying(day, hours * 3600.0, 4.0, model.objective, 1);
    compare("day", &curve, model, 1, day);
    let bursts = |t: f64| if t % 300.0 < 30.0 { full * 0.7 } else { full * 0.07 };
    let bursts = |seed| varying(bursts, hours * 900.0, 4.0, model.objective, 2 + seed);
    compare("bursts", &curve, model, 5, bursts);
    for file in std::env::args().skip(2) {
        match std::fs::read_to_string(&file).map(|text| Trace::parse(&text)) {
            Ok(Ok(trace)) => {
                let load = |_| as_recorded(&trace, 0.3 * full, model);
                compare(&file, &curve, model, 1, load);
            }
            other => println!("{file}: {other:?}"),
        }
    }
    for run in 0..40_u32 {
        let tenth = 1 + run % 10;
        let rate = full * f64::from(tenth) / 10.0;
        let load = varying(|_| rate, 600.0, 1.0, model.objective, 10 + u64::from(run));
        let ran = play(&curve, model, &load, 1, &mut OurRule::new(model));
        let late = ran.changes.iter().filter(|(at, _)| *at > 60_000_000_000).count();
        println!(
            "steady {tenth}/10: on time {:.4}, changes after a minute {late}: {:?}",
            ran.on_time,
            ran.changes.iter().map(|(at, to)| (at / 1_000_000_000, *to)).collect::<Vec<_>>()
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

/// Ray's settings that are searched.
fn grid() -> Vec<RaySettings> {
    let mut all = Vec::new();
    for target in [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0] {
        for look_back in [2, 10, 30] {
            for up in [0, 3, 10] {
                for down in [20, 60, 180, 600] {
                    for factors in [(1.0, 1.0), (0.6, 1.0), (1.5, 1.0), (1.0, 0.3)] {
                        all.push(RaySettings { target, look_back, up, down, factors });
                    }
                }
            }
        }
    }
    all
}

fn compare(
    name: &str,
    curve: &ServiceCurve,
    model: ScaledModel,
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
    let settings = grid();
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
