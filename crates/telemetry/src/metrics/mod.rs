//! Metrics: what is measured, and where it is shown (a page for Prometheus, lines in a log).
//!
//! The server and the engine record into a [`Meter`]; the metrics endpoint reads it. Recording a request
//! costs a few atomic operations and, where metrics are logged, one short entry; labels are never
//! formatted there. It reads no file: the cli brings the machine's state and the configuration.

mod custom;
mod family;
mod format;
mod handlers;
mod levels;
mod load_report;
mod log;
mod named;
mod own;
mod page;
mod printed;
mod process;
mod protobuf;
mod render;
mod reported;
mod server;
mod subject;
mod system;
mod whole;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use jitney_engine::call::{OriginKind, Timing};
use jitney_engine::{Engine, Model};
use jitney_net::open_connections::OpenConnections;

use self::custom::CustomMetrics;
use self::family::millis;
pub use self::family::{MetricDeclaration, MetricDeclarations, MetricKind};
pub use self::format::PageFormat;
use self::handlers::{HandlerMetrics, is_timed};
use self::load_report::LoadReporter;
pub use self::load_report::{LOAD_METRICS, LoadFormat};
pub use self::log::MetricSinks;
use self::log::{MetricLog, MetricLogEntry, MetricNames};
use self::process::NoProcesses;
pub use self::process::{OwnProcess, ProcessReader, ProcessUsage};
use self::render::PageRenderer;
pub use self::reported::EngineObserver;
use self::server::{MetricSource, ServerMetrics};
use self::subject::{MetricSubject, ModelSubject};
pub use self::system::{GpuSample, SystemSample};
pub use self::whole::OtherFacts;
use self::whole::ServerSnapshot;
use crate::spool::WriteTime;

/// Where TorchServe's metrics are shown.
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
    /// TorchServe's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prometheus => "PROMETHEUS",
            Self::Log => "LOG",
            Self::Legacy => "LEGACY",
        }
    }
}

/// The configuration of a meter.
pub struct MeterPlan {
    /// Where TorchServe's metrics are shown.
    pub mode: MetricsMode,
    /// Which there are.
    pub declared: MetricDeclarations,
    /// Whether metrics of handlers that are not declared are taken as they come.
    pub auto_detect: bool,
    /// The host's name in labels and lines.
    pub hostname: String,
    /// When lines are written.
    pub log_time: WriteTime,
    /// Where lines go, for the modes that have any.
    pub sinks: Option<MetricSinks>,
    /// What processes use.
    pub processes: Box<dyn ProcessReader>,
}

impl Default for MeterPlan {
    fn default() -> Self {
        Self {
            mode: MetricsMode::default(),
            declared: MetricDeclarations::default(),
            auto_detect: false,
            hostname: "localhost".to_owned(),
            log_time: WriteTime::default(),
            sinks: None,
            processes: Box::new(NoProcesses),
        }
    }
}

/// All that is measured, except what the models count themselves.
#[derive(Debug)]
pub struct Meter {
    mode: MetricsMode,
    hostname: String,
    server: ServerMetrics,
    handlers: HandlerMetrics,
    /// What definitions count for themselves.
    custom: CustomMetrics,
    /// Answers by class of status: good, the client's fault, anything else.
    answers: [AtomicU64; 3],
    log: Option<MetricLog>,
    log_time: WriteTime,
    /// The last measurement of the machine.
    machine: Mutex<SystemSample>,
    /// Whether somebody looks at it.
    followed: AtomicBool,
    processes: Box<dyn ProcessReader>,
    load: LoadReporter,
    /// The connections of the data plane and of the admin plane.
    connections: OnceLock<[Arc<OpenConnections>; 2]>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::build(MeterPlan::default(), None)
    }
}

