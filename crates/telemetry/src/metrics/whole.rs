//! Metrics of the whole server: its state, its memory and files, its connections.
//!
//! The names that begin with `process_` are those of Prometheus' client libraries, without labels, so
//! that existing dashboards find them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use jitney_engine::Engine;
use jitney_engine::admission::{Admission, CutReason};

use super::family::MetricKind::{self, Counter, Gauge};
use super::page::MetricsPage;
use super::process::{OwnProcess, ProcessUsage};
use crate::jobs_overview::JobsOverview;
use crate::registrations::{ListedState, RegistrationsReport};

/// What the page tells that neither models nor the meter know.
#[derive(Clone, Debug, Default)]
pub struct OtherFacts {
    /// Spans that could not be sent.
    pub spans_dropped: u64,
    /// The shared list of models, if there is one.
    pub registrations: Option<Arc<RegistrationsReport>>,
    /// The requests that are answered later, once there was one.
    pub jobs: Option<JobsOverview>,
}

/// The server as it was when the page was requested.
pub(super) struct ServerSnapshot {
    admission: Arc<Admission>,
    ready: bool,
    utilization: f64,
    connections: [usize; 2],
    usage: Option<ProcessUsage>,
    own: OwnProcess,
    other: OtherFacts,
}

/// How a metric is read.
type ServerReading = fn(&ServerSnapshot) -> LabelledValues;

/// Values with their own label, if there is one.
type LabelledValues = Vec<(Option<(&'static str, Cow<'static, str>)>, f64)>;

/// The metrics: name, kind, help, reading.
#[rustfmt::skip]
const WHOLE: &[(&str, MetricKind, &str, ServerReading)] = &[
    ("jitney_build_info", Gauge, "Always 1; the label tells the version",
        |_| vec![labelled("version", env!("CARGO_PKG_VERSION"), 1.0)]),
    ("jitney_ready", Gauge, "Whether the server is ready: 1 or 0",
        |it| one(it.ready.into())),
    ("jitney_utilization", Gauge, "How loaded the server is, by its busiest model; above 1 there is more to do than it can",
        |it| one(it.utilization)),
    ("jitney_connections", Gauge, "Open connections of clients",
        |it| vec![labelled("plane", "data", it.connections[0] as f64), labelled("plane", "admin", it.connections[1] as f64)]),
    ("jitney_request_memory_bytes", Gauge, "Memory of bodies on their way in, of requests, and of answers that are not yet read",
        |it| one(it.admission.bytes() as f64)),
    ("jitney_request_memory_limit_bytes", Gauge, "Most of it that is allowed (max_request_memory)",
        |it| one(it.admission.limits().bytes as f64)),
    ("jitney_clients_cut_total", Counter, "Bodies and answers that were cut, or not let in, by reason",
        |it| CutReason::ALL.iter().map(|(reason, name)| labelled("reason", name, it.admission.cut_count(*reason) as f64)).collect()),
    ("jitney_log_lines_dropped_total", Counter, "Lines of the log that were dropped because writing was too slow",
        |it| one(it.own.log_dropped as f64)),
    ("jitney_spans_dropped_total", Counter, "Spans of traces that were dropped because they could not be sent",
        |it| one(it.other.spans_dropped as f64)),
    ("jitney_registrations_info", Gauge, "Always 1; the label tells which content of the shared list of models is in force",
        |it| it.listed(|list| list.revision.clone().map(|revision| (Some(("revision", Cow::Owned(revision))), 1.0)).into_iter().collect())),
    ("jitney_registrations_models", Gauge, "Models of the shared list by what became of them",
        |it| it.listed(|list| ListedState::ALL.iter().map(|state| labelled("state", state.as_str(), list.count(*state) as f64)).collect())),
    ("jitney_registrations_read_timestamp_seconds", Gauge, "When the shared list was last read, in seconds of Unix time",
        |it| it.listed(|list| list.read_at.map_or_else(Vec::new, |read| one(unix_seconds(read))))),
    ("jitney_registrations_failures_total", Counter, "Times that the shared list could not be read, or was refused",
        |it| it.listed(|list| one(list.read_failures as f64))),
    ("jitney_jobs", Gauge, "Jobs by how far they are; failed has those that were cancelled, too",
        |it| it.jobs(|jobs| vec![labelled("state", "queued", jobs.queued as f64), labelled("state", "running", jobs.running as f64),
            labelled("state", "succeeded", jobs.succeeded as f64), labelled("state", "failed", jobs.failed as f64)])),
    ("jitney_jobs_bytes", Gauge, "Bytes of requests and answers of jobs that are kept",
        |it| it.jobs(|jobs| one(jobs.bytes as f64))),
    ("jitney_jobs_oldest_seconds", Gauge, "How long the oldest job has waited that is not yet run; 0 if none waits",
        |it| it.jobs(|jobs| one(jobs.oldest_seconds.unwrap_or_default()))),
    ("jitney_jobs_total", Counter, "What became of jobs: submitted, succeeded, failed (or cancelled), expired",
        |it| it.jobs(|jobs| vec![labelled("event", "submitted", jobs.submitted_total as f64), labelled("event", "succeeded", jobs.succeeded_total as f64),
            labelled("event", "failed", jobs.failed_total as f64), labelled("event", "expired", jobs.expired_total as f64)])),
    ("jitney_webhooks_total", Counter, "What came of sending webhooks of jobs: delivered, again (another attempt follows), failed (none does)",
        |it| it.jobs(|jobs| vec![labelled("event", "delivered", jobs.webhooks_delivered_total as f64), labelled("event", "again", jobs.webhooks_again_total as f64),
            labelled("event", "failed", jobs.webhooks_failed_total as f64)])),
    ("process_resident_memory_bytes", Gauge, "Resident memory of the server's process, without its workers",
        |it| it.usage.map_or_else(Vec::new, |usage| one(usage.memory as f64))),
    ("process_cpu_seconds_total", Counter, "Processor time of the server's process, without its workers",
        |it| it.usage.map_or_else(Vec::new, |usage| one(usage.cpu.as_secs_f64()))),
    ("process_open_fds", Gauge, "Files and sockets that the server has open",
        |it| it.own.open_files.map_or_else(Vec::new, |count| one(count as f64))),
    ("process_max_fds", Gauge, "Files and sockets that the server may have open",
        |it| it.own.open_files_max.map_or_else(Vec::new, |count| one(count as f64))),
    ("process_start_time_seconds", Gauge, "When the server was started, in seconds of Unix time",
        |it| it.own.started.map_or_else(Vec::new, one)),
];

