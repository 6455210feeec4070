//! The log. Lines are formatted by the thread that logs, and written by one writer thread behind a
//! bounded channel. When the disk is too slow, lines are dropped and counted; requests never wait.

mod console_copy;
mod filter;
mod layer;
mod rolling_file;
mod writer;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jitney_settings::LogFormat;
use jitney_telemetry::LogBook;
use jitney_telemetry::metrics::MetricSinks;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use layer::BANNER;
pub use layer::Style;
pub use writer::LogTarget;

use crate::failure::{Failure, cannot};
use console_copy::ConsoleCopy;
use layer::LogLayer;
use rolling_file::RollingFile;
use writer::{LogFiles, LogWriter};

/// What to log, and how.
#[derive(Clone, Debug)]
pub struct LogPlan {
    /// Format and destination.
    pub style: Style,
    /// Whether lines are JSON objects instead.
    pub format: LogFormat,
    /// For example `info,jitney_engine=debug`.
    pub filter: String,
}

/// The log of this process.
pub struct StartedLog {
    /// Writes the lines.
    pub writer: LogWriter,
    /// Keeps the last ones.
    pub book: Arc<LogBook>,
}

impl StartedLog {
    /// Writes the remaining lines.
    pub fn finish(self) {
        self.writer.finish();
    }
}

/// Starts the writer and sends all `tracing` events of the process to it.
pub fn start(plan: &LogPlan) -> Result<StartedLog, Failure> {
    let (filter, live) = filter::reloadable(&plan.filter, &plan.style).map_err(Failure::usage)?;
    let (files, warnings) = files(&plan.style);
    let writer = LogWriter::start(files, plan.format).map_err(cannot("start the log writer"))?;
    let book = Arc::new(LogBook::new(Box::new(live)));
    let (style, format) = (plan.style.clone(), plan.format);
    let (sender, kept) = (Arc::clone(&writer.sender), Arc::clone(&book));
    let layer = LogLayer { style, format, sender, book: kept };
    tracing_subscriber::registry().with(filter).with(layer).init();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(StartedLog { writer, book })
}

/// Where access lines go; the server has its own writer for them.
pub fn access_sink(style: &Style) -> io::Result<Box<dyn Write + Send>> {
    Ok(match style {
        Style::Human { .. } => Box::new(io::stderr()),
        Style::TorchServe { logs, .. } => with_console(logs, "access_log.log", "ACCESS_LOG")?,
    })
}

/// Where lines about changes and refused attempts go.
pub fn audit_sink(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(RollingFile::open(path.to_owned())?))
}

/// Where metric lines go; the human style has no files for them.
pub fn metric_sinks(style: &Style) -> io::Result<Option<MetricSinks>> {
    let Style::TorchServe { metrics, .. } = style else { return Ok(None) };
    Ok(Some(MetricSinks {
        server: with_console(metrics, "ts_metrics.log", "TS_METRICS")?,
        model: with_console(metrics, "model_metrics.log", "MODEL_METRICS")?,
    }))
}

/// A file of TorchServe's whose lines are on its console too.
fn with_console(dir: &Path, name: &str, logger: &'static str) -> io::Result<Box<dyn Write + Send>> {
    let file = RollingFile::open(dir.join(name))?;
    Ok(Box::new(ConsoleCopy { file, console: io::stdout(), logger }))
}

/// The log files of a style. A file that cannot be opened causes a warning; the console still has
/// all lines.
fn files(style: &Style) -> (LogFiles, Vec<String>) {
    let Style::TorchServe { logs, metrics } = style else {
        return (LogFiles::stderr(), Vec::new());
    };
    let mut warnings = Vec::new();
    let mut open = |path: PathBuf| match RollingFile::open(path.clone()) {
        Ok(file) => Some(file),
        Err(error) => {
            warnings.push(format!("cannot write {}: {error}; set LOG_LOCATION", path.display()));
            None
        }
    };
    let server = open(logs.join("ts_log.log"));
    let model = open(logs.join("model_log.log"));
    // Written by the server's metrics; the files exist in every metrics mode, for `tail -f`.
    open(metrics.join("ts_metrics.log"));
    open(metrics.join("model_metrics.log"));
    (LogFiles::stdout(server, model), warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_five_files_exist_after_the_start() {
        let dir = tempfile::tempdir().expect("directory");
        let (logs, metrics) = (dir.path().join("a/logs"), dir.path().join("b"));
        let style = Style::TorchServe { logs: logs.clone(), metrics: metrics.clone() };
        let (_, warnings) = files(&style);
        assert!(warnings.is_empty() && access_sink(&style).is_ok(), "{warnings:?}");
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
    fn an_unwritable_directory_causes_warnings() {
        let dir = tempfile::tempdir().expect("directory");
        let blocked = dir.path().join("file");
        std::fs::write(&blocked, "").expect("file");
        let (_, warnings) = files(&Style::TorchServe { logs: blocked.clone(), metrics: blocked });
        assert_eq!(warnings.len(), 4);
    }
}
