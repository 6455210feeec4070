//! Jitney's own metrics of models: one table of names, and how each is read from a model version.
//!
//! Nothing is counted here: the model counts, and the numbers are read when the page is requested.
//! `docs/reference/metrics.md` lists the same metrics; a test compares the two.

use std::sync::Arc;

use jitney_engine::answer_cache::AnswerCache;
use jitney_engine::model::main_group;
use jitney_engine::{Distribution, EndpointMeasures, Measures, Model, Status, WorkerView};

use super::family::MetricKind;
use super::page::{HistogramCounts, MetricsPage};
use super::process::ProcessUsage;

/// A model version and what it looked like when the page was requested.
pub(super) struct ModelSnapshot {
    pub(super) model: Arc<Model>,
    pub(super) status: Status,
    pub(super) measures: Measures,
    /// The same by endpoint, of definitions with several.
    pub(super) endpoints: Vec<EndpointMeasures>,
    /// What its workers use, in the order of the status; none of what is not a process.
    pub(super) usage: Vec<Option<ProcessUsage>>,
}

/// How a metric is read.
enum Reading {
    Number(fn(&ModelSnapshot) -> u64),
    /// Several numbers, each with its own label.
    Each(&'static str, fn(&ModelSnapshot) -> Vec<(&'static str, u64)>),
    /// Nanoseconds by a number, which is the label.
    Sized(&'static str, fn(&ModelSnapshot) -> Vec<(u64, u64)>),
    /// A distribution, and what its whole numbers are divided by.
    Spread(fn(&ModelSnapshot) -> &Distribution, f64),
    /// The same, of models whose workers have measured it.
    Measured(fn(&ModelSnapshot) -> &Distribution, f64),
    /// Millionths, such as microseconds, of models of which they are known.
    Millionths(fn(&ModelSnapshot) -> Option<u64>),
    /// A number of each endpoint, of definitions with several.
    PerEndpoint(fn(&EndpointMeasures) -> u64),
    /// A distribution of each, and what its whole numbers are divided by.
    EndpointSpread(fn(&EndpointMeasures) -> &Distribution, f64),
    /// A number of each worker of which it is known.
    PerWorker(fn(&WorkerView) -> Option<f64>),
    /// A number of each worker that is a process.
    PerProcess(fn(&ProcessUsage) -> f64),
}

use MetricKind::{Counter, Gauge, Histogram};
use Reading::{
    Each, EndpointSpread, Measured, Millionths, Number, PerEndpoint, PerProcess, PerWorker, Sized,
    Spread,
};

const MICROS: f64 = 1e6;
const NANOS: f64 = 1e9;

/// Sizes of the learned curve that the page shows, to bound its length.
const CURVE_POINTS_MAX: usize = 128;

