//! Everything that is known of one version of a model, as a text.

use jitney_telemetry::overview::{ModelOverview, WorkerOverview};

use super::words::{AlignedTable, bytes, counts, milliseconds, number, plain};

/// The text; `name` is how the model is typed.
pub fn render(model: &ModelOverview) -> String {
    let default = if model.is_default { ", the default version" } else { "" };
    let mut lines = vec![format!("{} version {}{default}", model.name, model.version)];
    let mut fact = |name: &str, text: String| {
        if !text.is_empty() {
            lines.push(format!("  {name:<12} {text}"));
        }
    };
    fact("kind", model.kind.clone());
    fact("state", state(model));
    fact("batching", batching(model));
    fact("requests", requests(model));
    fact("rejected", counts(&model.rejections));
    fact("batches", batches(model));
    fact(
        "queue",
        format!("{} of {} waiting, {} running", model.waiting, model.queue_max, model.running),
    );
    let share = model.share.map(|it| {
        format!("{:.4} % of the requests without a version", it * 100.0).replace(".0000", "")
    });
    fact("traffic", share.unwrap_or_default());
    fact("returned", model.returned.clone().unwrap_or_default());
    fact("capacity", model.capacity.clone().unwrap_or_default());
    fact("starts", starts(model));
    fact("last error", dated(model.last_error.as_deref(), model.last_error_time.as_deref()));
    fact("last exit", model.last_exit.clone().unwrap_or_default());
    lines.extend(workers(model));
    lines.extend(settings(model));
    lines.extend(curve(model));
    lines.join("\n")
}

fn state(model: &ModelOverview) -> String {
    let workers = format!("{} of {} workers", model.workers_ready(), model.workers_min);
    let most = if model.workers_max > model.workers_min {
        format!(", at most {}", model.workers_max)
    } else {
        String::new()
    };
    let told = model.state != "ready" && !model.state_text.is_empty();
    let text = if told { format!("; {}", plain(&model.state_text)) } else { String::new() };
    format!("{}, {workers}{most}{text}", model.state)
}

fn batching(model: &ModelOverview) -> String {
    let mut text = format!("{}, at most {} items", model.policy, model.max_batch_size);
    if let Some(latency) = model.max_latency_ms {
        text += &format!(", latency target {}", milliseconds(Some(latency)));
    }
    if let Some(delay) = model.max_batch_delay_ms {
        text += &format!(", window {}", milliseconds(Some(delay)));
    }
    text
}

fn requests(model: &ModelOverview) -> String {
    let totals = &model.totals;
    format!(
        "{}: {} answered ({} late), {} rejected, {} failed, {} cancelled",
        totals.requests,
        totals.answered,
        totals.late,
        totals.rejected,
        totals.failed,
        totals.cancelled
    )
}

fn batches(model: &ModelOverview) -> String {
    let totals = &model.totals;
    if totals.batches == 0 {
        return "none yet".to_owned();
    }
    let mean = number(totals.items as f64 / totals.batches as f64);
    let reasons = counts(&model.dispatches);
    format!(
        "{} with {mean} items on average, {} failed; {reasons}",
        totals.batches, totals.failed_batches
    )
}

fn starts(model: &ModelOverview) -> String {
    let mut text = format!("{} restarts, {} failed loads", model.restarts, model.load_failures);
    if let Some(seconds) = model.load_seconds {
        text += &format!(", the last load took {} s", number(seconds));
    }
    let exits = counts(&model.exits);
    if exits.is_empty() { text } else { format!("{text}; exits: {exits}") }
}

fn dated(text: Option<&str>, time: Option<&str>) -> String {
    let text = text.unwrap_or_default().trim().replace('\n', "\n               ");
    match time {
        Some(time) if !text.is_empty() => format!("{text} ({time})"),
        _ => text,
    }
}

fn workers(model: &ModelOverview) -> Vec<String> {
    if model.workers.is_empty() {
        return Vec::new();
    }
    let titles = ["WORKER", "PID", "STATE", "MEMORY", "CPU", "GPU", "RESTARTS", "STARTED"];
    let mut table = AlignedTable::new(&titles, &[0, 2, 7]);
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for worker in &model.workers {
        let progress = worker.progress.as_ref().map(|progress| format!(" ({progress})"));
        table.row(vec![
            worker.id.to_string(),
            shown(worker.pid.map(|pid| pid.to_string())),
            format!("{}{}", worker.state, progress.unwrap_or_default()),
            shown(worker.memory_bytes.map(|memory| bytes(memory as f64))),
            shown(worker.cpu_percent.map(|percent| format!("{percent:.0}%{}", kept_to(worker)))),
            shown(worker.gpu.map(|gpu| gpu.to_string())),
            worker.restarts.to_string(),
            worker.started_at.clone(),
        ]);
    }
    block("workers", table)
}

/// The processors that a worker is kept to, behind how much it uses.
fn kept_to(worker: &WorkerOverview) -> String {
    worker.cpus.as_ref().map(|cpus| format!(" of {cpus}")).unwrap_or_default()
}

fn settings(model: &ModelOverview) -> Vec<String> {
    if model.live_settings.is_empty() {
        return Vec::new();
    }
    let mut table = AlignedTable::new(&["SETTING", "VALUE", "WHAT IT DOES"], &[0, 1, 2]);
    for setting in &model.live_settings {
        let value = if setting.value.is_empty() { "-" } else { &setting.value };
        table.row(vec![setting.name.clone(), value.to_owned(), setting.about.clone()]);
    }
    block(&format!("settings, changed by `jitney set {} NAME=VALUE`", model.key()), table)
}

fn curve(model: &ModelOverview) -> Vec<String> {
    if model.curve.is_empty() {
        return Vec::new();
    }
    let mut table = AlignedTable::new(&["ITEMS", "USUALLY", "PLANNED", "MEASURED"], &[]);
    for point in &model.curve {
        table.row(vec![
            point.size.to_string(),
            milliseconds(Some(point.ms)),
            milliseconds(Some(point.planned_ms)),
            format!("{} times", point.samples),
        ]);
    }
    block("time of a batch by its size", table)
}

fn block(title: &str, table: AlignedTable) -> Vec<String> {
    let rows = table.render().into_iter().map(|row| format!("    {row}"));
    [format!("  {title}")].into_iter().chain(rows).collect()
}
