//! Jitney's own metrics: one table of names, and how each is read from a model version.
//!
//! Nothing is counted here: the numbers stand on the model and are read when the page is asked for.
//! `docs/metrics.md` says the same for people, and a test compares the two.

use std::sync::Arc;

use jitney_engine::model::main_group;
use jitney_engine::{Distribution, Measures, Model, Status};

use super::declared::Kind;
use super::page::Page;

/// A model version and what it looked like when the page was asked for.
pub(super) struct Look {
    pub(super) model: Arc<Model>,
    pub(super) status: Status,
    pub(super) measures: Measures,
}

/// How a metric is read.
enum Reading {
    Number(fn(&Look) -> u64),
    /// Several numbers, told apart by a label.
    Each(&'static str, fn(&Look) -> Vec<(&'static str, u64)>),
    /// Nanoseconds by a number, which is the label.
    Sized(&'static str, fn(&Look) -> Vec<(u64, u64)>),
    /// A distribution, and what its whole numbers are divided by.
    Spread(fn(&Look) -> &Distribution, f64),
}

use Reading::{Each, Number, Sized, Spread};

const MICROS: f64 = 1e6;
const NANOS: f64 = 1e9;

/// Sizes of the learned curve that the page shows, so that it stays a page.
const CURVE_POINTS_MAX: usize = 128;

/// The metrics: name, kind, help, reading.
const OWN: &[(&str, Kind, &str, Reading)] = &[
    (
        "jitney_requests_answered_total",
        Kind::Counter,
        "Requests that the model answered",
        Number(|look| look.status.counters.answered),
    ),
    (
        "jitney_requests_refused_total",
        Kind::Counter,
        "Requests refused before the model saw them",
        Number(|look| look.status.counters.rejected),
    ),
    (
        "jitney_requests_failed_total",
        Kind::Counter,
        "Requests on which the model or its worker failed",
        Number(|look| look.status.counters.failed),
    ),
    (
        "jitney_requests_abandoned_total",
        Kind::Counter,
        "Requests whose client went away",
        Number(|look| look.status.counters.abandoned),
    ),
    (
        "jitney_requests_retried_total",
        Kind::Counter,
        "Times that a request rode again after a failure",
        Number(|look| look.status.counters.retried),
    ),
    (
        "jitney_refusals_total",
        Kind::Counter,
        "Refused requests by reason",
        Each("reason", |look| look.measures.rejections.to_vec()),
    ),
    (
        "jitney_batches_total",
        Kind::Counter,
        "Batches that departed",
        Number(|look| look.status.counters.batches),
    ),
    (
        "jitney_items_total",
        Kind::Counter,
        "Items in departed batches",
        Number(|look| look.status.counters.items),
    ),
    (
        "jitney_departures_total",
        Kind::Counter,
        "Departed batches by reason",
        Each("reason", |look| look.status.counters.dispatches.to_vec()),
    ),
    (
        "jitney_cost_real_total",
        Kind::Counter,
        "What the items of departed batches cost as they came, where they are padded",
        Number(|look| look.status.counters.padding.real),
    ),
    (
        "jitney_cost_padded_total",
        Kind::Counter,
        "What they cost as they were run; 1 - real / padded is wasted",
        Number(|look| look.status.counters.padding.padded),
    ),
    (
        "jitney_waiting",
        Kind::Gauge,
        "Requests that wait now",
        Number(|look| look.status.waiting.into()),
    ),
    ("jitney_workers_ready", Kind::Gauge, "Workers that have loaded the model", Number(ready)),
    (
        "jitney_workers_wanted",
        Kind::Gauge,
        "Workers that there should be at least",
        Number(|look| look.status.workers_min.into()),
    ),
    (
        "jitney_queue_seconds",
        Kind::Histogram,
        "Time that answered requests waited",
        Spread(|look| &look.measures.queue_us, MICROS),
    ),
    (
        "jitney_compute_seconds",
        Kind::Histogram,
        "Time that answered batches ran",
        Spread(|look| &look.measures.compute_us, MICROS),
    ),
    (
        "jitney_latency_seconds",
        Kind::Histogram,
        "Time from admission to answer of answered requests",
        Spread(|look| &look.measures.latency_us, MICROS),
    ),
    (
        "jitney_batch_items",
        Kind::Histogram,
        "Items of departed batches",
        Spread(|look| &look.measures.batch_items, 1.0),
    ),
    (
        "jitney_service_seconds",
        Kind::Gauge,
        "Learned time of a batch by its size",
        Sized("size", curve),
    ),
    (
        "jitney_prediction_ratio",
        Kind::Histogram,
        "Time that batches took as a share of what was predicted",
        Spread(|look| &look.measures.prediction_permille, 1000.0),
    ),
    (
        "jitney_batch_fill_ratio",
        Kind::Histogram,
        "Items of departed batches as a share of the most there may be",
        Spread(|look| &look.measures.fill_permille, 1000.0),
    ),
];

/// The curve of the bucket that most batches were seen of: size and mean in nanoseconds.
fn curve(look: &Look) -> Vec<(u64, u64)> {
    let curve = look.model.curve();
    let main = main_group(&curve);
    let points = curve.iter().filter(|point| Some(point.group) == main);
    points.map(|point| (point.size, point.mean)).take(CURVE_POINTS_MAX).collect()
}

fn ready(look: &Look) -> u64 {
    look.status.workers.iter().filter(|worker| worker.ready).count() as u64
}

/// Writes all of them for these model versions.
pub(super) fn write(page: &mut Page<'_>, looks: &[Look], host: &str) {
    for (name, kind, help, reading) in OWN {
        if page.begin(name, *kind, help) {
            looks.iter().for_each(|look| reading.write(page, look, host));
        }
    }
}

impl Reading {
    fn write(&self, page: &mut Page<'_>, look: &Look, host: &str) {
        let (name, version) = (look.model.name(), look.model.version());
        let labels = [("model_name", name), ("model_version", version), ("hostname", host)];
        match self {
            Number(read) => page.sample(&labels, read(look) as f64),
            Each(label, read) => {
                let [model, version, host] = labels;
                for (word, count) in read(look) {
                    page.sample(&[model, version, (label, word), host], count as f64);
                }
            }
            Sized(label, read) => {
                let [model, version, host] = labels;
                for (size, nanos) in read(look) {
                    let size = size.to_string();
                    page.sample(&[model, version, (label, &size), host], nanos as f64 / NANOS);
                }
            }
            Spread(read, scale) => {
                let Distribution { bounds, counts, sum } = read(look);
                let bounds = bounds.iter().map(|bound| *bound as f64 / scale);
                page.histogram(&labels, bounds, counts, *sum as f64 / scale);
            }
        }
    }
}
