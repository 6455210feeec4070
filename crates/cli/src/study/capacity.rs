//! `jitney plan`: how many workers, and which largest batch? A sentence, and the trials below.

use std::path::Path;

use jitney_sim::arrivals::Arrivals;
use jitney_sim::curve::WrittenCurve;
use jitney_sim::noise::Noise;
use jitney_sim::plan::{CapacityAnswer, CapacityPlan, CapacityQuestion, LOAD_SHARE_MAX, Trial};
use jitney_sim::text_table::TextTable;
use serde_json::{Value, json};

use super::measurement::{Measurement, measure};
use super::report::StudyReport;
use super::workload::{bounded, max_batch, positive, share, sizes, stages, trace};
use super::{curve_file, proposal};
use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flag_values;
use crate::flags::study::PlanFlags;
use crate::progress::Progress;

pub fn run(flags: &PlanFlags, env: &Env) -> Result<StudyReport, Failure> {
    let measured = flags.url.as_deref().map(|url| measure(flags, url, env)).transpose()?;
    let (curve, steps) = match measured {
        Some(Measurement { curve, steps }) => (curve, steps),
        None => (curve_file::load(flags.curve.as_deref().unwrap_or_default())?, Vec::new()),
    };
    let question = question(flags, curve)?;
    let mut progress = Progress::new();
    let answer = question.answer(&mut |workers, batch| {
        progress.say(&format!("playing {workers} workers with batches of up to {batch}"));
    });
    drop(progress);
    if let CapacityAnswer::Enough(plan) = &answer {
        let page = || proposal::page(&to_text(&question, &answer), &question, plan, &steps);
        write(flags.write.as_deref(), || proposal::configuration(&question, plan))?;
        write(flags.report.as_deref(), page)?;
    }
    let possible = matches!(answer, CapacityAnswer::Enough(_));
    let text = if flags.json { to_json(&answer) } else { to_text(&question, &answer) };
    Ok(StudyReport { text, possible })
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text()).map_err(|error| Failure::file("write", path, &error))?;
    console::err(format!("wrote {}", path.display()));
    Ok(())
}

fn question(flags: &PlanFlags, curve: WrittenCurve) -> Result<CapacityQuestion, Failure> {
    let trace = flags.trace.as_deref().map(trace).transpose()?;
    let rate = flags.rate.or(trace.as_ref().map(|trace| trace.rate())).unwrap_or(0.0);
    let count = trace.as_ref().map_or(flags.requests, |trace| trace.times.len());
    let arrivals = match trace {
        Some(trace) => Arrivals::Recorded(trace.times),
        None => flag_values::arrivals(&flags.arrivals)?,
    };
    let max_batch = max_batch(flags.max_batch, &curve)?;
    Ok(CapacityQuestion {
        sizes: sizes(&flags.sizes)?,
        stages: stages(flags.prepare.as_deref(), None, flags.contention, max_batch)?,
        max_batch,
        curve,
        max_workers: bounded("--max-workers", flags.max_workers, 1024)?,
        rate: positive("--rate", rate)?,
        arrivals,
        objective: positive("--p99", flags.p99.0.as_secs_f64() * 1e3)?,
        share: share("--share", flags.share)?,
        noise: Noise { jitter: share("--jitter", flags.jitter)?, ..Noise::NONE },
        count: bounded("--requests", count, 10_000_000)?,
        seeds: 3,
    })
}

fn to_text(question: &CapacityQuestion, answer: &CapacityAnswer) -> String {
    let CapacityQuestion { rate, objective, share, max_workers, .. } = question;
    let goal = format!("{rate:.0} requests/s with {}% within {objective} ms", percent(*share));
    match answer {
        CapacityAnswer::Enough(plan) => enough(&goal, plan, *rate),
        CapacityAnswer::TooSlow { alone } => format!(
            "Impossible: {goal}.\n\
             A request alone already takes {alone:.1} ms, so no number of workers can help.\n\
             A faster model or machine can, or an objective above {alone:.1} ms."
        ),
        CapacityAnswer::TooMuch { workers, best: None } => format!(
            "Impossible with at most {max_workers} workers: {goal}.\n\
             Even without chance at least {workers} workers would be needed; \
             --max-workers allows more."
        ),
        CapacityAnswer::TooMuch { best: Some(best), .. } => format!(
            "Impossible with at most {max_workers} workers: {goal}.\n\
             With {} workers {}% are in time; --max-workers allows more.",
            best.workers,
            percent(best.on_time)
        ),
    }
}

fn enough(goal: &str, plan: &CapacityPlan, rate: f64) -> String {
    let Trial { workers, max_batch, on_time, p50, p99, busy, .. } = plan.chosen;
    let (workers, carry) = match workers {
        1 => ("1 worker".to_owned(), "carries"),
        several => (format!("{several} workers"), "carry"),
    };
    let (limit, used) = (plan.chosen.limit, rate / plan.chosen.limit);
    let most = LOAD_SHARE_MAX * 100.0;
    let room = if used <= LOAD_SHARE_MAX {
        format!("Below {most:.0} % there is room for chance and for growth.")
    } else {
        format!("Above {most:.0} % there is little room for chance: plan another worker.")
    };
    format!(
        "{workers} with max_batch_size {max_batch} {carry} {goal}.\n\
         Worst of three runs: {}% in time, p50 {p50:.1} ms, p99 {p99:.1} ms, workers {:.0} % busy.\n\
         The smooth limit of this choice is {limit:.0} requests/s, of which the load is {:.0} %. {room}\n\n{}",
        percent(on_time),
        busy * 100.0,
        used * 100.0,
        trials(plan)
    )
}

fn trials(plan: &CapacityPlan) -> TextTable {
    let header = ["max batch", "in time", "p50 ms", "p99 ms", "busy", "mean batch"];
    let mut table = TextTable::new("What was played", header.map(str::to_owned));
    for trial in &plan.trials {
        let chosen = if *trial == plan.chosen { " <" } else { "" };
        let name = format!("{} workers{chosen}", trial.workers);
        table.row(
            name,
            [
                trial.max_batch.to_string(),
                format!("{}%", percent(trial.on_time)),
                format!("{:.1}", trial.p50),
                format!("{:.1}", trial.p99),
                format!("{:.0} %", trial.busy * 100.0),
                format!("{:.1}", trial.fill),
            ],
        );
    }
    table
}

/// A share as a percentage with two digits, never rounded up to 100.
fn percent(share: f64) -> String {
    let value = (share * 10_000.0).floor() / 100.0;
    format!("{value} ")
}

fn to_json(answer: &CapacityAnswer) -> String {
    let trial = |trial: &Trial| -> Value {
        json!({
            "workers": trial.workers, "max_batch_size": trial.max_batch, "on_time": trial.on_time,
            "p50_ms": trial.p50, "p99_ms": trial.p99, "busy": trial.busy, "mean_batch": trial.fill,
        })
    };
    let value = match answer {
        CapacityAnswer::Enough(plan) => json!({
            "possible": true,
            "chosen": trial(&plan.chosen),
            "smooth_limit_per_second": plan.chosen.limit,
            "trials": plan.trials.iter().map(trial).collect::<Vec<_>>(),
        }),
        CapacityAnswer::TooSlow { alone } => {
            json!({"possible": false, "why": "a request alone is too slow", "alone_ms": alone})
        }
        CapacityAnswer::TooMuch { workers, best } => json!({
            "possible": false,
            "why": "too few workers allowed",
            "workers_at_least": workers,
            "best": best.as_ref().map(trial),
        }),
    };
    serde_json::to_string_pretty(&value).unwrap_or_default()
}