/// The metrics: name, kind, help, reading.
#[rustfmt::skip]
const OWN: &[(&str, MetricKind, &str, Reading)] = &[
    ("jitney_requests_total", Counter, "Requests for the model; each ends as answered, rejected, failed or cancelled",
        Number(|it| it.status.counters.requests)),
    ("jitney_requests_answered_total", Counter, "Requests that the model answered",
        Number(|it| it.status.counters.answered)),
    ("jitney_requests_rejected_total", Counter, "Requests rejected before the model ran them",
        Number(|it| it.status.counters.rejected)),
    ("jitney_requests_failed_total", Counter, "Requests on which the model or its worker failed",
        Number(|it| it.status.counters.failed)),
    ("jitney_requests_cancelled_total", Counter, "Requests whose client went away",
        Number(|it| it.status.counters.abandoned)),
    ("jitney_requests_retried_total", Counter, "Times that a request was run again after a failure",
        Number(|it| it.status.counters.retried)),
    ("jitney_requests_late_total", Counter, "Answered requests whose answer came after their objective or deadline",
        Number(|it| it.status.counters.late)),
    ("jitney_traffic_share", Gauge, "Share of the requests without a version that goes to this one, where versions share them",
        Millionths(|it| it.model.share().map(u64::from))),
    ("jitney_traffic_returns_total", Counter, "Times that the version's share was taken away because it was worse than the default version",
        Number(|it| it.model.returns())),
    ("jitney_shadow_copies_total", Counter, "Copies of requests that the version got as a shadow, by whether its answer was the same, different, failed, could not be compared, or the copy was dropped",
        Each("outcome", |it| it.model.shadow_counts().to_vec())),
    ("jitney_cache_total", Counter, "Answers of a model with a cache, by whether they were there (hit), came by the run of an equal request (shared) or by one of their own (miss)",
        Each("outcome", |it| AnswerCache::counts(it.model.cache()).to_vec())),
    ("jitney_cache_bytes", Gauge, "Bytes of the answers that the model's cache keeps",
        Number(|it| it.model.cache().map_or(0, |cache| cache.bytes()))),
    ("jitney_cache_waiting", Gauge, "Requests that wait for the run of an equal one now",
        Number(|it| it.model.cache().map_or(0, |cache| cache.waiting()))),
    ("jitney_rejections_total", Counter, "Rejected requests by reason",
        Each("reason", |it| it.measures.rejections.to_vec())),
    ("jitney_batches_total", Counter, "Batches sent to a worker",
        Number(|it| it.measures.batches.batches)),
    ("jitney_items_total", Counter, "Items in batches sent to a worker",
        Number(|it| it.measures.batches.items)),
    ("jitney_dispatches_total", Counter, "Batches by the reason for sending them",
        Each("reason", |it| it.measures.batches.dispatches().to_vec())),
    ("jitney_batches_failed_total", Counter, "Batches on which the model or its worker failed",
        Number(|it| it.measures.batches.failed_batches)),
    ("jitney_cost_real_total", Counter, "Cost of the items of batches before padding",
        Number(|it| it.measures.batches.padding.real)),
    ("jitney_cost_padded_total", Counter, "Cost of the items of batches after padding; 1 - real / padded is the share of padding",
        Number(|it| it.measures.batches.padding.padded)),
    ("jitney_waiting", Gauge, "Requests that are waiting now",
        Number(|it| it.status.waiting.into())),
    ("jitney_queue_max", Gauge, "Requests that may wait",
        Number(|it| it.status.queue_max.into())),
    ("jitney_objective_seconds", Gauge, "Latency that the model should keep (max_latency_ms), of models that have one",
        Millionths(objective)),
    ("jitney_model_ready", Gauge, "Whether the model can serve: 1 or 0",
        Number(|it| it.model.readiness().is_ready().into())),
    ("jitney_workers_ready", Gauge, "Workers that have loaded the model",
        Number(ready)),
    ("jitney_workers_min", Gauge, "Fewest workers that the model should have",
        Number(|it| it.status.workers_min.into())),
    ("jitney_wanted_workers", Gauge, "Workers that the model should have now: what the load needs where their number follows it, else as many as were asked for",
        Number(wanted)),
    ("jitney_worker_exits_total", Counter, "Exits of workers that had loaded, by kind",
        Each("kind", |it| it.status.incidents.exits.to_vec())),
    ("jitney_worker_restarts_total", Counter, "Times that a worker was started again",
        Number(|it| it.status.incidents.restarts)),
    ("jitney_load_failures_total", Counter, "Times that a worker could not load the model",
        Number(|it| it.status.incidents.load_failures)),
    ("jitney_load_seconds", Histogram, "Time that workers took to load the model",
        Spread(|it| &it.measures.load_us, MICROS)),
    ("jitney_leaves_total", Counter, "Times that the model left memory for other models",
        Number(|it| it.status.counters.left)),
    ("jitney_load_last_seconds", Gauge, "The same of the last worker that loaded it",
        Millionths(|it| it.measures.load_last_us)),
    ("jitney_worker_memory_bytes", Gauge, "Resident memory of a worker's process",
        PerProcess(|usage| usage.memory as f64)),
    ("jitney_worker_cpu_seconds_total", Counter, "Processor time of a worker's process",
        PerProcess(|usage| usage.cpu.as_secs_f64())),
    ("jitney_queue_seconds", Histogram, "Time that answered requests waited",
        Spread(|it| &it.measures.queue_us, MICROS)),
    ("jitney_compute_seconds", Histogram, "Time that answered batches ran",
        Spread(|it| &it.measures.compute_us, MICROS)),
    ("jitney_prepare_seconds", Histogram, "Time that batches took to be prepared, where workers measure it",
        Measured(|it| &it.measures.prepare_us, MICROS)),
    ("jitney_model_seconds", Histogram, "Time that batches were in the model, where workers measure it",
        Measured(|it| &it.measures.model_us, MICROS)),
    ("jitney_gpu_busy_seconds_total", Counter, "Time in which batches were in the model on a GPU",
        Millionths(gpu_busy)),
    ("jitney_gpu_memory_bytes", Gauge, "Memory that a worker holds on its GPU",
        PerWorker(|worker| Some(worker.gpu_memory? as f64))),
    ("jitney_graphs", Gauge, "Graphs that a worker captured",
        PerWorker(|worker| Some(worker.graphs?.count.into()))),
    ("jitney_graph_memory_bytes", Gauge, "Memory that the captured graphs of a worker hold",
        PerWorker(|worker| Some(worker.graphs?.bytes as f64))),
    ("jitney_collector_runs_total", Counter, "Runs of Python's garbage collector in a worker",
        PerWorker(|worker| Some(worker.pauses?.runs as f64))),
    ("jitney_collector_seconds_total", Counter, "Time for which these runs have paused a worker",
        PerWorker(|worker| Some(worker.pauses?.total.as_secs_f64()))),
    ("jitney_collector_longest_seconds", Gauge, "The longest of these pauses since the worker was started",
        PerWorker(|worker| Some(worker.pauses?.longest.as_secs_f64()))),
    ("jitney_latency_seconds", Histogram, "Time from admission to answer of answered requests",
        Spread(|it| &it.measures.latency_us, MICROS)),
    ("jitney_batch_items", Histogram, "Items per batch",
        Spread(|it| &it.measures.batch_items, 1.0)),
    ("jitney_service_seconds", Gauge, "Learned time of a batch by its size",
        Sized("size", curve)),
    ("jitney_prediction_ratio", Histogram, "Measured time of batches divided by the predicted time",
        Spread(|it| &it.measures.prediction_permille, 1000.0)),
    ("jitney_batch_fill_ratio", Histogram, "Items per batch divided by the largest batch size",
        Spread(|it| &it.measures.fill_permille, 1000.0)),
    ("jitney_endpoint_requests_total", Counter, "Requests for an endpoint, of definitions with several",
        PerEndpoint(|it| it.requests)),
    ("jitney_endpoint_answered_total", Counter, "Requests for an endpoint that were answered",
        PerEndpoint(|it| it.answered)),
    ("jitney_endpoint_late_total", Counter, "Answers of an endpoint that came after their objective or deadline",
        PerEndpoint(|it| it.late)),
    ("jitney_endpoint_latency_seconds", Histogram, "Time from admission to answer, by endpoint",
        EndpointSpread(|it| &it.latency_us, MICROS)),
    ("jitney_endpoint_queue_seconds", Histogram, "Time that answered requests waited, by endpoint",
        EndpointSpread(|it| &it.queue_us, MICROS)),
    ("jitney_endpoint_compute_seconds", Histogram, "Time that answered batches ran, by endpoint",
        EndpointSpread(|it| &it.compute_us, MICROS)),
    ("jitney_endpoint_batch_items", Histogram, "Items per batch, by endpoint",
        EndpointSpread(|it| &it.batch_items, 1.0)),
];

