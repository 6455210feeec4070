//! What a shadow of all requests costs at 60 % load: the p99 with it over the p99 without it, over several seeds.
//!
//! `cargo run --release -p jitney-lab --example shadow -- [requests]`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_batcher::Nanos;
use jitney_lab::shadow::{ShadowPlace, ShadowRun, ShadowWorld};

const SEEDS: u64 = 5;

fn main() {
    let requests = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(100_000);
    println!(
        "| model | copies run | p99 without, ms | p99 with, ms | with over without | dropped |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, batch, batch_max) in [
        ("10 ms a request", (0, 10_000_000), 1),
        ("5 ms + 0.2 ms an item", (5_000_000, 200_000), 32),
    ] {
        for place in [ShadowPlace::OwnDevices, ShadowPlace::SharedProcessors] {
            let mut rows: Vec<(f64, [Nanos; 2], f64)> = (1..=SEEDS)
                .map(|seed| {
                    let world =
                        ShadowWorld { workers: 2, batch, batch_max, load: 0.6, requests, seed };
                    row(&world.run(ShadowPlace::Nowhere), &world.run(place))
                })
                .collect();
            rows.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (ratio, [without, with_it], dropped) = rows[rows.len() / 2];
            let (without, with_it) = (without as f64 / 1e6, with_it as f64 / 1e6);
            println!(
                "| {name} | {place:?} | {without:.1} | {with_it:.1} | {ratio:.3} | {:.0} % |",
                dropped * 100.0
            );
        }
    }
}

fn row(without: &ShadowRun, with_it: &ShadowRun) -> (f64, [Nanos; 2], f64) {
    let both = [without.quantile(0.99), with_it.quantile(0.99)];
    let copies = with_it.sent + with_it.dropped;
    (both[1] as f64 / both[0] as f64, both, with_it.dropped as f64 / copies as f64)
}
