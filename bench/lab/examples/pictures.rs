//! Draws the pictures of docs/concepts/batching.md, ours beside the peers' policies: `cargo run
//! --release -p jitney-lab --example pictures -- docs/concepts`.
#![expect(clippy::print_stderr, reason = "an example that prints")]

use jitney_lab::contender::Contender;
use jitney_sim::chart::{Chart, Series};
use jitney_sim::{Clients, Demand, Load, Outcome, ServiceCurve, ThinkSpread, World, ms, run};

const POLICIES: [&str; 6] =
    ["adaptive", "eager", "torchserve:16,5", "ray:10,10", "bentoml", "triton:64,2,preferred"];
const COUNT: usize = 20_000;
const SEED: u64 = 42;

type Points = Vec<(f64, f64)>;

/// Plays every policy in a world and draws one line for each.
fn chart(
    (title, x, y): (&str, &str, &str),
    (max, deadline): (usize, f64),
    points: impl Fn(&dyn Fn(&Load) -> Outcome) -> Points,
) -> Chart {
    let world = World::new(ServiceCurve::affine(5.0, 0.2, max), 1);
    let line = |policy: &str| {
        eprintln!("{title}: {policy}");
        let contender = Contender::parse(policy, ms(deadline)).expect(policy);
        let play = |load: &Load| run(&world, load, contender.build(&world).as_mut());
        let strong = contender == Contender::Adaptive;
        Series { name: contender.to_string(), points: points(&play), strong }
    };
    let (title, x, y) = (title.to_owned(), x.to_owned(), y.to_owned());
    Chart { series: POLICIES.map(line).into(), title, x, y, top: None }
}

fn overload() -> Chart {
    let names = ("Answers in time, by load", "requests per second", "in time per second");
    let limit = ServiceCurve::affine(5.0, 0.2, 32).capacity(1);
    chart(names, (32, 50.0), |play| {
        let rates = (1..=16).map(|step| limit * f64::from(step) / 8.0);
        rates
            .map(|rate| (rate, play(&Demand::poisson(50.0).load(rate, COUNT, SEED)).goodput()))
            .collect()
    })
}

fn clients() -> Chart {
    let names = ("Throughput of clients that wait", "clients", "answers per second");
    chart(names, (64, 1000.0), |play| {
        let load = |count| {
            let (turn, spread) = (ms(0.05), ThinkSpread::Exponential);
            let (deadline, until) = (u64::MAX, ms(10_000.0));
            Load::closed(Clients { count, turn, think: 0, spread, deadline, until, seed: SEED })
        };
        let counts = [1, 2, 4, 8, 16, 32, 64];
        counts.map(|count| (count as f64, play(&load(count)).throughput())).into()
    })
}

fn latency() -> Chart {
    let (x, y) = ("milliseconds", "share of all requests answered within");
    let chart = chart(("How long requests take", x, y), (32, 100.0), |play| {
        let outcome = play(&Demand::poisson(100.0).load(1200.0, COUNT, SEED));
        let latencies = outcome.latencies(0);
        let answered = 1.0 - outcome.rejected() as f64 / COUNT as f64;
        let shares = (0..=199).map(|percent| f64::from(percent) / 200.0);
        shares.map(|share| (latencies.quantile(share), share * answered)).collect()
    });
    Chart { top: Some(1.0), ..chart }
}

fn main() {
    let folder = std::env::args().nth(1).expect("the folder for the pictures");
    for (name, chart) in [("overload", overload()), ("clients", clients()), ("latency", latency())]
    {
        std::fs::write(format!("{folder}/{name}.svg"), chart.svg()).expect("it can be written");
    }
}