/// The learned curve of the group with the most batches: size and mean in nanoseconds.
fn curve(snapshot: &ModelSnapshot) -> Vec<(u64, u64)> {
    let curve = snapshot.model.curve();
    let main = main_group(&curve);
    let points = curve.iter().filter(|point| Some(point.group) == main);
    points.map(|point| (point.size, point.mean)).take(CURVE_POINTS_MAX).collect()
}

/// Microseconds that batches were in the model, for a model that has a GPU.
fn gpu_busy(snapshot: &ModelSnapshot) -> Option<u64> {
    let on_gpu = snapshot.status.workers.iter().any(|worker| worker.gpu.is_some());
    on_gpu.then_some(snapshot.measures.model_us.sum)
}

/// The latency target in microseconds.
fn objective(snapshot: &ModelSnapshot) -> Option<u64> {
    snapshot.model.settings().latency_max.map(|latency| latency.as_micros() as u64)
}

fn wanted(snapshot: &ModelSnapshot) -> u64 {
    let Status { capacity, workers_min, .. } = &snapshot.status;
    capacity.map_or(*workers_min, |it| it.wanted.workers).into()
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
                for (value, count) in read(snapshot) {
                    page.sample(&[model, version, (label, value), host], count as f64);
                }
            }
            Sized(label, read) => {
                let [model, version, host] = labels;
                for (size, nanos) in read(snapshot) {
                    let size = size.to_string();
                    page.sample(&[model, version, (label, &size), host], nanos as f64 / NANOS);
                }
            }
            Spread(read, scale) => spread(page, &labels, read(snapshot), *scale),
            Measured(read, scale) => {
                let measured = read(snapshot);
                if measured.count() > 0 {
                    spread(page, &labels, measured, *scale);
                }
            }
            Millionths(read) => {
                if let Some(micros) = read(snapshot) {
                    page.sample(&labels, micros as f64 / MICROS);
                }
            }
            PerEndpoint(read) => {
                let [model, version, host] = labels;
                for endpoint in &snapshot.endpoints {
                    let labels = [model, version, ("endpoint", &endpoint.name), host];
                    page.sample(&labels, read(endpoint) as f64);
                }
            }
            EndpointSpread(read, scale) => {
                let [model, version, host] = labels;
                for endpoint in &snapshot.endpoints {
                    let labels = [model, version, ("endpoint", &endpoint.name), host];
                    spread(page, &labels, read(endpoint), *scale);
                }
            }
            PerWorker(read) => {
                let [model, version, host] = labels;
                for worker in &snapshot.status.workers {
                    let Some(value) = read(worker) else { continue };
                    let gpu = worker.gpu.map(|gpu| gpu.to_string()).unwrap_or_default();
                    let (id, gpu) = (worker.id.to_string(), gpu.as_str());
                    let labels = [model, version, ("worker", &id), ("gpu", gpu), host];
                    page.sample(&labels, value);
                }
            }
            PerProcess(read) => {
                let [model, version, host] = labels;
                for (worker, usage) in snapshot.status.workers.iter().zip(&snapshot.usage) {
                    let Some(usage) = usage else { continue };
                    let id = worker.id.to_string();
                    page.sample(&[model, version, ("worker", &id), host], read(usage));
                }
            }
        }
    }
}

fn spread(
    page: &mut MetricsPage<'_>,
    labels: &[(&str, &str)],
    distribution: &Distribution,
    scale: f64,
) {
    let Distribution { bounds, counts, sum, fine } = distribution;
    let bounds = bounds.iter().map(|bound| *bound as f64 / scale);
    let sum = *sum as f64 / scale;
    page.histogram(labels, bounds, HistogramCounts { buckets: counts, sum, fine: fine.as_ref() });
}