impl Meter {
    /// A meter as planned.
    ///
    /// # Errors
    /// The system has no thread for the log.
    pub fn new(mut plan: MeterPlan) -> std::io::Result<Self> {
        if plan.auto_detect {
            plan.declared = handlers::with_detected(plan.declared);
        }
        let sinks = plan.sinks.take().filter(|_| plan.mode != MetricsMode::Prometheus);
        let timed = plan.declared.model.iter().filter(|metric| is_timed(metric));
        let server = ServerMetrics::new(plan.declared.server.clone());
        let sums = [server.latency, server.queue];
        let names = || MetricNames {
            sums: if plan.mode == MetricsMode::Log { sums } else { [None; 2] },
            queue_time: server.queue_time,
            server: plan.declared.server.clone(),
            timed: timed.cloned().collect(),
            host: plan.hostname.clone(),
        };
        let log = sinks.map(|sinks| MetricLog::new(names(), plan.log_time, sinks)).transpose()?;
        Ok(Self::build(plan, log))
    }

    fn build(plan: MeterPlan, log: Option<MetricLog>) -> Self {
        let MeterPlan { mode, declared, auto_detect, hostname, log_time, .. } = plan;
        let processes = plan.processes;
        Self {
            mode,
            hostname,
            server: ServerMetrics::new(declared.server),
            handlers: HandlerMetrics::new(declared.model, auto_detect),
            custom: CustomMetrics::default(),
            answers: Default::default(),
            log,
            log_time,
            machine: Mutex::default(),
            followed: AtomicBool::new(false),
            processes,
            load: LoadReporter::default(),
            connections: OnceLock::new(),
        }
    }

    /// When lines of the log are written.
    pub fn log_time(&self) -> WriteTime {
        self.log_time
    }

    /// An answer was sent.
    pub fn responded(&self, status: StatusCode) {
        let class = match status.as_u16() {
            200..=299 => 0,
            400..=499 => 1,
            _ => 2,
        };
        self.answers[class].fetch_add(1, Relaxed);
        self.log_value(self.server.answers[class], 1.0, || MetricSubject::Host);
    }

    /// A prediction was requested.
    pub fn requested(&self, model: &Model, version_named: bool) {
        model.traffic(version_named).asked();
        if self.mode == MetricsMode::Log {
            let subject = || MetricSubject::Model(model_subject(model, version_named));
            self.log_value(self.server.requests, 1.0, subject);
        }
    }

    /// A prediction was answered. As in TorchServe, the sums of latencies leave out gRPC.
    pub fn answered(
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
        let Some(log) = &self.log else {
            return self.record_host(self.server.queue_time, millis(queue));
        };
        let model = model_subject(model, version_named);
        log.push(MetricLogEntry::Answered { model, summed, queue, latency });
    }

    /// Records a measurement of the machine.
    pub fn system(&self, sample: SystemSample) {
        for (name, value) in sample.values() {
            self.record_host(self.server.find(name), value);
        }
        for gpu in &sample.gpus {
            for (name, value) in gpu.values() {
                self.record(self.server.find(name), value, MetricSubject::Gpu { index: gpu.index });
            }
        }
        *self.machine() = sample;
    }

    /// Takes a measurement of the machine that is no metric.
    pub fn refresh(&self, sample: SystemSample) {
        *self.machine() = sample;
    }

