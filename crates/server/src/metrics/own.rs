//! Jitney's own metrics: one table of names, and how each is read from a model version.
//!
//! Nothing is counted here: the numbers stand on the model and are read when the page is asked for.
//! `docs/metrics.md` says the same for people, and a test compares the two.

use std::sync::Arc;

use jitney_engine::model::main_group;
use jitney_engine::{Distribution, Measures, Model, Status};

use super::declared::MetricKind;
use super::page::MetricsPage;

/// A model version and what it looked like when the page was asked for.
pub(super) struct ModelSnapshot {
    pub(super) model: Arc<Model>,
    pub(super) status: Status,
    pub(super) measures: Measures,
}

/// How a metric is read.
enum Reading {
    Number(fn(&ModelSnapshot) -> u64),
    /// Several numbers, told apart by a label.
    Each(&'static str, fn(&ModelSnapshot) -> Vec<(&'static str, u64)>),
    /// Nanoseconds by a number, which is the label.
    Sized(&'static str, fn(&ModelSnapshot) -> Vec<(u64, u64)>),
    /// A distribution, and what its whole numbers are divided by.
    Spread(fn(&ModelSnapshot) -> &Distribution, f64),
}

use Reading::{Each, Number, Sized, Spread};

const MICROS: f64 = 1e6;
const NANOS: f64 = 1e9;

/// Sizes of the learned curve that the page shows, so that it stays a page.
const CURVE_POINTS_MAX: usize = 128;

/// The metrics: name, kind, help, reading.
const OWN: &[(&str, MetricKind, &str, Reading)] = &[
    (
        "jitney_requests_answered_total",
        MetricKind::Counter,
        "Requests that the model answered",
        Number(|snapshot| snapshot.status.counters.answered),
    ),
    (
        "jitney_requests_rejected_total",
        MetricKind::Counter,
        "Requests rejected before the model ran them",
        Number(|snapshot| snapshot.status.counters.rejected),
    ),
    (
        "jitney_requests_failed_total",
        MetricKind::Counter,
        "Requests on which the model or its worker failed",
        Number(|snapshot| snapshot.status.counters.failed),
    ),
    (
        "jitney_requests_cancelled_total",
        MetricKind::Counter,
        "Requests subject client went away",
        Number(|snapshot| snapshot.status.counters.abandoned),
    ),
    (
        "jitney_requests_retried_total",
        MetricKind::Counter,
        "Times that a request was run again after a failure",
        Number(|snapshot| snapshot.status.counters.retried),
    ),
    (
        "jitney_rejections_total",
        MetricKind::Counter,
        "Rejected requests by reason",
        Each("reason", |snapshot| snapshot.measures.rejections.to_vec()),
    ),
    (
        "jitney_batches_total",
        MetricKind::Counter,
        "Batches sent to a worker",
        Number(|snapshot| snapshot.status.counters.batches),
    ),
    (
        "jitney_items_total",
        MetricKind::Counter,
        "Items in batches sent to a worker",
        Number(|snapshot| snapshot.status.counters.items),
    ),
    (
        "jitney_dispatches_total",
        MetricKind::Counter,
        "Batches by the reason for sending them",
        Each("reason", |snapshot| snapshot.status.counters.dispatches.to_vec()),
    ),
    (
        "jitney_cost_real_total",
        MetricKind::Counter,
        "Cost of the items of batches before padding",
        Number(|snapshot| snapshot.status.counters.padding.real),
    ),
    (
        "jitney_cost_padded_total",
        MetricKind::Counter,
        "Cost of the items of batches after padding; 1 - real / padded is the share of padding",
        Number(|snapshot| snapshot.status.counters.padding.padded),
    ),
    (
        "jitney_waiting",
        MetricKind::Gauge,
        "Requests that are waiting now",
        Number(|snapshot| snapshot.status.waiting.into()),
    ),
    (
        "jitney_workers_ready",
        MetricKind::Gauge,
        "Workers that have loaded the model",
        Number(ready),
    ),
    (
        "jitney_workers_min",
        MetricKind::Gauge,
        "Fewest workers that the model should have",
        Number(|snapshot| snapshot.status.workers_min.into()),
    ),
    (
        "jitney_queue_seconds",
        MetricKind::Histogram,
        "Time that answered requests waited",
        Spread(|snapshot| &snapshot.measures.queue_us, MICROS),
    ),
    (
        "jitney_compute_seconds",
        MetricKind::Histogram,
        "Time that answered batches ran",
        Spread(|snapshot| &snapshot.measures.compute_us, MICROS),
    ),
    (
        "jitney_latency_seconds",
        MetricKind::Histogram,
        "Time from admission to answer of answered requests",
        Spread(|snapshot| &snapshot.measures.latency_us, MICROS),
    ),
    (
        "jitney_batch_items",
        MetricKind::Histogram,
        "Items per batch",
        Spread(|snapshot| &snapshot.measures.batch_items, 1.0),
    ),
    (
        "jitney_service_seconds",
        MetricKind::Gauge,
        "Learned time of a batch by its size",
        Sized("size", curve),
    ),
    (
        "jitney_prediction_ratio",
        MetricKind::Histogram,
        "Measured time of batches divided by the predicted time",
        Spread(|snapshot| &snapshot.measures.prediction_permille, 1000.0),
    ),
    (
        "jitney_batch_fill_ratio",
        MetricKind::Histogram,
        "Items per batch divided by the largest batch size",
        Spread(|snapshot| &snapshot.measures.fill_permille, 1000.0),
    ),
];

/// The curve of the bucket that most batches were seen of: size and mean in nanoseconds.
fn curve(snapshot: &ModelSnapshot) -> Vec<(u64, u64)> {
    let curve = snapshot.model.curve();
    let main = main_group(&curve);
    let points = curve.iter().filter(|point| Some(point.group) == main);
    points.map(|point| (point.size, point.mean)).take(CURVE_POINTS_MAX).collect()
}

fn ready(snapshot: &ModelSnapshot) -> u64 {
    snapshot.status.workers.iter().filter(|worker| worker.ready).count() as u64
}

/// Writes all of them for these model versions.
pub(super) fn write(page: &mut MetricsPage<'_>, snapshots: &[ModelSnapshot], host: &str) {
    for (name, kind, help, reading) in OWN {
        if page.begin(name, *kind, help) {
            snapshots.iter().for_each(|snapshot| reading.write(page, snapshot, host));
        }
    }
}

impl Reading {
    fn write(&self, page: &mut MetricsPage<'_>, snapshot: &ModelSnapshot, host: &str) {
        let (name, version) = (snapshot.model.name(), snapshot.model.version());
        let labels = [("model_name", name), ("model_version", version), ("hostname", host)];
        match self {
            Number(read) => page.sample(&labels, read(snapshot) as f64),
            Each(label, read) => {
                let [model, version, host] = labels;
                for (word, count) in read(snapshot) {
                    page.sample(&[model, version, (label, word), host], count as f64);
                }
            }
            Sized(label, read) => {
                let [model, version, host] = labels;
                for (size, nanos) in read(snapshot) {
                    let size = size.to_string();
                    page.sample(&[model, version, (label, &size), host], nanos as f64 / NANOS);
                }
            }
            Spread(read, scale) => {
                let Distribution { bounds, counts, sum } = read(snapshot);
                let bounds = bounds.iter().map(|bound| *bound as f64 / scale);
                page.histogram(&labels, bounds, counts, *sum as f64 / scale);
            }
        }
    }
}
