//! Metrics: what is measured, for whom, and how it is told (a page for Prometheus, lines in a log).
//!
//! A [`Meter`] is a value that is passed in: the doors and the engine record into it, the metrics
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
use jitney_engine::{Model, ModelTag};

pub use self::declared::{Declaration, Declared, Kind};
pub use self::journal::Sinks;
pub use self::system::{GpuSample, SystemSample};

use self::family::Family;
use self::journal::{Entry, Journal, Names, Whose};

/// The metrics that hold the time of a batch of a Python model.
const TIMED: [&str; 2] = ["HandlerTime", "PredictionTime"];

/// How TorchServe's metrics are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// On the page; Jitney's own beside them.
    #[default]
    Prometheus,
    /// As lines; the page is empty.
    Log,
    /// The three `ts_…` ones and Jitney's own on the page, the others as lines.
    Legacy,
}

impl Mode {
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
    pub mode: Mode,
    /// Which there are.
    pub declared: Declared,
    /// Whether metrics of handlers that are not declared are taken as they come.
    pub auto_detect: bool,
    /// The host's name in labels and lines.
    pub hostname: String,
    /// Where lines go, for the modes that have any.
    pub sinks: Option<Sinks>,
}

impl Default for MeterPlan {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            declared: Declared::default(),
            auto_detect: false,
            hostname: "localhost".to_owned(),
            sinks: None,
        }
    }
}

/// All that is measured, apart from what stands on the models themselves.
#[derive(Debug)]
pub struct Meter {
    mode: Mode,
    hostname: String,
    auto_detect: bool,
    /// Declared metrics of the server, in order; their places are how the journal names them.
    server: Vec<Family>,
    known: Known,
    /// Metrics of handlers: the declared ones, then those that were detected.
    model: RwLock<Vec<Arc<Family>>>,
    /// Those among them that hold the time of a batch.
    timed: Vec<Arc<Family>>,
    answers: Answers,
    journal: Option<Journal>,
    /// Bytes of memory by process, as measured last.
    memory: Mutex<HashMap<u32, u64>>,
    /// The GPUs as they were seen last.
    gpus: Mutex<Vec<GpuSample>>,
}

/// Where the metrics recorded on a request's way stand, if they are declared.
#[derive(Debug)]
struct Known {
    answers: [Option<usize>; 3],
    requests: Option<usize>,
    latency: Option<usize>,
    queue: Option<usize>,
    queue_time: Option<usize>,
    worker_thread_time: Option<usize>,
    worker_load_time: Option<usize>,
}

impl Known {
    fn new(server: &[Family]) -> Self {
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

/// Answers by class of status: good, the client's fault, anything else.
#[derive(Debug, Default)]
struct Answers([AtomicU64; 3]);

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
        let names = Names {
            server: declared.server.clone(),
            timed: declared.model.iter().filter(|metric| is_timed(metric)).cloned().collect(),
            host: hostname.clone(),
        };
        let sinks = sinks.filter(|_| mode != Mode::Prometheus);
        let journal = sinks.map(|sinks| Journal::new(names, sinks)).transpose()?;
        Ok(Self::build(mode, declared, auto_detect, hostname, journal))
    }

    fn build(
        mode: Mode,
        declared: Declared,
        auto_detect: bool,
        hostname: String,
        journal: Option<Journal>,
    ) -> Self {
        let server: Vec<Family> = declared.server.into_iter().map(Family::new).collect();
        let model: Vec<_> =
            declared.model.into_iter().map(|metric| Arc::new(Family::new(metric))).collect();
        let timed = model.iter().filter(|family| is_timed(&family.declaration)).cloned().collect();
        Self {
            mode,
            hostname,
            auto_detect,
            known: Known::new(&server),
            server,
            model: RwLock::new(model),
            timed,
            answers: Answers::default(),
            journal,
            memory: Mutex::default(),
            gpus: Mutex::default(),
        }
    }

    // -- doors ------------------------------------------------------------------------------

    /// An answer went out.
    pub(crate) fn responded(&self, status: StatusCode) {
        let class = match status.as_u16() {
            200..=299 => 0,
            400..=499 => 1,
            _ => 2,
        };
        self.answers.0[class].fetch_add(1, Relaxed);
        self.log(self.known.answers[class], 1.0, || Whose::Host);
    }

    /// A prediction was asked for.
    pub(crate) fn asked(&self, model: &Model, version_named: bool) {
        model.traffic(version_named).asked();
        if self.mode == Mode::Log {
            self.log(self.known.requests, 1.0, || whose(model, version_named));
        }
    }

    /// It was answered after so long, of which it waited so long.
    pub(crate) fn answered(
        &self,
        model: &Model,
        version_named: bool,
        queue: Duration,
        latency: Duration,
    ) {
        model.traffic(version_named).answered(queue, latency);
        let Some(journal) = &self.journal else {
            return self.host(self.known.queue_time, millis(queue));
        };
        // One visit to the journal for all three.
        let of_model = |metric: Option<usize>, time| {
            let metric = metric.filter(|_| self.mode == Mode::Log)?;
            let whose = whose(model, version_named);
            Some(Entry::Server { metric, value: micros(time), whose })
        };
        let of_host = self.known.queue_time.map(|metric| {
            let (value, whose) = (millis(queue), Whose::Host);
            Entry::Server { metric, value, whose }
        });
        let known = &self.known;
        let entries = [of_model(known.latency, latency), of_model(known.queue, queue), of_host];
        journal.push_all(entries.into_iter().flatten());
    }

    /// A prediction over gRPC was answered. TorchServe keeps the sums of latencies for REST alone; how
    /// long the last request waited is told for both.
    pub(crate) fn waited(&self, queue: Duration) {
        self.host(self.known.queue_time, millis(queue));
    }

    /// Bytes of memory that a worker's process uses, as measured last.
    pub(crate) fn memory(&self, pid: u32) -> Option<u64> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied()
    }

    /// Writes what is still to be logged; nothing is logged any more.
    pub fn finish(&self) {
        self.journal.iter().for_each(Journal::finish);
    }

    // -- recording --------------------------------------------------------------------------

    /// Records a value of the host.
    fn host(&self, metric: Option<usize>, value: f64) {
        match (self.mode, metric) {
            (Mode::Prometheus, Some(metric)) => self.server[metric].record_host(value),
            _ => self.log(metric, value, || Whose::Host),
        }
    }

    fn log(&self, metric: Option<usize>, value: f64, whose: impl FnOnce() -> Whose) {
        if let (Some(journal), Some(metric)) = (&self.journal, metric) {
            journal.push(Entry::Server { metric, value, whose: whose() });
        }
    }
}

fn whose(model: &Model, version_named: bool) -> Whose {
    Whose::Model { model: Arc::clone(model.tag()), version_named }
}

/// TorchServe's name of a worker.
fn worker_name(model: &ModelTag, worker: u32) -> String {
    format!("W-{worker}-{}_{}", model.name, model.version)
}

/// Whether it holds the time of a batch; with other labels than usual, only handlers fill it.
fn is_timed(metric: &Declaration) -> bool {
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
