//! Metrics as log lines: TorchServe's `ts_metrics.log` and `model_metrics.log`.
//!
//! The hot path only appends a small entry to a bounded list; a thread of its own turns entries into
//! lines and writes them. When the disk is stuck entries are dropped and counted, requests never wait.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitney_engine::ModelTag;

use super::declared::MetricDeclaration;
use super::written::MetricLines;
use crate::spool::Spool;

const ENTRIES_MAX: usize = 1 << 16;

/// Where the lines go.
pub struct MetricSinks {
    /// What the server measures.
    pub server: Box<dyn Write + Send>,
    /// What models report.
    pub model: Box<dyn Write + Send>,
}

/// Something to be written down.
#[derive(Debug)]
pub(crate) enum MetricEntry {
    /// A value of a metric of the server's, by its place among the declared ones.
    Server { metric: usize, value: f64, subject: MetricSubject },
    /// A value of a model's metric: the line up to the host's name, and the requests' ids.
    Model { text: String, requests: String },
    /// An answered batch of a Python model, for the metrics that hold its time.
    Batch { model: Arc<ModelTag>, millis: f64, requests: String },
}

/// Whom a value is about; decides the labels.
#[derive(Debug)]
pub(crate) enum MetricSubject {
    Host,
    Gpu { index: u32 },
    Model { model: Arc<ModelTag>, version_named: bool },
    Worker { model: Arc<ModelTag>, worker: u32 },
}

/// What the lines are made from.
pub(crate) struct MetricNames {
    pub(crate) server: Vec<MetricDeclaration>,
    /// The metrics that hold the time of a batch.
    pub(crate) timed: Vec<MetricDeclaration>,
    pub(crate) host: String,
}

/// The log of metrics; dropping it writes what is left.
#[derive(Debug)]
pub(crate) struct MetricLog(Spool<MetricQueue>);

#[derive(Debug, Default)]
struct MetricQueue(Vec<(Duration, MetricEntry)>);

impl MetricLog {
    pub(crate) fn new(names: MetricNames, mut sinks: MetricSinks) -> std::io::Result<Self> {
        let mut lines = MetricLines::default();
        let write_out = move |list: &mut MetricQueue, dropped| {
            if dropped > 0 {
                tracing::warn!(dropped, "metrics were not logged, the disk is too slow");
            }
            for (now, entry) in list.0.drain(..) {
                lines.add(&names, now, &entry);
            }
            lines.write_to(&mut sinks);
        };
        Ok(Self(Spool::new("metrics-log", write_out)?))
    }

    /// Hands an entry over, or counts it as dropped.
    pub(crate) fn push(&self, entry: MetricEntry) {
        self.push_all([entry]);
    }

    /// Hands entries over that belong together.
    pub(crate) fn push_all(&self, entries: impl IntoIterator<Item = MetricEntry>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.fill(|list| entries.into_iter().map(|entry| list.push(now, entry)).sum());
    }

    /// Writes what is left and ends the thread; later entries are ignored.
    pub(crate) fn finish(&self) {
        self.0.finish();
    }
}

impl MetricQueue {
    /// Adds an entry, or says that it dropped one.
    fn push(&mut self, now: Duration, entry: MetricEntry) -> u64 {
        if self.0.len() >= ENTRIES_MAX {
            return 1;
        }
        self.0.push((now, entry));
        0
    }
}

#[cfg(test)]
mod tests {
    use super::super::declared::MetricDeclarations;
    use super::*;
    use crate::spool::sink::Sink;

    fn names() -> MetricNames {
        let MetricDeclarations { server, model } = MetricDeclarations::default();
        MetricNames { server, timed: model, host: "h".to_owned() }
    }

    #[test]
    fn finishing_writes_what_is_left_and_nothing_after() {
        let sink = Sink::default();
        let sinks =
            MetricSinks { server: Box::new(sink.clone()), model: Box::new(std::io::sink()) };
        let journal = MetricLog::new(names(), sinks).unwrap();
        let push = || {
            journal.push(MetricEntry::Server {
                metric: 0,
                value: 1.0,
                subject: MetricSubject::Host,
            })
        };
        (0..3).for_each(|_| push());
        journal.finish();
        push();
        drop(journal);
        assert_eq!(sink.text().lines().count(), 3);
    }

    #[test]
    fn a_full_list_drops_entries_instead_of_growing() {
        let entry = || MetricEntry::Model { text: String::new(), requests: String::new() };
        let mut list = MetricQueue((0..ENTRIES_MAX).map(|_| (Duration::ZERO, entry())).collect());
        let dropped = list.push(Duration::ZERO, entry());
        assert_eq!((list.0.len(), dropped), (ENTRIES_MAX, 1));
    }
}
