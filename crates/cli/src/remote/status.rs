//! One screen about a running server: its state, and one line per model.

use jitney_telemetry::overview::{
    GpuOverview, ModelOverview, OverviewDocument, OverviewSample, ProblemTone, ServerProblem,
};
use jitney_telemetry::{JobsOverview, RegistrationsView};

use super::rates::RemoteRates;
use super::words::{AlignedTable, bytes, counted, milliseconds, number, plain, shortened, time};

/// Rates are of this many seconds.
const WINDOW_SECONDS: u64 = 60;

/// The most characters of an error.
const ERROR_MAX: usize = 160;

/// The screen.
pub fn render(address: &str, overview: &OverviewDocument, samples: &[OverviewSample]) -> String {
    let mut lines = head(address, overview);
    lines.extend(overview.problems.iter().flat_map(problem));
    lines.push(String::new());
    lines.extend(models(overview, samples));
    lines.join("\n")
}

/// What is wrong, and what to do about it.
fn problem(problem: &ServerProblem) -> [String; 2] {
    let tone = match problem.tone {
        ProblemTone::Bad => "problem",
        ProblemTone::Warn => "warning",
        ProblemTone::Note => "note",
    };
    [format!("{tone}: {}", plain(&problem.what)), format!("  {}", plain(&problem.advice))]
}

/// What is known of the server and its machine.
pub fn head(address: &str, overview: &OverviewDocument) -> Vec<String> {
    let server = &overview.server;
    let mut lines = vec![format!(
        "Jitney {} at {address}: {}, up {}",
        server.version,
        server.state,
        time(server.uptime_seconds)
    )];
    if !server.state_text.is_empty() {
        lines.push(server.state_text.clone());
    }
    lines.push(machine(overview).join(", "));
    lines.extend(overview.registrations.iter().flat_map(list));
    lines.extend(overview.jobs.iter().map(jobs));
    lines.extend(overview.gpus.iter().map(gpu));
    lines
}

/// The requests that are answered later.
fn jobs(jobs: &JobsOverview) -> String {
    let JobsOverview { queued, running, succeeded, failed, .. } = jobs;
    let oldest = jobs.oldest_seconds.map(|seconds| format!(", the oldest for {}", time(seconds)));
    format!(
        "jobs: {queued} wait{}, {running} run, {succeeded} succeeded, {failed} failed, {}",
        oldest.unwrap_or_default(),
        bytes(jobs.bytes as f64)
    )
}

/// What the machine and the server have and use.
pub fn machine(overview: &OverviewDocument) -> Vec<String> {
    let server = &overview.server;
    let of = |used: u64, total: u64| format!("{} of {}", bytes(used as f64), bytes(total as f64));
    let mut facts = Vec::new();
    if let Some(machine) = &overview.machine {
        facts.extend(machine.cpu_percent.map(|percent| format!("CPU {percent:.0}%")));
        let memory = of(machine.memory_used_bytes, machine.memory_total_bytes);
        facts.push(format!("memory {memory}"));
    }
    facts.extend(server.memory_bytes.map(|own| format!("server {}", bytes(own as f64))));
    let held = of(server.request_memory_bytes, server.request_memory_limit_bytes);
    facts.push(format!("requests hold {held}"));
    facts.push(counted(server.connections, "connection"));
    facts
}

/// A GPU in one line.
pub fn gpu(gpu: &GpuOverview) -> String {
    let busy = gpu.utilization_percent.map_or("-".to_owned(), |busy| format!("{busy:.0}%"));
    let memory = gpu
        .memory_used_bytes
        .zip(gpu.memory_total_bytes)
        .map_or("-".to_owned(), |(used, total)| {
            format!("{} of {}", bytes(used as f64), bytes(total as f64))
        });
    format!("GPU {}: {busy}, memory {memory}", gpu.id)
}

/// The shared list that models come from, and what could not be loaded.
fn list(list: &RegistrationsView) -> Vec<String> {
    let revision = list.revision.as_deref().unwrap_or("not read yet");
    let loaded = list.models.iter().filter(|model| model.state == "loaded").count();
    let mut lines = vec![format!(
        "registrations {}: revision {revision}, {loaded} of {} loaded",
        list.source,
        counted(list.models.len() as u64, "model")
    )];
    let failed = list.models.iter().filter_map(|model| Some((model, model.reason.as_ref()?)));
    let failed = failed.map(|(model, reason)| format!("{} not loaded: {reason}", model.name));
    for trouble in list.error.iter().cloned().chain(failed) {
        lines.push(format!("  {}", shortened(&trouble, ERROR_MAX)));
    }
    lines
}

/// One line per version, and its last error below it.
pub fn models(overview: &OverviewDocument, samples: &[OverviewSample]) -> Vec<String> {
    if overview.models.is_empty() {
        return vec!["no model is registered".to_owned()];
    }
    let titles =
        ["MODEL", "STATE", "WORKERS", "REQ/S", "REJECTED/S", "P99", "QUEUE", "REQUESTS", "FAILED"];
    let mut table = AlignedTable::new(&titles, &[0, 1]);
    for model in &overview.models {
        table.row(row(overview, model, samples));
    }
    let mut lines = Vec::new();
    let mut rendered = table.render().into_iter();
    lines.extend(rendered.next());
    for (line, model) in rendered.zip(&overview.models) {
        lines.push(line);
        if !["ready", "loading"].contains(&model.state.as_str()) && !model.state_text.is_empty() {
            lines.push(format!("  {}", shortened(&model.state_text, ERROR_MAX)));
        }
        let error = model.last_error.as_ref().filter(|error| !model.state_text.contains(*error));
        if let Some(error) = error {
            lines.push(format!("  last error: {}", shortened(error, ERROR_MAX)));
        }
    }
    lines
}

/// Whether the model has other versions, so that the default one must be marked.
pub fn several(overview: &OverviewDocument, model: &ModelOverview) -> bool {
    overview.models.iter().filter(|other| other.name == model.name).count() > 1
}

/// The state, and the worst that is wrong beside it.
pub fn health(overview: &OverviewDocument, model: &ModelOverview) -> String {
    let key = Some(model.key());
    let mut own = overview.problems.iter().filter(|problem| problem.model == key);
    let worst = own.find(|it| !it.word.is_empty() && it.tone != ProblemTone::Note);
    let word = worst.map_or_else(String::new, |worst| format!(", {}", plain(&worst.word)));
    format!("{}{word}", model.state)
}

fn row(
    overview: &OverviewDocument,
    model: &ModelOverview,
    samples: &[OverviewSample],
) -> Vec<String> {
    let rates = RemoteRates::of(&model.key(), samples.iter());
    let marked = several(overview, model) && model.is_default;
    let default = if marked { " (default)" } else { "" };
    vec![
        format!("{}{default}", model.key()),
        health(overview, model),
        format!("{}/{}", model.workers_ready(), model.workers_min),
        number(rates.requests),
        number(rates.rejected),
        milliseconds(rates.p99_ms),
        format!("{}/{}", model.waiting, model.queue_max),
        model.totals.requests.to_string(),
        model.totals.failed.to_string(),
    ]
}

/// The samples of the last minute before the newest, which is the last.
pub fn recent(mut samples: Vec<OverviewSample>) -> Vec<OverviewSample> {
    let newest = samples.last().map_or(0, |sample| sample.time);
    samples.retain(|sample| sample.time + WINDOW_SECONDS * 1000 >= newest);
    samples
}
