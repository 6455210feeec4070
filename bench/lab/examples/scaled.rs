//! What the simulator says of workers that follow a load that was played live as well (`bench/capacity.py`): shares of
//! answers in time, worker-seconds and changes of the number, of ours and of as many fixed workers, one line of JSON.
//!
//! `cargo run --release -p jitney-lab --example scaled -- CURVE.csv LARGEST_BATCH LOAD_MS OBJECTIVE_MS WORKERS TRACE.csv`
#![expect(clippy::print_stdout, reason = "an example that prints")]

use std::error::Error;

use jitney_batcher::Nanos;
use jitney_lab::capacity::{CapacityRule, FixedWorkers, OurRule, ScaledModel, play};
use jitney_sim::curve::WrittenCurve;
use jitney_sim::trace::Trace;
use jitney_sim::{Job, Load, ms};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [curve, largest, load, objective, workers, trace] = &words[..] else {
        return Err("CURVE.csv LARGEST_BATCH LOAD_MS OBJECTIVE_MS WORKERS TRACE.csv".into());
    };
    let curve = WrittenCurve::csv(&std::fs::read_to_string(curve)?)?.curve(largest.parse()?);
    let (load, objective, most) = (ms(load.parse()?), ms(objective.parse()?), workers.parse()?);
    let model = ScaledModel { bounds: (1, most), load, objective, processors: None };
    let times = Trace::parse(&std::fs::read_to_string(trace)?)?.times;
    let job = |(client, seconds): (usize, &f64)| {
        let at = ms(seconds * 1e3);
        Job { at, deadline: at + objective, tenant: 0, client: client as u64 }
    };
    let arrivals = Load::open(times.iter().enumerate().map(job).collect());
    let played = |first: u32, mut rule: Box<dyn CapacityRule>| {
        let ran = play(&curve, model, &arrivals, first, &mut *rule);
        let seconds = |(at, to): &(Nanos, u32)| format!("[{:.1}, {to}]", *at as f64 / 1e9);
        let changes = ran.changes.iter().map(seconds).collect::<Vec<_>>().join(", ");
        format!(
            "{{\"on_time\": {:.6}, \"worker_seconds\": {:.3}, \"changes\": [{changes}]}}",
            ran.on_time, ran.worker_seconds
        )
    };
    let ours = played(1, Box::new(OurRule::new(model)));
    let fixed = played(most, Box::new(FixedWorkers(most)));
    println!("{{\"ours\": {ours}, \"fixed\": {fixed}}}");
    Ok(())
}
