//! How near to the best number of batches a worker the adaptive policy comes, over many worlds.
//!
//! `cargo run --release -p jitney-lab --example overlap -- [worlds] [first seed] [show those below] [kind]`;
//! without a kind (`Own`, `Workers`, `Models`) each seed has its own.
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_lab::overlap::{OverlapKind, OverlapWorld};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, usual: f64| words.get(at).and_then(|it| it.parse().ok()).unwrap_or(usual);
    let (worlds, first, low) = (number(0, 1_000.0) as u64, number(1, 1.0) as u64, number(2, 0.93));
    let only = words.get(3).map(|word| {
        let kind = OverlapKind::ALL.into_iter().find(|kind| format!("{kind:?}") == *word);
        kind.expect("a kind is Own, Workers or Models")
    });
    let mut shares: Vec<(OverlapKind, f64)> = Vec::new();
    for seed in first..first + worlds {
        let kind = only.unwrap_or(OverlapKind::of(seed));
        let world = OverlapWorld::draw(kind, seed);
        let (share, best) = world.share();
        if share < low {
            println!("seed {seed}: {share:.3} of {best:?}: {}", world.description());
        }
        shares.push((kind, share));
    }
    shares.sort_by(|one, other| one.1.total_cmp(&other.1));
    let all: Vec<f64> = shares.iter().map(|it| it.1).collect();
    print("all", &all);
    for kind in OverlapKind::ALL {
        let of_it = shares.iter().filter(|it| it.0 == kind).map(|it| it.1);
        print(&format!("{kind:?}"), &of_it.collect::<Vec<_>>());
    }
}

/// What share of the best these worlds reach, the worst one first.
fn print(name: &str, shares: &[f64]) {
    if shares.is_empty() {
        return;
    }
    let at = |share: f64| shares[((shares.len() - 1) as f64 * share) as usize];
    let near = |least: f64| {
        100.0 * shares.iter().filter(|it| **it >= least).count() as f64 / shares.len() as f64
    };
    println!(
        "{name}: {} worlds, at least 0.97 in {:.2} %, 0.93 in {:.2} %; worst {:.3}, 1 % {:.3}, 5 % {:.3}, median {:.3}",
        shares.len(),
        near(0.97),
        near(0.93),
        at(0.0),
        at(0.01),
        at(0.05),
        at(0.5),
    );
}
