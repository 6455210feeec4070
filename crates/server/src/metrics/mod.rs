//! Metrics: what is measured, for whom, and how it is told (a page for Prometheus, lines in a log).
//!
//! A [`Meter`] is a value that is passed in: the server and the engine record into it, the metrics
//! endpoint reads it. Recording on a request's way is a few atomic operations and, where metrics are
//! logged, one short entry; labels are never formatted there. It reads no file: the cli brings what
//! the machine and the configuration say.

mod declared;
mod family;
mod handlers;
mod journal;
mod line;
mod number;
mod observed;
mod own;
mod page;
mod render;
mod system;
mod written;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use jitney_engine::call::{OriginKind, Timing};
use jitney_engine::{Model, ModelTag};

pub use self::declared::{MetricDeclaration, MetricDeclarations, MetricKind};
pub use self::journal::MetricSinks;
pub use self::system::{GpuSample, SystemSample};

use self::family::MetricFamily;
use self::journal::{MetricEntry, MetricLog, MetricNames, MetricSubject};

/// The metrics that hold the time of a batch of a Python model.
const TIMED: [&str; 2] = ["HandlerTime", "PredictionTime"];

/// How TorchServe's metrics are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsMode {
    /// On the page; Jitney's own beside them.
    #[default]
    Prometheus,
    /// As lines; the page is empty.
    Log,
    /// The three `ts_…` ones and Jitney's own on the page, the others as lines.
    Legacy,
}

impl MetricsMode {
    /// TorchServe's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prometheus => "PROMETHEUS",
            Self::Log => "LOG",
            Self::Legacy => "LEGACY",
        }
    }
}

/// What a meter is made from.
pub struct MeterPlan {
    /// How TorchServe's metrics are told.
    pub mode: MetricsMode,
    /// Which there are.
    pub declared: MetricDeclarations,
    /// Whether metrics of handlers that are not declared are taken as they come.
    pub auto_detect: bool,
    /// The host's name in labels and lines.
    pub hostname: String,
    /// Where lines go, for the modes that have any.
    pub sinks: Option<MetricSinks>,
}

impl Default for MeterPlan {
    fn default() -> Self {
        Self {
            mode: MetricsMode::default(),
            declared: MetricDeclarations::default(),
            auto_detect: false,
            hostname: "localhost".to_owned(),
            sinks: None,
        }
    }
}

/// All that is measured, apart from what stands on the models themselves.
#[derive(Debug)]
pub struct Meter {
    mode: MetricsMode,
    hostname: String,
    auto_detect: bool,
    /// MetricDeclarations metrics of the server, in order; their places are how the journal names them.
    server: Vec<MetricFamily>,
    known: KnownMetrics,
    /// Metrics of handlers: the declared ones, then those that were detected.
    model: RwLock<Vec<Arc<MetricFamily>>>,
    /// Those among them that hold the time of a batch.
    timed: Vec<Arc<MetricFamily>>,
    answers: AnswerCounts,
    journal: Option<MetricLog>,
    /// Bytes of memory by process, as measured last.
    memory: Mutex<HashMap<u32, u64>>,
    /// The GPUs as they were seen last.
    gpus: Mutex<Vec<GpuSample>>,
}

/// Where the metrics recorded on a request's way stand, if they are declared.
#[derive(Debug)]
struct KnownMetrics {
    answers: [Option<usize>; 3],
    requests: Option<usize>,
    latency: Option<usize>,
    queue: Option<usize>,
    queue_time: Option<usize>,
    worker_thread_time: Option<usize>,
    worker_load_time: Option<usize>,
}

impl KnownMetrics {
    fn new(server: &[MetricFamily]) -> Self {
        let at = |name: &str| server.iter().position(|known| known.declaration.name == name);
        Self {
            answers: ["Requests2XX", "Requests4XX", "Requests5XX"].map(at),
            requests: at("ts_inference_requests_total"),
            latency: at("ts_inference_latency_microseconds"),
            queue: at("ts_queue_latency_microseconds"),
            queue_time: at("QueueTime"),
            worker_thread_time: at("WorkerThreadTime"),
            worker_load_time: at("WorkerLoadTime"),
        }
    }
}

/// AnswerCounts by class of status: good, the client's fault, anything else.
#[derive(Debug, Default)]
struct AnswerCounts([AtomicU64; 3]);

impl Default for Meter {
    fn default() -> Self {
        let plan = MeterPlan::default();
        Self::build(plan.mode, plan.declared, plan.auto_detect, plan.hostname, None)
    }
}

