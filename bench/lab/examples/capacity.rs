//! Workers that follow the load, beside a fixed number and Ray Serve's rule.
//!
//! `cargo run --release -p jitney-lab --example capacity -- [hours of the day that are played] [files of recorded traces]`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_lab::capacity::{
    CapacityResult, FixedWorkers, OurRule, RayRule, RaySettings, ScaledModel, play, varying,
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
    let day = varying(day, hours * 3600.0, 4.0, model.objective, 1);
    compare("day", &curve, model, &day);
    let bursts = |t: f64| if t % 300.0 < 30.0 { full * 0.7 } else { full * 0.07 };
    let bursts = varying(bursts, hours * 900.0, 4.0, model.objective, 2);
    compare("bursts", &curve, model, &bursts);
    for file in std::env::args().skip(2) {
        match std::fs::read_to_string(&file).map(|text| Trace::parse(&text)) {
            Ok(Ok(trace)) => compare(&file, &curve, model, &as_recorded(&trace, 0.3 * full, model)),
            other => println!("{file}: {other:?}"),
        }
    }
    for run in 0..36_u32 {
        let tenth = 1 + run % 9;
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

fn compare(name: &str, curve: &ServiceCurve, model: ScaledModel, load: &Load) {
    let fixed = play(curve, model, load, 8, &mut FixedWorkers(8));
    let show = |who: &str, ran: &CapacityResult| {
        println!(
            "{name}: {who}: on time {:.4} ({:.4} of fixed), worker-seconds {:.3} of fixed, {} changes",
            ran.on_time,
            ran.on_time / fixed.on_time,
            ran.worker_seconds / fixed.worker_seconds,
            ran.changes.len()
        );
    };
    show("8 fixed", &fixed);
    show("ours", &play(curve, model, load, 1, &mut OurRule::new(model)));
    let ray = |settings| play(curve, model, load, 1, &mut RayRule::new(settings, model.bounds));
    show("Ray, defaults", &ray(RaySettings::default()));
    let mut found = Vec::new();
    for target in [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0] {
        for look_back in [2, 10] {
            for up in [0, 3] {
                for down in [20, 60, 180] {
                    let settings = RaySettings { target, look_back, up, down };
                    found.push((settings, ray(settings)));
                }
            }
        }
    }
    found.sort_by(|a, b| a.1.worker_seconds.total_cmp(&b.1.worker_seconds));
    let mut best = 0.0;
    for (settings, ran) in &found {
        if ran.on_time > best {
            best = ran.on_time;
            show(&format!("Ray, {settings:?}"), ran);
        }
    }
}
