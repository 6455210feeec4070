//! The results in words and figures.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use jitney_load::{LiveFigures, LoadReport, PhaseReport};
use jitney_sim::TextTable;

use crate::flags::bench::BenchFlags;

/// The line that is shown while the load runs.
pub fn live(figures: LiveFigures) -> String {
    let LiveFigures { seconds, answered, rejected, failed, p50_ms, p99_ms } = figures;
    let mut text =
        format!("{seconds} s  {answered}/s  p50 {} ms  p99 {} ms", ms(p50_ms), ms(p99_ms));
    if rejected > 0 {
        let _ = write!(text, "  {rejected} rejected");
    }
    if failed > 0 {
        let _ = write!(text, "  {failed} failed");
    }
    text
}

/// The summary at the end.
pub fn text(report: &LoadReport, flags: &BenchFlags) -> String {
    let total = &report.total;
    let loop_ = match total.rate {
        _ if report.mode == "closed" => "closed loop".to_owned(),
        Some(rate) => format!("open loop, {rate:.0} requests/s"),
        None => format!("open loop, {} steps", report.phases.len()),
    };
    let mut text = format!("{}: {}, {loop_}, {:.1} s\n", flags.url, report.protocol, total.seconds);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<12}{value}");
    };
    row(
        "answered",
        format!("{} of {}, {:.1}/s", total.answered, total.offered, total.answered_per_s),
    );
    if let Some(objective) = report.objective_ms {
        let share = 100.0 * total.good as f64 / total.offered.max(1) as f64;
        row(
            "good",
            format!(
                "{} within {} ms, {:.1}/s ({share:.1} %)",
                total.good,
                ms(objective),
                total.good_per_s
            ),
        );
    }
    if total.answered > 0 {
        row("latency ms", latencies(total));
    }
    if total.rejected > 0 {
        let median = ms(total.rejection_p50_ms);
        row(
            "rejected",
            format!(
                "{}, p50 {median} ms, {} with a reason and Retry-After",
                total.rejected, total.explained
            ),
        );
    }
    if !total.reasons.is_empty() {
        row("reasons", listed(&total.reasons));
    }
    if total.answered < total.offered {
        row("statuses", listed(&total.statuses));
    }
    if !total.errors.is_empty() {
        row("errors", listed(&total.errors));
    }
    row("connections", format!("{} opened", report.connections_opened));
    let own = &report.generator;
    row(
        "generator",
        format!(
            "{:.1} µs of CPU per request, busy {:.0} %, requests sent {} ms late (p99)",
            own.cpu_us_per_request,
            own.busy * 100.0,
            ms(own.lag_p99_ms)
        ),
    );
    if report.phases.len() > 1 {
        let _ = write!(text, "\n{}", steps(&report.phases));
    }
    text.truncate(text.trim_end().len());
    text
}

fn latencies(total: &PhaseReport) -> String {
    let mut text = format!("mean {}", ms(total.answer_mean_ms));
    for percentile in &total.percentiles {
        let _ = match percentile.percent {
            100.0 => write!(text, "  max {}", ms(percentile.ms)),
            percent if percent < 50.0 => Ok(()),
            percent => write!(text, "  p{percent} {}", ms(percentile.ms)),
        };
    }
    text
}

fn listed<K: Display>(counts: &BTreeMap<K, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{name}: {count}")).collect();
    each.join(", ")
}

fn steps(phases: &[PhaseReport]) -> TextTable {
    let header =
        ["s", "answered/s", "good/s", "p50 ms", "p99 ms", "rejected", "lost", "last bad s"];
    let mut table = TextTable::new("Steps", header.map(str::to_owned));
    for phase in phases {
        table.row(
            format!("{:.0}/s", phase.rate.unwrap_or(0.0)),
            [
                format!("{:.1}", phase.seconds),
                format!("{:.0}", phase.answered_per_s),
                format!("{:.0}", phase.good_per_s),
                ms(phase.answer_p50_ms),
                ms(phase.answer_p99_ms),
                phase.rejected.to_string(),
                phase.lost.to_string(),
                format!("{:.2}", phase.last_bad_s),
            ],
        );
    }
    table
}

/// Three figures are enough.
fn ms(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}
