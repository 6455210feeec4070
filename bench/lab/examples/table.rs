//! Prints the tables by which the policy is judged, for those who tune it: `cargo run --release -p
//! jitney-lab --example table -- g99|overload|latency|closed|others|stages|all [--seed N] [--count N]
//! [--ours] [COLUMN…]`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example that prints")]

use jitney_lab::tables::{Effort, closed, g99, latency, others, overload, stages};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut number = |flag: &str, other: u64| match args.iter().position(|arg| arg == flag) {
        Some(at) => {
            args.remove(at);
            args.remove(at).parse().expect("a number")
        }
        None => other,
    };
    let (seed, count) = (number("--seed", 42), number("--count", 20_000) as usize);
    let peers = !args.iter().any(|arg| arg == "--ours");
    args.retain(|arg| arg != "--ours");
    let mut progress = |text: &str| eprint!("\r{text:60}");
    let mut effort = Effort { seed, count, peers, progress: &mut progress };
    let which = args.first().map_or("all", String::as_str);
    let asked = |name| which == name || which == "all";
    if asked("g99") {
        let chosen = |name: &str| args.len() < 2 || args[1..].iter().any(|arg| name.contains(arg));
        let columns: Vec<_> = g99::columns().into_iter().filter(|c| chosen(c.name)).collect();
        println!("\n{}", g99::table(&columns, &mut effort));
    }
    if asked("overload") {
        println!("\n{}\n{}", overload::table(1, &mut effort), overload::table(4, &mut effort));
    }
    if asked("latency") {
        println!("\n{}", latency::table(&mut effort));
    }
    if asked("closed") {
        println!("\n{}", closed::table(&mut effort));
    }
    if asked("stages") {
        println!("\n{}", stages::table(&mut effort));
    }
    if asked("others") {
        println!("\n{}", others::table(&mut effort));
    }
}
