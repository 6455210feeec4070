//! Prints the four scores of this build: mean ms, p99 ms, share on time, answers per second. `cargo run
//! --release -p jitney-lab --example scores`.
#![expect(clippy::print_stdout, reason = "an example that prints")]

use jitney_lab::scores::Scores;

fn main() {
    let [mean, p99, on_time, answers] = Scores::play().figures();
    println!("{mean} {p99} {on_time} {answers}");
}
