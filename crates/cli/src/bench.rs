//! `jitney bench`: puts a server under load and reports what became of the requests.
//!
//! These modules read flags and files and print; `jitney_load` sends and counts. The times of an
//! open loop come from `jitney_sim`, so that the simulator can play the same ones.

mod bodies;
mod load;
mod schedule;
mod summary;

use std::io::IsTerminal as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jitney_load::{
    Ending, ExchangeFailure, LiveFigures, LoadPlan, LoadProtocol, LoadReport, LoadUrl, Stop,
};
use serde::Serialize;
use tokio::signal;

use crate::console;
use crate::failure::{FAILED, Failure, cannot};
use crate::flags::bench::BenchFlags;
use crate::machine;

/// How much of an error's text is shown.
const SHOWN_MAX: usize = 300;

/// `jitney bench`
pub fn bench(flags: &BenchFlags) -> Result<u8, Failure> {
    machine::raise_open_files();
    let url: LoadUrl = flags.url.parse().map_err(Failure::usage)?;
    let plan = load::plan(flags, url)?;
    if !flags.keep_going {
        try_once(&plan, flags)?;
    }
    let stop = Stop::default();
    stop_on_interrupt(&stop);
    let report = run(plan, flags, &stop)?;
    write(&report, flags)?;
    Ok(if report.total.answered > 0 { 0 } else { FAILED })
}

/// Puts a server under load after a first request, and prints nothing.
pub fn measure(flags: &BenchFlags) -> Result<LoadReport, Failure> {
    let plan = load::plan(flags, flags.url.parse().map_err(Failure::usage)?)?;
    try_once(&plan, flags)?;
    jitney_load::run(plan, &Stop::default(), None).map_err(cannot("run the load"))
}

fn run(plan: LoadPlan, flags: &BenchFlags, stop: &Stop) -> Result<LoadReport, Failure> {
    let watched = !flags.quiet && std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let mut show = |figures: LiveFigures| bar.set_message(summary::live(figures));
    let live: Option<&mut dyn FnMut(LiveFigures)> = if watched { Some(&mut show) } else { None };
    let report = jitney_load::run(plan, stop, live).map_err(cannot("run the load"));
    bar.finish_and_clear();
    report
}

/// One request before the load: a wrong path is one error and not a million.
fn try_once(plan: &LoadPlan, flags: &BenchFlags) -> Result<(), Failure> {
    let answer = jitney_load::trial(plan).map_err(cannot("send a request"))?;
    if answer.ending.is_answer() {
        return Ok(());
    }
    let url = &flags.url;
    let message = match answer.ending {
        Ending::Failed(ExchangeFailure::NobodyListens) => format!("nobody listens at {url}"),
        Ending::Failed(why) => {
            let detail =
                if answer.text.is_empty() { String::new() } else { format!(": {}", answer.text) };
            format!("the first request to {url} failed: {}{detail}", why.label())
        }
        ending @ (Ending::Http(_) | Ending::Grpc(_)) => {
            let text: String = answer.text.trim().chars().take(SHOWN_MAX).collect();
            format!("the first request to {url} was answered with {ending}: {text}")
        }
    };
    Err(Failure::failed(message).hint(hint(plan, answer.ending, url)))
}

fn hint(plan: &LoadPlan, ending: Ending, url: &str) -> &'static str {
    let has_path = url.parse().is_ok_and(|url: LoadUrl| url.path != "/");
    match ending {
        Ending::Failed(ExchangeFailure::NobodyListens) => {
            "start the server first, for example: jitney serve model.mar --port 8080"
        }
        Ending::Failed(ExchangeFailure::Tls) => {
            "--insecure trusts any certificate, --ca a given one"
        }
        Ending::Failed(_) if plan.target.protocol == LoadProtocol::Http2 => {
            "not every server speaks HTTP/2 without TLS; Jitney does on its gRPC port only"
        }
        Ending::Http(_) if !has_path => {
            "the URL has no path, so / was tried; models answer at /predictions/MODEL, and with Open \
             Inference at /v2/models/MODEL/infer"
        }
        Ending::Http(_) | Ending::Grpc(_) | Ending::Failed(_) => {
            "--keep-going starts the load in spite of it"
        }
    }
}

/// The first interrupt ends the load, the second also ends the wait for answers; the summary follows.
fn stop_on_interrupt(stop: &Stop) {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            while signal::ctrl_c().await.is_ok() {
                stop.set();
            }
        });
    });
}

/// The results as JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    url: &'a str,
    seed: u64,
    #[serde(flatten)]
    report: &'a LoadReport,
}

fn write(report: &LoadReport, flags: &BenchFlags) -> Result<(), Failure> {
    if let Some(path) = &flags.svg {
        let picture = report.svg(&format!("Latency of {}", flags.url));
        std::fs::write(path, picture).map_err(|error| Failure::file("write", path, &error))?;
    }
    let to_stdout = flags.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &flags.json {
        let json = JsonReport { url: &flags.url, seed: flags.seed, report };
        let text = serde_json::to_string_pretty(&json).map_err(cannot("write JSON"))?;
        if to_stdout {
            console::out(text);
        } else {
            std::fs::write(path, text + "\n")
                .map_err(|error| Failure::file("write", path, &error))?;
        }
    }
    if !flags.quiet {
        let text = summary::text(report, flags);
        if to_stdout {
            console::err(text)
        } else {
            console::out(text)
        }
        if let Some(why) = &report.generator.limited_by {
            console::err(format!(
                "warning: {why}: the figures are of this program and this machine, not of the server"
            ));
        }
    }
    Ok(())
}
