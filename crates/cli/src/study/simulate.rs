//! `jitney simulate`: every policy plays the same workload; the result is a table and a chart.

use jitney_sim::chart::{Chart, Series};
use jitney_sim::outcome::Outcome;
use jitney_sim::policy::SimulatedPolicy;
use jitney_sim::text_table::TextTable;
use jitney_sim::world::Load;
use serde_json::{Value, json};

use super::report::StudyReport;
use super::workload::{Study, StudyLoad};
use crate::console;
use crate::failure::Failure;
use crate::flags::study::SimulateFlags;
use crate::progress::Progress;

const POLICIES: [&str; 3] = ["adaptive", "opportunistic", "window:5"];

/// One policy at one rate or number of clients.
struct Played {
    policy: SimulatedPolicy,
    at: f64,
    outcome: Outcome,
}

pub fn run(flags: SimulateFlags) -> Result<StudyReport, Failure> {
    let study = Study::new(flags.options, flags.workload.as_deref())?;
    let policies: Vec<&str> = if flags.policy.is_empty() {
        POLICIES.to_vec()
    } else {
        flags.policy.iter().map(String::as_str).collect()
    };
    let policies: Result<Vec<_>, _> = policies.into_iter().map(SimulatedPolicy::parse).collect();
    let policies = policies.map_err(|error| Failure::usage(error.to_string()))?;
    let played = play(&study, &policies);
    if let Some(path) = &flags.draw {
        let failed = |error| Failure::failed(format!("cannot write {}: {error}", path.display()));
        std::fs::write(path, picture(&study, &policies, &played).svg()).map_err(failed)?;
        console::err(format!("drew {}", path.display()));
    }
    let text = if flags.json { to_json(&played) } else { to_table(&study, &played).to_string() };
    Ok(StudyReport { text, possible: true })
}

fn play(study: &Study, policies: &[SimulatedPolicy]) -> Vec<Played> {
    let mut progress = Progress::new();
    let mut played = Vec::new();
    let loads: Vec<(f64, Load)> = match &study.load {
        StudyLoad::Open { arrivals, rates } => {
            rates.iter().map(|&rate| (rate, study.open(arrivals, rate))).collect()
        }
        StudyLoad::Closed { clients, think, spread } => {
            let load = |count: usize| (count as f64, study.closed(count, *think, *spread));
            clients.iter().map(|&count| load(count)).collect()
        }
    };
    for &policy in policies {
        for (at, load) in &loads {
            progress.say(&format!("{policy} at {at:.0}"));
            let outcome = jitney_sim::run(&study.world, load, &mut policy.build(&study.world));
            played.push(Played { policy, at: *at, outcome });
        }
    }
    played
}

// The table

fn to_table(study: &Study, played: &[Played]) -> TextTable {
    let (unit, title) = match study.load {
        StudyLoad::Open { .. } => ("rate/s", "Requests that come whatever happens"),
        StudyLoad::Closed { .. } => ("clients", "Clients that wait for their answer"),
    };
    let several = study.classes.len() > 1;
    let mut header = vec![
        unit,
        "answers/s",
        "on time/s",
        "on time",
        "rejected",
        "mean ms",
        "p50 ms",
        "p99 ms",
        "batch",
    ];
    let classes: Vec<String> = study.classes.iter().map(class_name).collect();
    if several {
        header.extend(classes.iter().map(String::as_str));
    }
    let mut table = TextTable::new(title, header.iter().map(|&cell| cell.to_owned()));
    for Played { policy, at, outcome } in played {
        let latencies = outcome.latencies(0);
        let ms = |value: f64| format!("{value:.1}");
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let rejected = outcome.rejected() as f64 / outcome.ends.len().max(1) as f64;
        let mut cells = vec![
            format!("{at:.0}"),
            format!("{:.0}", outcome.throughput()),
            format!("{:.0}", outcome.goodput()),
            percent(outcome.on_time_share()),
            percent(rejected),
            ms(latencies.mean()),
            ms(latencies.quantile(0.5)),
            ms(latencies.quantile(0.99)),
            ms(outcome.fill()),
        ];
        if several {
            cells.extend(study.classes.iter().map(|class| {
                let time = (class.deadline * 1e6) as u64;
                percent(
                    outcome.share_of(|job| {
                        job.tenant == class.tenant && job.deadline - job.at == time
                    }),
                )
            }));
        }
        table.row(policy.to_string(), cells);
    }
    table
}

fn class_name(class: &jitney_sim::Class) -> String {
    format!("tenant {}, {} ms", class.tenant, class.deadline)
}

fn to_json(played: &[Played]) -> String {
    let one = |Played { policy, at, outcome }: &Played| -> Value {
        let latencies = outcome.latencies(0);
        json!({
            "policy": policy.to_string(),
            "load": at,
            "answers_per_second": outcome.throughput(),
            "on_time_per_second": outcome.goodput(),
            "on_time": outcome.on_time_share(),
            "refused": outcome.rejected(),
            "requests": outcome.ends.len(),
            "mean_ms": latencies.mean(),
            "p50_ms": latencies.quantile(0.5),
            "p99_ms": latencies.quantile(0.99),
            "mean_batch": outcome.fill(),
        })
    };
    let all: Vec<Value> = played.iter().map(one).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default()
}

// The picture

fn picture(study: &Study, policies: &[SimulatedPolicy], played: &[Played]) -> Chart {
    let lines = |point: fn(&Played) -> (f64, f64)| {
        policies
            .iter()
            .map(move |each| series(each, of(played, each).map(point).collect()))
            .collect()
    };
    let chart = |title: &str, x: &str, y: &str, series, top| Chart {
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        series,
        top,
    };
    match &study.load {
        StudyLoad::Closed { .. } => {
            let series = lines(|each| (each.at, each.outcome.throughput()));
            chart("Throughput of clients that wait", "clients", "answers per second", series, None)
        }
        StudyLoad::Open { rates, .. } if rates.len() > 1 => {
            let series = lines(|each| (each.at, each.outcome.goodput()));
            chart(
                "Answers in time, by load",
                "requests per second",
                "in time per second",
                series,
                None,
            )
        }
        StudyLoad::Open { .. } => {
            let series = policies
                .iter()
                .flat_map(|each| of(played, each).map(|one| distribution(each, one)));
            let (x, y) = ("milliseconds", "share of all requests answered within");
            chart("How long requests take", x, y, series.collect(), Some(1.0))
        }
    }
}

fn of<'a>(played: &'a [Played], policy: &'a SimulatedPolicy) -> impl Iterator<Item = &'a Played> {
    played.iter().filter(move |each| each.policy == *policy)
}

fn series(policy: &SimulatedPolicy, points: Vec<(f64, f64)>) -> Series {
    let strong = *policy == SimulatedPolicy::Adaptive;
    Series { name: policy.to_string(), points, strong }
}

/// The share of all requests that were answered within each time; rejected ones never are.
fn distribution(policy: &SimulatedPolicy, played: &Played) -> Series {
    let latencies = played.outcome.latencies(0);
    let answered = 1.0 - played.outcome.rejected() as f64 / played.outcome.ends.len().max(1) as f64;
    let point = |percent: u32| {
        let share = f64::from(percent) / 200.0;
        (latencies.quantile(share), share * answered)
    };
    series(policy, (0..=199).map(point).collect())
}
