//! How near to the best number of batches a worker the adaptive policy comes, over many worlds.
//!
//! `cargo run --release -p jitney-lab --example overlap -- [worlds] [first seed]`; a third word prints
//! every world below this share.
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_lab::overlap::OverlapWorld;

fn main() {
    let mut words = std::env::args().skip(1);
    let mut next = |usual: f64| words.next().and_then(|it| it.parse().ok()).unwrap_or(usual);
    let (worlds, first, low) = (next(1_000.0) as u64, next(1.0) as u64, next(0.93));
    let mut shares: Vec<f64> = Vec::new();
    for seed in first..first + worlds {
        let world = OverlapWorld::draw(seed);
        let (share, best) = world.share();
        if share < low {
            println!("seed {seed}: {share:.3} of {best:?}: {}", world.description());
        }
        shares.push(share);
    }
    shares.sort_by(f64::total_cmp);
    let at = |share: f64| shares[((shares.len() - 1) as f64 * share) as usize];
    let near = shares.iter().filter(|it| **it >= 0.97).count();
    println!(
        "{worlds} worlds: worst {:.3}, 1 % {:.3}, 5 % {:.3}, median {:.3}",
        at(0.0),
        at(0.01),
        at(0.05),
        at(0.5)
    );
    println!("at least 0.97 of the best in {:.2} %", 100.0 * near as f64 / shares.len() as f64);
}
