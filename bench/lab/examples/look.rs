//! What it costs to ask how many workers a model should have: microseconds of a core per second and model, where the
//! model is asked for all the time and looked at twice a second.
//!
//! `cargo run --release -p jitney-lab --example look`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use std::hint::black_box;

use jitney_batcher::{Capacity, CapacityFacts, CurvePoint, LOOK_EVERY};

const LOOKS: u64 = 100_000;

fn main() {
    for most in [4, 64] {
        for rate in [1, 100, 10_000] {
            let cost = seconds(most, rate) * 1e6 / LOOKS as f64;
            let per_second = cost * 1e9 / LOOK_EVERY as f64;
            println!("1 to {most} workers, {rate} requests/s: {per_second:.2} us a second");
        }
    }
}

/// The time of all looks, with a curve of 32 sizes that is copied for each, as the server does.
fn seconds(most: u32, rate: u64) -> f64 {
    let point = |size: u64| CurvePoint {
        group: 0,
        size,
        mean: 5_000_000 + 500_000 * size,
        planned: 6_000_000 + 600_000 * size,
        samples: 32,
    };
    let learned: Vec<CurvePoint> = (1..=32).map(point).collect();
    let mut capacity = Capacity::new(0, 1);
    let began = on_processor();
    for look in 1..=LOOKS {
        // Half of the time there is more to do, so that what was held is looked through as well.
        let busy = rate * (1 + look / 240 % 2);
        let curve: Vec<CurvePoint> = learned.clone();
        let facts = CapacityFacts {
            arrived: look * busy / 2,
            waiting: 0,
            curve: &curve,
            serving: 2,
            before: Some((1, &learned)),
            unit: 1.0,
            beside: 1.0,
            objective: Some(50_000_000),
            load: 5_000_000_000,
            failing: false,
            bounds: (1, most),
            idle: 900_000_000_000,
        };
        black_box(capacity.look(look * LOOK_EVERY, &facts));
    }
    on_processor() - began
}

/// Seconds that this program has had a processor: others may be busy beside it.
fn on_processor() -> f64 {
    let spent = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = spent.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
    nanos.unwrap_or(f64::NAN) / 1e9
}
