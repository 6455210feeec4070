//! The format of log lines: TorchServe's pattern for its files and console, and a shorter one for
//! people. Times are UTC.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use tracing::Level;

/// The format and the destination of log lines.
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

/// Which worker printed a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WorkerLabel {
    /// The model.
    pub model: String,
    /// Its version.
    pub version: String,
    /// The worker's id.
    pub worker: String,
    /// `stdout` or `stderr`.
    pub stream: String,
}

/// `2025-01-01T00:00:00,123`.
pub fn timestamp(now: SystemTime) -> String {
    let mut text = humantime::format_rfc3339_millis(now).to_string();
    text.truncate("2025-01-01T00:00:00.123".len());
    text.replace('.', ",")
}

/// A line of the server in TorchServe's pattern.
pub fn server(now: SystemTime, level: Level, thread: &str, target: &str, message: &str) -> String {
    format!("{} [{level:<5}] {thread} {target} - {message}", timestamp(now), level = level.as_str())
}

/// A worker's line in TorchServe's pattern.
pub fn worker(now: SystemTime, label: &WorkerLabel, message: &str) -> String {
    let WorkerLabel { model, version, worker, stream } = label;
    let level = if stream == "stderr" { "WARN " } else { "INFO " };
    format!(
        "{} [{level}] W-{worker}-{model}_{version}-{stream} MODEL_LOG - {message}",
        timestamp(now)
    )
}

/// A line of the server for people.
pub fn human(now: SystemTime, level: Level, color: bool, message: &str) -> String {
    let mut line = clock(now);
    let name = level.as_str();
    let _ = match color_code(level).filter(|_| color) {
        Some(code) => write!(line, " \x1b[{code}m{name:>5}\x1b[0m {message}"),
        None => write!(line, " {name:>5} {message}"),
    };
    line
}

/// A worker's line for people.
pub fn human_worker(now: SystemTime, label: &WorkerLabel, message: &str) -> String {
    format!("{} {} w{} | {message}", clock(now), label.model, label.worker)
}

fn clock(now: SystemTime) -> String {
    let text = humantime::format_rfc3339_millis(now).to_string();
    text["2025-01-01T".len().."2025-01-01T00:00:00.123".len()].to_owned()
}

fn color_code(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_735_689_600_123)
    }

    fn label(stream: &str) -> WorkerLabel {
        WorkerLabel {
            model: "ops".into(),
            version: "1.0".into(),
            worker: "9000".into(),
            stream: stream.into(),
        }
    }

    #[test]
    fn lines_have_the_format_of_torchserve() {
        assert_eq!(
            server(now(), Level::INFO, "main", "jitney::run", "hello"),
            "2025-01-01T00:00:00,123 [INFO ] main jitney::run - hello"
        );
        assert_eq!(
            worker(now(), &label("stdout"), "hi"),
            "2025-01-01T00:00:00,123 [INFO ] W-9000-ops_1.0-stdout MODEL_LOG - hi"
        );
        assert_eq!(
            worker(now(), &label("stderr"), "oh"),
            "2025-01-01T00:00:00,123 [WARN ] W-9000-ops_1.0-stderr MODEL_LOG - oh"
        );
    }

    #[test]
    fn lines_for_people_are_short_and_coloured_only_on_request() {
        assert_eq!(human(now(), Level::WARN, false, "careful"), "00:00:00.123  WARN careful");
        assert_eq!(human(now(), Level::WARN, true, "x"), "00:00:00.123 \x1b[33m WARN\x1b[0m x");
        assert_eq!(human_worker(now(), &label("stdout"), "hi"), "00:00:00.123 ops w9000 | hi");
    }
}
