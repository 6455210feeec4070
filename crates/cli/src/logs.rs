//! The log. Lines are formatted where they arise, handed to one writer thread through a bounded
//! channel, and dropped (and counted) when the disk cannot keep up: a slow log never slows a request.

mod files;
mod layer;
mod line;
mod writer;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use jitney_server::metrics::MetricSinks;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use writer::{Lines, Sink};

use crate::failure::Failure;
use files::RollingFile;
use layer::LogLayer;
use writer::{Sinks, Writer};

/// The target under which the engine repeats what workers print.
const WORKER_OUTPUT: &str = "jitney::worker_output";

/// How lines look and where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Style {
    /// TorchServe's five files and its console lines on stdout.
    TorchServe {
        /// `LOG_LOCATION`.
        logs: PathBuf,
        /// `METRICS_LOCATION`.
        metrics: PathBuf,
    },
    /// Short lines on stderr.
    Human {
        /// Whether levels are coloured.
        color: bool,
    },
}

/// What to log, and how.
#[derive(Clone, Debug)]
pub struct LogPlan {
    /// Where to and in what form.
    pub style: Style,
    /// As in `info,jitney_engine=debug`.
    pub filter: String,
}

/// The running log; [`Logs::finish`] writes what is still under way.
pub struct Logs {
    writer: Writer,
}

impl Logs {
    /// Starts the writer and makes it the destination of every `tracing` event of the process.
    pub fn start(plan: &LogPlan) -> Result<Self, Failure> {
        let filter = filter(&plan.filter)?;
        let (sinks, remarks) = sinks(&plan.style);
        let writer = Writer::start(sinks)
            .map_err(|error| Failure::failed(format!("cannot start the log writer: {error}")))?;
        let layer = LogLayer::new(plan.style.clone(), writer.lines());
        tracing_subscriber::registry().with(filter).with(layer).init();
        remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
        Ok(Self { writer })
    }

    /// A way to write lines that are no events.
    pub fn lines(&self) -> Arc<Lines> {
        self.writer.lines()
    }

    /// Writes everything handed over so far and ends the writer.
    pub fn finish(self) {
        self.writer.finish();
    }
}

/// Where access lines go; the server has a writer of its own for them.
pub fn access_sink(style: &Style) -> io::Result<Box<dyn Write + Send>> {
    Ok(match style {
        Style::Human { .. } => Box::new(io::stderr()),
        Style::TorchServe { logs, .. } => Box::new(RollingFile::open(logs.join("access_log.log"))?),
    })
}

/// Where lines of metrics go; a style without files has no place for them.
pub fn metric_sinks(style: &Style) -> io::Result<Option<MetricSinks>> {
    let Style::TorchServe { metrics, .. } = style else { return Ok(None) };
    let open = |name| RollingFile::open(metrics.join(name)).map(Box::new);
    Ok(Some(MetricSinks { server: open("ts_metrics.log")?, model: open("model_metrics.log")? }))
}

fn filter(text: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::builder()
        .parse(format!("{text},{WORKER_OUTPUT}=info"))
        .map_err(|error| Failure::usage(format!("log filter {text:?}: {error}")))
}

/// The places of a style. A file that cannot be opened costs a remark, not the start: the console
/// still has everything.
fn sinks(style: &Style) -> (Sinks, Vec<String>) {
    let Style::TorchServe { logs, metrics } = style else {
        return (Sinks::stderr(), Vec::new());
    };
    let mut sinks = Sinks::stdout();
    let mut remarks = Vec::new();
    let mut open = |path: PathBuf| match RollingFile::open(path.clone()) {
        Ok(file) => Some(file),
        Err(error) => {
            remarks.push(format!("cannot write {}: {error}; set LOG_LOCATION", path.display()));
            None
        }
    };
    sinks.set(Sink::Server, open(logs.join("ts_log.log")));
    sinks.set(Sink::Model, open(logs.join("model_log.log")));
    // Opened again by whoever writes metrics; they exist in every mode, for those who follow them.
    open(metrics.join("ts_metrics.log"));
    open(metrics.join("model_metrics.log"));
    (sinks, remarks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_five_files_exist_after_the_start() {
        let dir = tempfile::tempdir().expect("directory");
        let (logs, metrics) = (dir.path().join("a/logs"), dir.path().join("b"));
        let style = Style::TorchServe { logs: logs.clone(), metrics: metrics.clone() };
        let (_, remarks) = sinks(&style);
        assert!(remarks.is_empty() && access_sink(&style).is_ok(), "{remarks:?}");
        for path in [
            logs.join("ts_log.log"),
            logs.join("model_log.log"),
            logs.join("access_log.log"),
            metrics.join("ts_metrics.log"),
            metrics.join("model_metrics.log"),
        ] {
            assert!(path.is_file(), "{}", path.display());
        }
    }

    #[test]
    fn an_unwritable_place_is_remarked_on_and_survived() {
        let dir = tempfile::tempdir().expect("directory");
        let blocked = dir.path().join("file");
        std::fs::write(&blocked, "").expect("file");
        let (_, remarks) = sinks(&Style::TorchServe { logs: blocked.clone(), metrics: blocked });
        assert_eq!(remarks.len(), 4);
    }

    #[test]
    fn a_filter_that_makes_no_sense_is_a_usage_error() {
        assert!(filter("info,jitney_engine=debug").is_ok());
        assert_eq!(filter("info,x=loud").err().map(|failure| failure.code), Some(64));
    }
}
