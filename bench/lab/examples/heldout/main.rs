//! Judges the policy where nobody tuned it: other curves, deadlines, workers, processes and noise
//! than those of the tables. `cargo run --release -p jitney-lab --example heldout -- [--seed N]
//! [--count N] [--peers|--loops|--overload|--bank DRAW [--cells N]]`. Without `--peers` only ours is
//! measured; `--bank` draws settings by chance (see `bank`); `--loops` shows
//! closed loops, with the throughput over that of the best window in brackets; `--overload` goodput
//! over the fluid limit, of one worker with that over the clairvoyant's in brackets.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example that prints")]

mod bank;

use jitney_lab::bounds;
use jitney_lab::contender::Contender;
use jitney_lab::grid;
use jitney_lab::tables::closed::{ClosedLoop, steady};
use jitney_lab::tables::{Effort, Scenario, bert, cpu, g99, r50, step8};
use jitney_sim::arrivals::Arrivals;
use jitney_sim::curve::ServiceCurve;
use jitney_sim::noise::Noise;

fn columns() -> Vec<Scenario> {
    let slow = || ServiceCurve::affine(18.0, 5.1, 32);
    let small = || ServiceCurve::affine(0.8, 0.25, 32);
    let even = || ServiceCurve::affine(8.0, 0.5, 64);
    let step = || ServiceCurve::stepped(4.0, 0.3, 4, 8, 48);
    let jitter = Noise { jitter: 0.15, outliers: 0.01, outlier: 3.0, ..Noise::NONE };
    let mut wild = Scenario::new("even k4 wild", even(), 4, 45.0);
    wild.world.noise = jitter.clone();
    let mut lone = Scenario::new("small k1 wild", small(), 1, 8.0);
    lone.world.noise = jitter;
    let mut hyper = Scenario::new("even k3 H2", even(), 3, 45.0);
    hyper.demand.arrivals = Arrivals::Hyper { cv2: 4.0 };
    let mut off = Scenario::new("slow k4 on-off", slow(), 4, 150.0);
    off.demand.arrivals = Arrivals::OnOff { dwell: 2.0 };
    off.burst = 2.0;
    vec![
        Scenario::new("slow k1", slow(), 1, 120.0),
        Scenario::new("small k1", small(), 1, 6.0),
        Scenario::new("slow k3", slow(), 3, 120.0),
        Scenario::new("small k6", small(), 6, 5.0),
        Scenario::new("step4 k3", step(), 3, 22.0),
        Scenario::new("even k5", even(), 5, 30.0),
        hyper,
        off,
        wild,
        lone,
    ]
}

/// Closed loops of many sizes: ours, and ours over the best of 25 windows.
fn loops(count: usize, seed: u64) {
    let curves = [("BERT", bert()), ("R50", r50()), ("even", ServiceCurve::affine(8.0, 0.5, 64))];
    for (name, curve) in curves {
        for workers in [1, 2, 4] {
            print!("  {name} k{workers}:");
            for clients in [2, 3, 5, 12, 24, 48] {
                let cell = ClosedLoop::new("", curve.clone(), workers, clients, 0.3);
                let speed = |it: &Contender| steady(&cell.play(it, count, seed));
                let best = grid::torchserve().iter().map(speed).fold(0.0, f64::max);
                let ours = speed(&Contender::Adaptive);
                print!("  N{clients} {ours:.0} ({:.3})", ours / best);
            }
            println!();
        }
    }
}

/// Goodput when one to four times as much is asked for as can be served without loss.
fn overload(count: usize, seed: u64) {
    let settings = [
        Scenario::new("BERT k1", bert(), 1, 30.0),
        Scenario::new("CPU k1", cpu(), 1, 60.0),
        Scenario::new("step8 k1", step8(), 1, 20.0),
        Scenario::new("slow k1", ServiceCurve::affine(18.0, 5.1, 32), 1, 120.0),
        Scenario::new("BERT k4", bert(), 4, 30.0),
        Scenario::new("slow k3", ServiceCurve::affine(18.0, 5.1, 32), 3, 120.0),
    ];
    for setting in settings {
        print!("  {}:", setting.name);
        for factor in [1.0, 1.25, 1.5, 2.0, 3.0, 4.0] {
            let rate = setting.fluid() * factor;
            let ours = setting.play(&Contender::Adaptive, rate, count, seed);
            print!("  {factor}x {:.3}", ours.goodput() / setting.fluid());
            if setting.world.workers == 1 {
                let jobs = setting.demand.jobs(rate, count, seed);
                let missed = bounds::clairvoyant(&setting.world.curve, &jobs, usize::MAX);
                let best = count - missed.unwrap_or(count);
                print!(" ({:.3})", ours.on_time() as f64 / best as f64);
            }
        }
        println!();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str, other: u64| {
        let at = args.iter().position(|arg| arg == flag);
        at.map_or(other, |at| args[at + 1].parse().expect("a number"))
    };
    let (seed, count) = (number("--seed", 42), number("--count", 20_000) as usize);
    let peers = args.iter().any(|arg| arg == "--peers");
    if args.iter().any(|arg| arg == "--loops") {
        return loops(count / 4, seed);
    }
    if args.iter().any(|arg| arg == "--overload") {
        return overload(count, seed);
    }
    if args.iter().any(|arg| arg == "--bank") {
        let (cells, draw) = (number("--cells", 48) as usize, number("--bank", 1));
        return bank::print(cells, draw, count, seed, peers);
    }
    let mut progress = |text: &str| eprint!("\r{text:60}");
    let mut effort = Effort { seed, count, peers, progress: &mut progress };
    println!("\n{}", g99::table(&columns(), &mut effort));
}
