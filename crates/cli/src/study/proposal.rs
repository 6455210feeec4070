//! What `jitney plan` writes into files: the proposal as configuration, and a report as one HTML page that needs
//! nothing else.

use std::fmt::Write as _;

use jitney_sim::chart::{Chart, Series};
use jitney_sim::plan::{CapacityPlan, CapacityQuestion, Trial};

use super::measurement::MeasuredStep;

/// Points of the predicted lines, and the share of the smooth limit at which they end.
const POINTS: u32 = 10;
const SHARE_MAX: f64 = 0.95;

/// The settings as `jitney.yaml` has them.
pub fn configuration(question: &CapacityQuestion, plan: &CapacityPlan) -> String {
    let Trial { workers, max_batch, .. } = plan.chosen;
    let CapacityQuestion { rate, objective, .. } = question;
    format!(
        "# Proposed by `jitney plan` for {rate:.0} requests/s.\nworkers: {workers}\nbatching:\n  \
         max_batch_size: {max_batch}\n  max_latency_ms: {objective}\n"
    )
}

/// The page: the answer, the curve, and the latencies that are predicted beside those that were measured.
pub fn page(
    text: &str,
    question: &CapacityQuestion,
    plan: &CapacityPlan,
    measured: &[MeasuredStep],
) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Plan</title>\n\
         <style>body{{font-family:system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}}\
         pre{{white-space:pre-wrap}}td,th{{padding:.2rem .8rem;text-align:right}}</style>\n\
         <h1>Plan</h1>\n<pre>{}</pre>\n{}{}",
        escape(text),
        curve(question).svg(),
        latencies(question, plan, measured).svg()
    );
    if !measured.is_empty() {
        page.push_str(
            "<h2>Measured now</h2>\n<p>The server as it runs, before the proposal.</p>\n<table>\n",
        );
        page.push_str("<tr><th>clients<th>answers/s<th>p50 ms<th>p99 ms\n");
        for MeasuredStep { clients, rate, p50, p99 } in measured {
            let _ = writeln!(page, "<tr><td>{clients}<td>{rate:.0}<td>{p50:.1}<td>{p99:.1}");
        }
        page.push_str("</table>\n");
    }
    let _ = writeln!(
        page,
        "<h2>As configuration</h2>\n<pre>{}</pre>",
        escape(&configuration(question, plan))
    );
    page
}

fn curve(question: &CapacityQuestion) -> Chart {
    let curve = question.curve.curve(question.max_batch);
    let points = (1..=curve.max()).map(|size| (size as f64, curve.time(size) as f64 / 1e6));
    let series =
        vec![Series { name: "one batch".to_owned(), points: points.collect(), strong: true }];
    chart("How long a batch takes", "items in the batch", "milliseconds", series)
}

fn latencies(question: &CapacityQuestion, plan: &CapacityPlan, measured: &[MeasuredStep]) -> Chart {
    let most = plan.chosen.limit * SHARE_MAX;
    let rates = (1..=POINTS).map(|point| most * f64::from(point) / f64::from(POINTS));
    let played: Vec<(f64, Trial)> =
        rates.map(|rate| (rate, question.at(rate, plan.chosen))).collect();
    let line = |name: &str, points: Vec<(f64, f64)>, strong| Series {
        name: name.to_owned(),
        points,
        strong,
    };
    let mut series = vec![
        line("p99, predicted", played.iter().map(|(rate, it)| (*rate, it.p99)).collect(), true),
        line("p50, predicted", played.iter().map(|(rate, it)| (*rate, it.p50)).collect(), false),
    ];
    if !measured.is_empty() {
        let mut steps = measured.to_vec();
        steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        let points =
            |of: fn(&MeasuredStep) -> f64| steps.iter().map(|it| (it.rate, of(it))).collect();
        series.push(line("p99, measured now", points(|it| it.p99), false));
        series.push(line("p50, measured now", points(|it| it.p50), false));
    }
    chart("Latency, by load", "requests per second", "milliseconds", series)
}

fn chart(title: &str, x: &str, y: &str, series: Vec<Series>) -> Chart {
    Chart { title: title.to_owned(), x: x.to_owned(), y: y.to_owned(), series, top: None }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