impl Meter {
    /// A meter as planned.
    ///
    /// # Errors
    /// The system has no thread for the log.
    pub fn new(plan: MeterPlan) -> std::io::Result<Self> {
        let MeterPlan { mode, declared, auto_detect, hostname, sinks } = plan;
        let names = MetricNames {
            server: declared.server.clone(),
            timed: declared.model.iter().filter(|metric| is_timed(metric)).cloned().collect(),
            host: hostname.clone(),
        };
        let sinks = sinks.filter(|_| mode != MetricsMode::Prometheus);
        let journal = sinks.map(|sinks| MetricLog::new(names, sinks)).transpose()?;
        Ok(Self::build(mode, declared, auto_detect, hostname, journal))
    }

    fn build(
        mode: MetricsMode,
        declared: MetricDeclarations,
        auto_detect: bool,
        hostname: String,
        journal: Option<MetricLog>,
    ) -> Self {
        let server: Vec<MetricFamily> =
            declared.server.into_iter().map(MetricFamily::new).collect();
        let model: Vec<_> =
            declared.model.into_iter().map(|metric| Arc::new(MetricFamily::new(metric))).collect();
        let timed = model.iter().filter(|family| is_timed(&family.declaration)).cloned().collect();
        Self {
            mode,
            hostname,
            auto_detect,
            known: KnownMetrics::new(&server),
            server,
            model: RwLock::new(model),
            timed,
            answers: AnswerCounts::default(),
            journal,
            memory: Mutex::default(),
            gpus: Mutex::default(),
        }
    }

    // -- server ------------------------------------------------------------------------------

    /// An answer went out.
    pub(crate) fn responded(&self, status: StatusCode) {
        let class = match status.as_u16() {
            200..=299 => 0,
            400..=499 => 1,
            _ => 2,
        };
        self.answers.0[class].fetch_add(1, Relaxed);
        self.log(self.known.answers[class], 1.0, || MetricSubject::Host);
    }

    /// A prediction was requested.
    pub(crate) fn requested(&self, model: &Model, version_named: bool) {
        model.traffic(version_named).asked();
        if self.mode == MetricsMode::Log {
            self.log(self.known.requests, 1.0, || subject(model, version_named));
        }
    }

    /// A prediction was answered. As in TorchServe, the sums of latencies leave out gRPC.
    pub(crate) fn answered(
        &self,
        model: &Model,
        version_named: bool,
        protocol: OriginKind,
        timing: &Timing,
    ) {
        let (queue, latency) = (timing.queue, timing.queue + timing.compute);
        let summed = protocol != OriginKind::Grpc;
        if summed {
            model.traffic(version_named).answered(queue, latency);
        }
        let Some(journal) = &self.journal else {
            return self.host(self.known.queue_time, millis(queue));
        };
        let of_model = |metric: Option<usize>, time| {
            let metric = metric.filter(|_| summed && self.mode == MetricsMode::Log)?;
            let subject = subject(model, version_named);
            Some(MetricEntry::Server { metric, value: micros(time), subject })
        };
        let of_host = self.known.queue_time.map(|metric| {
            let (value, subject) = (millis(queue), MetricSubject::Host);
            MetricEntry::Server { metric, value, subject }
        });
        let known = &self.known;
        let entries = [of_model(known.latency, latency), of_model(known.queue, queue), of_host];
        // One lock of the log for all three.
        journal.push_all(entries.into_iter().flatten());
    }

    /// Bytes of memory that a worker's process uses, as measured last.
    pub(crate) fn memory(&self, pid: u32) -> Option<u64> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied()
    }

    /// Writes what is still to be logged; nothing is logged any more.
    pub fn finish(&self) {
        self.journal.iter().for_each(MetricLog::finish);
    }

    // -- recording --------------------------------------------------------------------------

    /// Records a value of the host.
    fn host(&self, metric: Option<usize>, value: f64) {
        match (self.mode, metric) {
            (MetricsMode::Prometheus, Some(metric)) => self.server[metric].record_host(value),
            _ => self.log(metric, value, || MetricSubject::Host),
        }
    }

    fn log(&self, metric: Option<usize>, value: f64, subject: impl FnOnce() -> MetricSubject) {
        if let (Some(journal), Some(metric)) = (&self.journal, metric) {
            journal.push(MetricEntry::Server { metric, value, subject: subject() });
        }
    }
}

fn subject(model: &Model, version_named: bool) -> MetricSubject {
    MetricSubject::Model { model: Arc::clone(model.tag()), version_named }
}

/// TorchServe's name of a worker.
fn worker_name(model: &ModelTag, worker: u32) -> String {
    format!("W-{worker}-{}_{}", model.name, model.version)
}

/// Whether it holds the time of a batch; with other labels than usual, only handlers fill it.
fn is_timed(metric: &MetricDeclaration) -> bool {
    TIMED.contains(&metric.name.as_str()) && metric.dimensions == ["ModelName", "Level"]
}

fn micros(time: Duration) -> f64 {
    time.as_micros() as f64
}

fn millis(time: Duration) -> f64 {
    micros(time) / 1000.0
}

#[cfg(test)]
mod tests;
