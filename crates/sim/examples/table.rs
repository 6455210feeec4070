//! Prints the tables by which the policy is judged: `cargo run --release -p jitney-sim --example
//! table -- g99 [SEED] [COUNT]`.
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_batcher::{Config, Policy};
use jitney_sim::{Arrivals, Curve, Demand, Noise, Ours, World, bounds, ms, run, search};

struct Column {
    name: &'static str,
    world: World,
    demand: Demand,
    deadline: f64,
    burst: f64,
}

fn columns() -> Vec<Column> {
    let r50 = || Curve::affine(5.072, 1.053, 64);
    let cpu = Curve::affine(1.0, 4.0, 32);
    let bert = || Curve::affine(5.0, 0.1, 64);
    let step8 = Curve::stepped(3.26, 0.11, 8, 16, 64);
    let mmpp = Arrivals::Bursts { ratio: 4.0, dwell: 0.5 };
    let column = |name, curve, workers, deadline| Column {
        name,
        world: World::new(curve, workers),
        demand: Demand::poisson(deadline),
        deadline,
        burst: 1.0,
    };
    let noisy = |name, workers| {
        let plain = column(name, r50(), workers, 25.0);
        Column { world: plain.world.with_noise(Noise::NOISY), ..plain }
    };
    let bursty = |name, workers, burst| Column {
        demand: Demand::new(mmpp.clone(), 25.0),
        burst,
        ..column(name, r50(), workers, 25.0)
    };
    vec![
        column("R50 k1", r50(), 1, 25.0),
        column("CPU k1", cpu, 1, 60.0),
        column("BERT k1", bert(), 1, 30.0),
        column("step8 k1", step8, 1, 20.0),
        column("R50 k2", r50(), 2, 25.0),
        column("R50 k4", r50(), 4, 25.0),
        column("R50 k8", r50(), 8, 25.0),
        column("BERT k4", bert(), 4, 30.0),
        noisy("R50 k1 noisy", 1),
        noisy("R50 k4 noisy", 4),
        bursty("R50 k1 MMPP", 1, 1.0),
        bursty("R50 k4 MMPP", 4, 1.6),
    ]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, other| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(other);
    let (seed, count) = (number(1, 42), number(2, 20_000) as usize);
    for column in columns() {
        let Column { name, world, demand, deadline, burst } = column;
        let fluid = bounds::fluid::lossless(&world.curve, world.workers, ms(deadline)) / burst;
        let bound = if world.workers == 1 {
            search::highest(fluid, 0.002, |rate| {
                let jobs = demand.jobs(rate, count, seed);
                bounds::clairvoyant(&world.curve, &jobs, count / 100).is_some()
            })
        } else {
            fluid
        };
        let config = Config {
            policy: Policy::Opportunistic,
            max_items: world.curve.max() as u32,
            ..Config::default()
        };
        let ours = search::highest(fluid, 0.002, |rate| {
            let mut ours = Ours::new(config.clone(), world.workers);
            run(&world, &demand.load(rate, count, seed), &mut ours).on_time_share() >= 0.99
        });
        println!(
            "{name:14} bound {:8.4}/ms  C_stag {:8.4}  ours {:8.4}  = {:.3}",
            bound / 1e3,
            fluid / 1e3,
            ours / 1e3,
            ours / bound
        );
    }
}
