//! Many models and memory for few of them: how long requests wait for loads under four rules.
//!
//! `cargo run --release -p jitney-lab --example memory -- [days]`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_lab::memory::{
    ClairvoyantRule, GreedyDualRule, LruRule, ManyModels, ManySettings, WorthRule,
};

fn main() {
    let days = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(4.0);
    let steady = ManySettings {
        models: 1000,
        memory: 20,
        zipf: 1.1,
        rate: 0.2,
        seconds: days * 86_400.0,
        loads: 4,
        changes: 0.0,
    };
    for (name, settings) in [
        ("0.2 requests/s", steady),
        ("1 request/s", ManySettings { rate: 1.0, ..steady }),
        ("0.2 requests/s, others popular every 6 h", ManySettings { changes: 21_600.0, ..steady }),
    ] {
        for seed in 1..=3 {
            let many = ManyModels::new(settings, seed);
            let ours = many.play(&mut WorthRule::default());
            let lru = many.play(&mut LruRule::default());
            let greedy = many.play(&mut GreedyDualRule::default());
            let counting = many.play(&mut GreedyDualRule::counting());
            let knowing = many.play(&mut ClairvoyantRule::new(&many));
            let bound = many.bound();
            println!(
                "{name}, seed {seed}: ours {ours:.3} s ({:.2} of LRU {lru:.3}, {:.2} of GreedyDual {greedy:.3}, \
                 {:.2} of GDSF {counting:.3}), clairvoyant rule {knowing:.3}, bound {bound:.3}",
                ours / lru,
                ours / greedy,
                ours / counting,
            );
        }
    }
}
