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
use jitney_net::LogLimit;

use super::family::{MetricDeclaration, micros, millis};
use super::page::JavaDouble;
use super::subject::{MetricSubject, ModelSubject};
use crate::log_text::{LogClock, escape};
use crate::spool::{Spool, WriteTime};

const ENTRIES_MAX: usize = 1 << 16;
/// Lines are written in pieces of this size: what is in the processor's cache need not be fetched again.
const PIECE_BYTES: usize = 128 << 10;
/// Models whose lines are kept ready, for each metric.
const READY_MAX: usize = 256;

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
    /// An answered prediction: its times, for those metrics of the server that hold them.
    Answered { model: ModelSubject, summed: bool, queue: Duration, latency: Duration },
    /// A value of a model's metric: the line up to the host's name, and the requests' ids.
    Model { text: String, requests: String },
    /// An answered batch of a Python model, for the metrics that hold its time.
    Batch { model: Arc<ModelTag>, millis: f64, requests: String },
}

/// What the lines are made from.
pub(super) struct MetricNames {
    pub(super) server: Vec<MetricDeclaration>,
    /// Those of them that hold the sums of latencies and of times in the queue, where they are logged.
    pub(super) sums: [Option<usize>; 2],
    /// The one that holds the last time in the queue.
    pub(super) queue_time: Option<usize>,
    /// The metrics that hold the time of a batch.
    pub(super) timed: Vec<MetricDeclaration>,
    pub(super) host: String,
}

impl MetricNames {
    /// The line of a metric of the server's. Nothing if its labels are not those that were declared.
    fn ready_text(&self, metric: usize, subject: &MetricSubject) -> Option<ReadyText> {
        let MetricDeclaration { name, unit, dimensions, .. } = self.server.get(metric)?;
        let labels = labels_text(dimensions, &subject.labels(), true)?;
        let (before, after) = (format!("{name}.{unit}:"), format!("|#{labels}"));
        let after = format!("{}|#hostname:{},timestamp:", escape(&after), self.host);
        let before = format!(" - {}", escape(&before));
        Some(ReadyText { before, after: after.clone().into_bytes(), kept: after.len() })
    }
}

/// The log of metrics; dropping it writes what is left.
#[derive(Debug)]
pub(super) struct MetricLog(Spool<MetricQueue>);

#[derive(Debug, Default)]
struct MetricQueue(Vec<(Duration, MetricLogEntry)>);

impl MetricLog {
    pub(super) fn new(
        names: MetricNames,
        time: WriteTime,
        mut sinks: MetricSinks,
    ) -> std::io::Result<Self> {
        let mut text = LogText::new(names);
        let (mut lost, slow) = (0, LogLimit::default());
        let write_out = move |queue: &mut MetricQueue, dropped| {
            lost += dropped;
            if lost > 0 && slow.pass().is_some() {
                let dropped = std::mem::take(&mut lost);
                tracing::warn!(dropped, "metrics were not logged: the disk is too slow");
            }
            for (now, entry) in queue.0.drain(..) {
                text.add(now, &entry);
                if text.server.len() >= PIECE_BYTES {
                    text.write_to(&mut sinks);
                }
            }
            text.write_to(&mut sinks);
        };
        Ok(Self(Spool::new("metrics-log", time, write_out)?))
    }

    /// Adds an entry, or counts it as dropped.
    pub(super) fn push(&self, entry: MetricLogEntry) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.fill(|queue| queue.push(now, entry));
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
struct LogText {
    names: MetricNames,
    server: Vec<u8>,
    model: Vec<u8>,
    clock: LogClock,
    /// What is the same in all lines, by the metric's index.
    ready: Vec<ReadyTexts>,
    broken: LogLimit,
}

/// The lines of one metric without their times and values.
#[derive(Default)]
struct ReadyTexts {
    host: Option<ReadyText>,
    /// The one that was used last comes first.
    models: Vec<(ModelSubject, ReadyText)>,
}

/// A line without its time and value.
struct ReadyText {
    /// ` - Name.Unit:`
    before: String,
    /// `|#Dim:value,…|#hostname:h,timestamp:`, and the second of the last line.
    after: Vec<u8>,
    /// How much of that is the same in all lines.
    kept: usize,
}

impl LogText {
    fn new(names: MetricNames) -> Self {
        let ready = names.server.iter().map(|_| ReadyTexts::default()).collect();
        let (clock, broken) = (LogClock::default(), LogLimit::default());
        Self { names, server: Vec::new(), model: Vec::new(), clock, ready, broken }
    }