    /// Whether somebody looks at the overview now.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Relaxed)
    }

    /// Says so.
    pub fn set_followed(&self, followed: bool) {
        self.followed.store(followed, Relaxed);
    }

    /// Bytes of memory that a worker's process uses.
    pub fn memory(&self, pid: u32) -> Option<u64> {
        let now = self.process(pid).map(|usage| usage.memory);
        now.or_else(|| self.machine().workers.get(&pid).copied())
    }

    /// What a worker's process uses now; none if it has gone.
    pub fn process(&self, pid: u32) -> Option<ProcessUsage> {
        self.processes.usage(Some(pid))
    }

    /// How long a process has waited for a processor so far.
    pub fn process_waited(&self, pid: u32) -> Option<Duration> {
        self.processes.waited(pid)
    }

    /// What the server's own process uses now.
    pub fn own_process(&self) -> Option<ProcessUsage> {
        self.processes.usage(None)
    }

    /// How loaded the server is, for a gateway that asked.
    pub fn load_report(&self, engine: &Engine, format: LoadFormat) -> Option<HeaderValue> {
        self.load.header(engine, &self.machine(), format)
    }

    /// Counts these connections: of the data plane, of the admin plane.
    pub fn watch_connections(&self, planes: &[Arc<OpenConnections>; 2]) {
        // A meter belongs to one server.
        drop(self.connections.set(planes.clone()));
    }

    /// Open connections: of the data plane, of the admin plane.
    pub fn connections(&self) -> [usize; 2] {
        let planes = self.connections.get();
        planes.map_or([0; 2], |planes| planes.each_ref().map(|plane| plane.count()))
    }

    /// The machine as measured last.
    pub fn last_sample(&self) -> SystemSample {
        self.machine().clone()
    }

    /// The host's name.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// A GPU as measured last, for people.
    pub fn gpu_usage(&self, index: u32) -> Option<String> {
        self.machine().gpus.iter().find(|gpu| gpu.index == index).map(GpuSample::usage)
    }

    /// The page for Prometheus, or only the metrics that are named: the server's as they were declared,
    /// those of handlers, then Jitney's own.
    pub fn page(
        &self,
        engine: &Engine,
        names: Vec<&str>,
        format: PageFormat,
        other: OtherFacts,
    ) -> Vec<u8> {
        if self.mode == MetricsMode::Log {
            return Vec::new();
        }
        let (usage, own) = (self.own_process(), self.processes.own());
        let utilization = self.load.utilization(engine, &self.machine());
        let server =
            ServerSnapshot::new(engine, utilization, self.connections(), usage, own, other);
        let snapshots = render::snapshots(engine, &*self.processes);
        let mut page = PageRenderer::new(names, format, &self.hostname, snapshots, server);
        for (index, family) in self.server.families.iter().enumerate() {
            match self.server.source(index) {
                MetricSource::Traffic(read) => page.traffic(&family.declaration, read),
                // Everything else is logged.
                _ if self.mode == MetricsMode::Legacy => {}
                MetricSource::Answers(class) => {
                    page.host_counter(&family.declaration, self.answers[class].load(Relaxed));
                }
                MetricSource::Series => page.server_family(family),
            }
        }
        if self.mode == MetricsMode::Prometheus {
            self.handlers.families().iter().for_each(|family| page.handler_family(family));
        }
        page.models(&self.custom);
        page.finish()
    }

    /// Writes what is still to be logged and ends the log.
    pub fn finish(&self) {
        self.log.iter().for_each(MetricLog::finish);
    }

    fn machine(&self) -> MutexGuard<'_, SystemSample> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a value on the page or in the log.
    fn record(&self, metric: Option<usize>, value: f64, subject: MetricSubject) {
        match (self.mode, metric) {
            (MetricsMode::Prometheus, Some(metric)) => {
                self.server.families[metric].record(subject.labels(), value);
            }
            _ => self.log_value(metric, value, || subject),
        }
    }

    /// The same for the host, without a lock.
    fn record_host(&self, metric: Option<usize>, value: f64) {
        match (self.mode, metric) {
            (MetricsMode::Prometheus, Some(metric)) => {
                self.server.families[metric].record_host(value);
            }
            _ => self.log_value(metric, value, || MetricSubject::Host),
        }
    }

    fn log_value(
        &self,
        metric: Option<usize>,
        value: f64,
        subject: impl FnOnce() -> MetricSubject,
    ) {
        if let (Some(log), Some(metric)) = (&self.log, metric) {
            log.push(MetricLogEntry::Server { metric, value, subject: subject() });
        }
    }
}

fn model_subject(model: &Model, version_named: bool) -> ModelSubject {
    ModelSubject { model: Arc::clone(model.tag()), version_named }
}

#[cfg(test)]
mod tests;
