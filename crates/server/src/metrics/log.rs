//! Metrics as log lines, in TorchServe's `ts_metrics.log` and `model_metrics.log`:
//! `2025-01-01T00:00:00,123 - Name.Unit:1.0|#Dim:value|#hostname:h,requestID:…,timestamp:1735689600`.
//!
//! The hot path only appends a small entry to a bounded list; a thread turns entries into lines and
//! writes them. When the disk is stuck, entries are dropped and counted; requests never wait.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitney_engine::ModelTag;

use super::declared::MetricDeclaration;
use super::page::JavaDouble;
use crate::log_limit::LogLimit;
use crate::log_text::escape;
use crate::spool::Spool;

const ENTRIES_MAX: usize = 1 << 16;

/// Where the lines go.
pub struct MetricSinks {
    /// What the server measures.
    pub server: Box<dyn Write + Send>,
    /// What models report.
    pub model: Box<dyn Write + Send>,
}

/// A value to be logged.
#[derive(Debug)]
pub(super) enum MetricLogEntry {
    /// A value of a metric of the server's, by its index among the declared ones.
    Server { metric: usize, value: f64, subject: MetricSubject },
    /// A value of a model's metric: the line up to the host's name, and the requests' ids.
    Model { text: String, requests: String },
    /// An answered batch of a Python model, for the metrics that hold its time.
    Batch { model: Arc<ModelTag>, millis: f64, requests: String },
}

/// What a value is about; decides the labels.
#[derive(Debug)]
pub(super) enum MetricSubject {
    Host,
    Gpu { index: u32 },
    Model { model: Arc<ModelTag>, version_named: bool },
    Worker { model: Arc<ModelTag>, worker: u32 },
}

impl MetricSubject {
    /// The values of the labels but the host's name.
    pub(super) fn labels(&self) -> Vec<String> {
        match self {
            Self::Host => vec!["Host".to_owned()],
            Self::Gpu { index } => vec!["Host".to_owned(), index.to_string()],
            Self::Model { model, version_named } => {
                let version = if *version_named { &model.version } else { "default" };
                vec![model.name.clone(), version.to_owned()]
            }
            Self::Worker { model, worker } => {
                let ModelTag { name, version, .. } = &**model;
                vec![format!("W-{worker}-{name}_{version}"), "Host".to_owned()]
            }
        }
    }
}

/// What the lines are made from.
pub(super) struct MetricNames {
    pub(super) server: Vec<MetricDeclaration>,
    /// The metrics that hold the time of a batch.
    pub(super) timed: Vec<MetricDeclaration>,
    pub(super) host: String,
}

/// The log of metrics; dropping it writes what is left.
#[derive(Debug)]
pub(super) struct MetricLog(Spool<MetricQueue>);

#[derive(Debug, Default)]
struct MetricQueue(Vec<(Duration, MetricLogEntry)>);

impl MetricLog {
    pub(super) fn new(names: MetricNames, mut sinks: MetricSinks) -> std::io::Result<Self> {
        let mut text = LogText::default();
        let (mut lost, slow) = (0, LogLimit::default());
        let write_out = move |queue: &mut MetricQueue, dropped| {
            lost += dropped;
            if lost > 0 && slow.pass().is_some() {
                let dropped = std::mem::take(&mut lost);
                tracing::warn!(dropped, "metrics were not logged: the disk is too slow");
            }
            for (now, entry) in queue.0.drain(..) {
                text.add(&names, now, &entry);
            }
            text.write_to(&mut sinks);
        };
        Ok(Self(Spool::new("metrics-log", write_out)?))
    }

    /// Adds an entry, or counts it as dropped.
    pub(super) fn push(&self, entry: MetricLogEntry) {
        self.push_all([entry]);
    }

    /// Adds entries that belong together.
    pub(super) fn push_all(&self, entries: impl IntoIterator<Item = MetricLogEntry>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.fill(|queue| entries.into_iter().map(|entry| queue.push(now, entry)).sum());
    }

    /// Writes what is left and ends the thread; later entries are ignored.
    pub(super) fn finish(&self) {
        self.0.finish();
    }
}

impl MetricQueue {
    /// Adds an entry; returns the number of dropped ones.
    fn push(&mut self, now: Duration, entry: MetricLogEntry) -> u64 {
        if self.0.len() >= ENTRIES_MAX {
            return 1;
        }
        self.0.push((now, entry));
        0
    }
}

/// Lines that are ready to be written.
#[derive(Default)]
struct LogText {
    server: String,
    model: String,
    broken: LogLimit,
}

impl LogText {
    fn add(&mut self, names: &MetricNames, now: Duration, entry: &MetricLogEntry) {
        match entry {
            MetricLogEntry::Server { metric, value, subject } => {
                let Some(declaration) = names.server.get(*metric) else { return };
                if let Some(text) = metric_text(declaration, &subject.labels(), true, *value) {
                    push_text(&mut self.server, &text, &names.host, "", now);
                }
            }
            MetricLogEntry::Model { text, requests } => {
                push_text(&mut self.model, text, &names.host, requests, now);
            }
            MetricLogEntry::Batch { model, millis, requests } => {
                for declaration in &names.timed {
                    let labels = [&*model.name, "Model"];
                    if let Some(text) = metric_text(declaration, &labels, false, *millis) {
                        push_text(&mut self.model, &text, &names.host, requests, now);
                    }
                }
            }
        }
    }