fn labelled(
    name: &'static str,
    value: &'static str,
    number: f64,
) -> (Option<(&'static str, Cow<'static, str>)>, f64) {
    (Some((name, Cow::Borrowed(value))), number)
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn one(value: f64) -> LabelledValues {
    vec![(None, value)]
}

impl ServerSnapshot {
    pub(super) fn new(
        engine: &Engine,
        utilization: f64,
        connections: [usize; 2],
        usage: Option<ProcessUsage>,
        own: OwnProcess,
        other: OtherFacts,
    ) -> Self {
        let admission = Arc::clone(engine.admission());
        let ready = engine.is_ready();
        Self { admission, ready, utilization, connections, usage, own, other }
    }

    /// Nothing, for a server without a shared list.
    fn listed(&self, read: impl FnOnce(&RegistrationsReport) -> LabelledValues) -> LabelledValues {
        self.other.registrations.as_deref().map_or_else(Vec::new, read)
    }

    /// Nothing, before the first job.
    fn jobs(&self, read: impl FnOnce(&JobsOverview) -> LabelledValues) -> LabelledValues {
        self.other.jobs.as_ref().map_or_else(Vec::new, read)
    }

    /// Writes them.
    pub(super) fn write(&self, page: &mut MetricsPage<'_>, host: &str) {
        for (name, kind, help, read) in WHOLE {
            if page.begin(name, *kind, help) {
                let host = (!name.starts_with("process_")).then_some(("hostname", host));
                for (label, value) in read(self) {
                    let label = label.as_ref().map(|(name, value)| (*name, value.as_ref()));
                    let labels: Vec<_> = label.into_iter().chain(host).collect();
                    page.sample(&labels, value);
                }
            }
        }
    }
}