    fn add(&mut self, now: Duration, entry: &MetricLogEntry) {
        match entry {
            MetricLogEntry::Server { metric, value, subject } => match subject {
                MetricSubject::Host => self.add_host(now, *metric, *value),
                MetricSubject::Model(model) => self.add_model(now, *metric, *value, model),
                MetricSubject::Gpu { .. } | MetricSubject::Worker { .. } => {
                    if let Some(mut line) = self.names.ready_text(*metric, subject) {
                        push_ready(&mut self.server, &mut self.clock, now, &mut line, *value);
                    }
                }
            },
            MetricLogEntry::Answered { model, summed, queue, latency } => {
                for (metric, time) in self.names.sums.into_iter().zip([latency, queue]) {
                    if let Some(metric) = metric.filter(|_| *summed) {
                        self.add_model(now, metric, micros(*time), model);
                    }
                }
                if let Some(metric) = self.names.queue_time {
                    self.add_host(now, metric, millis(*queue));
                }
            }
            MetricLogEntry::Model { text, requests } => {
                self.add_text(now, text, requests);
            }
            MetricLogEntry::Batch { model, millis, requests } => {
                let labels = [&*model.name, "Model"];
                let text = |it: &MetricDeclaration| metric_text(it, &labels, false, *millis);
                let texts: Vec<_> = self.names.timed.iter().filter_map(text).collect();
                texts.iter().for_each(|text| self.add_text(now, text, requests));
            }
        }
    }

    fn add_host(&mut self, now: Duration, metric: usize, value: f64) {
        let Some(ReadyTexts { host, .. }) = self.ready.get_mut(metric) else { return };
        if host.is_none() {
            *host = self.names.ready_text(metric, &MetricSubject::Host);
        }
        if let Some(line) = host {
            push_ready(&mut self.server, &mut self.clock, now, line, value);
        }
    }

    fn add_model(&mut self, now: Duration, metric: usize, value: f64, subject: &ModelSubject) {
        let Some(ReadyTexts { models, .. }) = self.ready.get_mut(metric) else { return };
        match models.iter().position(|(known, _)| known == subject) {
            Some(0) => {}
            Some(at) => models.swap(0, at),
            None => {
                let whole = MetricSubject::Model(subject.clone());
                let Some(line) = self.names.ready_text(metric, &whole) else { return };
                models.truncate(READY_MAX - 1);
                models.insert(0, (subject.clone(), line));
            }
        }
        if let Some((_, line)) = models.first_mut() {
            push_ready(&mut self.server, &mut self.clock, now, line, value);
        }
    }

    /// A model's line from its text and the ids of its requests.
    fn add_text(&mut self, now: Duration, text: &str, requests: &str) {
        let lines = &mut self.model;
        self.clock.push(now, lines);
        lines.extend_from_slice(b" - ");
        lines.extend_from_slice(escape(text).as_bytes());
        lines.extend_from_slice(b"|#hostname:");
        lines.extend_from_slice(self.names.host.as_bytes());
        if !requests.is_empty() {
            lines.extend_from_slice(b",requestID:");
            lines.extend_from_slice(escape(requests).as_bytes());
        }
        lines.extend_from_slice(b",timestamp:");
        lines.extend_from_slice(self.clock.second());
        lines.push(b'\n');
    }