    fn write_to(&mut self, sinks: &mut MetricSinks) {
        for (text, sink) in
            [(&mut self.server, &mut sinks.server), (&mut self.model, &mut sinks.model)]
        {
            if let Err(error) = sink.write_all(text.as_bytes()).and_then(|()| sink.flush())
                && let Some(suppressed) = self.broken.pass()
            {
                tracing::warn!(%error, suppressed, "cannot log metrics");
            }
            text.clear();
        }
    }
}

/// `Name.Unit:value|#Dim:value,…`: all labels but the host's name, which the server's own metrics
/// have as their last one. Nothing if the labels are not those that were declared.
pub(super) fn metric_text(
    declaration: &MetricDeclaration,
    labels: &[impl AsRef<str>],
    host_declared: bool,
    value: f64,
) -> Option<String> {
    let MetricDeclaration { name, unit, dimensions, .. } = declaration;
    if dimensions.len() != labels.len() + usize::from(host_declared) {
        return None;
    }
    let mut text = format!("{name}.{unit}:{}|#", JavaDouble(value));
    for (index, (dimension, label)) in dimensions.iter().zip(labels).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{dimension}:{}", label.as_ref());
    }
    Some(text)
}

fn push_text(lines: &mut String, text: &str, host: &str, requests: &str, now: Duration) {
    let mut clock = humantime::format_rfc3339_millis(UNIX_EPOCH + now).to_string();
    clock.truncate("2025-01-01T00:00:00.123".len());
    let clock = clock.replace('.', ",");
    let _ = write!(lines, "{clock} - {}|#hostname:{host}", escape(text));
    if !requests.is_empty() {
        let _ = write!(lines, ",requestID:{}", escape(requests));
    }
    let _ = writeln!(lines, ",timestamp:{}", now.as_secs());
}

#[cfg(test)]
mod tests {
    use super::super::declared::{MetricDeclarations, MetricKind};
    use super::*;
    use crate::spool::sink::TestSink;

    fn names() -> MetricNames {
        let MetricDeclarations { server, model } = MetricDeclarations::default();
        MetricNames { server, timed: model, host: "h".to_owned() }
    }

    fn tag() -> Arc<ModelTag> {
        Arc::new(ModelTag { name: "noop".into(), version: "1.11".into(), python: true })
    }

    fn texts(entry: &MetricLogEntry) -> (String, String) {
        let mut log = LogText::default();
        log.add(&names(), Duration::from_millis(1_735_689_600_123), entry);
        (log.server, log.model)
    }

    fn server(metric: &str, value: f64, subject: MetricSubject) -> String {
        let metric = names().server.iter().position(|known| known.name == metric).unwrap();
        texts(&MetricLogEntry::Server { metric, value, subject }).0
    }

    #[test]
    fn the_servers_lines_read_as_torchserves() {
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#hostname:h,timestamp:1735689600\n";
        let model = |version_named| MetricSubject::Model { model: tag(), version_named };
        for (line, text) in [
            (server("Requests2XX", 1.0, MetricSubject::Host), "Requests2XX.Count:1.0|#Level:Host"),
            (
                server("ts_inference_requests_total", 1.0, model(false)),
                "ts_inference_requests_total.Count:1.0|#model_name:noop,model_version:default",
            ),
            (
                server("ts_queue_latency_microseconds", 12.0, model(true)),
                "ts_queue_latency_microseconds.Microseconds:12.0|#model_name:noop,model_version:1.11",
            ),
            (
                server("GPUUtilization", 37.0, MetricSubject::Gpu { index: 1 }),
                "GPUUtilization.Percent:37.0|#Level:Host,DeviceId:1",
            ),
            (
                server(
                    "WorkerLoadTime",
                    99.5,
                    MetricSubject::Worker { model: tag(), worker: 9000 },
                ),
                "WorkerLoadTime.Milliseconds:99.5|#WorkerName:W-9000-noop_1.11,Level:Host",
            ),
        ] {
            assert_eq!(line, format!("{start}{text}{end}"));
        }
    }

    #[test]
    fn a_models_lines_name_their_requests() {
        let entry = MetricLogEntry::Batch { model: tag(), millis: 1.5, requests: "a,b".to_owned() };
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#ModelName:noop,Level:Model|#hostname:h,requestID:a,b,timestamp:1735689600\n";
        let expected = format!("{start}HandlerTime.ms:1.5{end}{start}PredictionTime.ms:1.5{end}");
        assert_eq!(texts(&entry).1, expected);
    }

    #[test]
    fn labels_that_were_not_declared_so_are_not_written() {
        let odd = MetricDeclaration::new(MetricKind::Gauge, "X", "ms", &["OnlyOne"]);
        assert_eq!(metric_text(&odd, &["a", "b"], false, 1.0), None);
        assert_eq!(metric_text(&odd, &["a"], true, 1.0), None);
    }

    #[test]
    fn finishing_writes_what_is_left_and_nothing_after() {
        let sink = TestSink::default();
        let sinks =
            MetricSinks { server: Box::new(sink.clone()), model: Box::new(std::io::sink()) };
        let log = MetricLog::new(names(), sinks).unwrap();
        let push = || {
            log.push(MetricLogEntry::Server { metric: 0, value: 1.0, subject: MetricSubject::Host })
        };
        (0..3).for_each(|_| push());
        log.finish();
        push();
        drop(log);
        assert_eq!(sink.text().lines().count(), 3);
    }

    #[test]
    fn a_full_list_drops_entries_instead_of_growing() {
        let entry = || MetricLogEntry::Model { text: String::new(), requests: String::new() };
        let mut list = MetricQueue((0..ENTRIES_MAX).map(|_| (Duration::ZERO, entry())).collect());
        let dropped = list.push(Duration::ZERO, entry());
        assert_eq!((list.0.len(), dropped), (ENTRIES_MAX, 1));
    }
}