    fn write_to(&mut self, sinks: &mut MetricSinks) {
        for (text, sink) in
            [(&mut self.server, &mut sinks.server), (&mut self.model, &mut sinks.model)]
        {
            if let Err(error) = sink.write_all(text).and_then(|()| sink.flush())
                && let Some(suppressed) = self.broken.pass()
            {
                tracing::warn!(%error, suppressed, "cannot log metrics");
            }
            text.clear();
        }
    }
}

fn push_ready(
    lines: &mut Vec<u8>,
    clock: &mut LogClock,
    now: Duration,
    line: &mut ReadyText,
    value: f64,
) {
    clock.push(now, lines);
    lines.extend_from_slice(line.before.as_bytes());
    JavaDouble(value).push(lines);
    if line.after[line.kept..].strip_suffix(b"\n").is_none_or(|it| it != clock.second()) {
        line.after.truncate(line.kept);
        line.after.extend_from_slice(clock.second());
        line.after.push(b'\n');
    }
    lines.extend_from_slice(&line.after);
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
    let labels = labels_text(dimensions, labels, host_declared)?;
    Some(format!("{name}.{unit}:{}|#{labels}", JavaDouble(value)))
}

fn labels_text(
    dimensions: &[String],
    labels: &[impl AsRef<str>],
    host_declared: bool,
) -> Option<String> {
    if dimensions.len() != labels.len() + usize::from(host_declared) {
        return None;
    }
    let mut text = String::new();
    for (index, (dimension, label)) in dimensions.iter().zip(labels).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{dimension}:{}", label.as_ref());
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::family::{MetricDeclarations, MetricKind};
    use super::*;
    use crate::spool::sink::TestSink;

    fn names() -> MetricNames {
        let MetricDeclarations { server, model } = MetricDeclarations::default();
        let at = |name| server.iter().position(|known: &MetricDeclaration| known.name == name);
        let sums = ["ts_inference_latency_microseconds", "ts_queue_latency_microseconds"].map(at);
        let queue_time = at("QueueTime");
        MetricNames { sums, queue_time, server, timed: model[1..].to_vec(), host: "h".to_owned() }
    }

    fn tag() -> Arc<ModelTag> {
        Arc::new(ModelTag { name: "noop".into(), version: "1.11".into(), python: true })
    }

    fn texts(entry: &MetricLogEntry) -> (String, String) {
        let mut log = LogText::new(names());
        log.add(Duration::from_millis(1_735_689_600_123), entry);
        let text = |lines| String::from_utf8(lines).unwrap();
        (text(log.server), text(log.model))
    }

    fn server(metric: &str, value: f64, subject: MetricSubject) -> String {
        let metric = names().server.iter().position(|known| known.name == metric).unwrap();
        texts(&MetricLogEntry::Server { metric, value, subject }).0
    }

    #[test]
    fn the_servers_lines_read_as_torchserves() {
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#hostname:h,timestamp:1735689600\n";
        let model =
            |version_named| MetricSubject::Model(ModelSubject { model: tag(), version_named });
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
    fn an_answer_is_logged_with_its_times() {
        let text = |summed| {
            let model = ModelSubject { model: tag(), version_named: false };
            let (queue, latency) = (Duration::from_micros(1500), Duration::from_micros(2250));
            texts(&MetricLogEntry::Answered { model, summed, queue, latency }).0
        };
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#hostname:h,timestamp:1735689600\n";
        let sum = |name: &str, value: &str| {
            let labels = "model_name:noop,model_version:default";
            format!("{start}{name}_latency_microseconds.Microseconds:{value}|#{labels}{end}")
        };
        let time = format!("{start}QueueTime.Milliseconds:1.5|#Level:Host{end}");
        let sums = sum("ts_inference", "2250.0") + &sum("ts_queue", "1500.0");
        assert_eq!(text(true), sums + &time);
        assert_eq!(text(false), time);
    }

    #[test]
    fn the_lines_of_each_model_are_kept_apart() {
        let mut log = LogText::new(names());
        let named = |name: &str| ModelSubject {
            model: Arc::new(ModelTag { name: name.into(), version: "2".into(), python: true }),
            version_named: true,
        };
        let models = [named("a"), named("b")];
        for model in [&models[0], &models[1], &models[0], &models[1], &models[1]] {
            log.add_model(Duration::ZERO, 3, 1.0, model);
        }
        let text = String::from_utf8(log.server).unwrap();
        let found = text.lines().map(|line| line.split_once("model_name:").unwrap().1);
        let found: String = found.map(|rest| &rest[..1]).collect();
        assert_eq!(found, "ababb");
        let many: Vec<_> = (0..READY_MAX + 9).map(|n| named(&n.to_string())).collect();
        let mut log = LogText::new(names());
        many.iter().for_each(|model| log.add_model(Duration::ZERO, 3, 1.0, model));
        assert_eq!(log.ready[3].models.len(), READY_MAX);
    }

    #[test]
    fn a_line_has_the_second_of_its_own_time() {
        let mut log = LogText::new(names());
        let seconds = ["5", "5", "16", "5"];
        for second in seconds {
            log.add_host(Duration::from_secs(second.parse().unwrap()), 0, 1.0);
        }
        let text = String::from_utf8(log.server).unwrap();
        let found = text.lines().map(|line| line.rsplit_once(':').unwrap().1);
        assert_eq!(found.collect::<Vec<_>>(), seconds);
    }

    #[test]
    fn a_models_lines_name_their_requests() {
        let entry = MetricLogEntry::Batch { model: tag(), millis: 1.5, requests: "a,b".to_owned() };
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#ModelName:noop,Level:Model|#hostname:h,requestID:a,b,timestamp:1735689600\n";
        let expected = format!("{start}PredictionTime.ms:1.5{end}");
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
        let log = MetricLog::new(names(), WriteTime::Soon, sinks).unwrap();
        let push = || {
            log.push(MetricLogEntry::Server { metric: 0, value: 1.0, subject: MetricSubject::Host })
        };
        // More than a piece.
        (0..3000).for_each(|_| push());
        log.finish();
        push();
        drop(log);
        assert_eq!(sink.text().lines().count(), 3000);
    }

    #[test]
    fn a_full_list_drops_entries_instead_of_growing() {
        let entry = || MetricLogEntry::Model { text: String::new(), requests: String::new() };
        let mut list = MetricQueue((0..ENTRIES_MAX).map(|_| (Duration::ZERO, entry())).collect());
        let dropped = list.push(Duration::ZERO, entry());
        assert_eq!((list.0.len(), dropped), (ENTRIES_MAX, 1));
    }
}
