//! Turns `tracing` events into log lines: reads the fields, chooses format and target, and escapes control
//! characters. Further lines of an event are indented, so that none can pass for an event of its own. The formats
//! are TorchServe's pattern for its files and console, and a shorter one for people. Times are UTC.

use std::borrow::Cow;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use jitney_settings::LogFormat;
use jitney_telemetry::log_text::escape;
use jitney_telemetry::{LogBook, LogLine};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::writer::{LogSender, LogTarget};

/// The `tracing` target of the lines that workers print.
pub const WORKER_OUTPUT: &str = "jitney::worker_output";

/// The `tracing` target of TorchServe's banner, which has several lines on purpose.
pub const BANNER: &str = "jitney::banner";

/// Turns events into lines.
pub struct LogLayer {
    /// The format of the lines.
    pub style: Style,
    /// Whether lines are JSON objects instead.
    pub format: LogFormat,
    /// Takes the lines.
    pub sender: Arc<LogSender>,
    /// Keeps the last ones.
    pub book: Arc<LogBook>,
}

impl LogLayer {
    fn text(&self, now: SystemTime, event: &Event<'_>) -> String {
        let metadata = event.metadata();
        if metadata.target() == WORKER_OUTPUT {
            let mut output = WorkerOutput::default();
            event.record(&mut output);
            let line = self.worker_line(now, &output.worker, &output.message);
            return escape(&line).into_owned();
        }
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let message = fields.message + &fields.rest + &fields.blocks;
        let banner = metadata.target() == BANNER;
        let message = if banner { message.into() } else { indented(&message) };
        self.server_line(now, *metadata.level(), metadata.target(), &message)
    }

    fn server_line(&self, now: SystemTime, level: Level, target: &str, message: &str) -> String {
        match &self.style {
            Style::Human { color } => short_line(now, level, *color, message),
            Style::TorchServe { .. } => {
                let thread = std::thread::current();
                torchserve_line(now, level, thread.name().unwrap_or("worker"), target, message)
            }
        }
    }

    fn worker_line(&self, now: SystemTime, worker: &WorkerLabel, message: &str) -> String {
        match &self.style {
            Style::Human { .. } => short_worker_line(now, worker, message),
            Style::TorchServe { .. } => torchserve_worker_line(now, worker, message),
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let (now, metadata) = (SystemTime::now(), event.metadata());
        let line = object(now, event);
        let text = match self.format {
            LogFormat::Text => self.text(now, event),
            LogFormat::Json => line.to_json(),
        };
        let worker = metadata.target() == WORKER_OUTPUT;
        self.sender.send(if worker { LogTarget::Model } else { LogTarget::Server }, text);
        self.book.write(*metadata.level(), line);
    }
}

/// The event as an object.
fn object(time: SystemTime, event: &Event<'_>) -> LogLine {
    let metadata = event.metadata();
    let mut visited = ObjectFields::default();
    event.record(&mut visited);
    let ObjectFields { message, fields } = visited;
    LogLine { time, level: metadata.level().as_str(), target: metadata.target(), message, fields }
}

/// The message, and the other fields with their types.
#[derive(Default)]
struct ObjectFields {
    message: String,
    fields: Map<String, Value>,
}

impl ObjectFields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for ObjectFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.set(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }
}

/// What stands before the second and all further lines of an event.
const INDENT: &str = "\n    ";

/// The lines of a message, each escaped, the second and further ones indented.
fn indented(message: &str) -> Cow<'_, str> {
    if !message.contains('\n') {
        return escape(message);
    }
    let lines: Vec<_> = message.trim_end().lines().map(escape).collect();
    Cow::Owned(lines.join(INDENT))
}

/// The message, the other fields as `name=value`, and below them those of several lines.
#[derive(Default)]
struct EventFields {
    message: String,
    rest: String,
    blocks: String,
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let (name, text) = (field.name(), format!("{value:?}"));
        match name {
            "message" => self.message += &text,
            _ if text.contains('\n') => self.blocks += &format!("\n{name}: {text}"),
            _ => self.rest += &format!(" {name}={text}"),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != "message" && !value.contains('\n') && value.contains([' ', '"']) {
            self.record_debug(field, &value);
        } else {
            self.record_debug(field, &format_args!("{value}"));
        }
    }
}

/// A line that a worker printed.
#[derive(Default)]
struct WorkerOutput {
    message: String,
    worker: WorkerLabel,
}

impl Visit for WorkerOutput {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let slot = match field.name() {
            "message" => &mut self.message,
            "model" => &mut self.worker.model,
            "version" => &mut self.worker.version,
            "worker" => &mut self.worker.worker,
            "stream" => &mut self.worker.stream,
            _ => return,
        };
        let _ = write!(slot, "{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

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
fn timestamp(now: SystemTime) -> String {
    let mut text = humantime::format_rfc3339_millis(now).to_string();
    text.truncate("2025-01-01T00:00:00.123".len());
    text.replace('.', ",")
}

/// A line of the server in TorchServe's pattern.
fn torchserve_line(
    now: SystemTime,
    level: Level,
    thread: &str,
    target: &str,
    message: &str,
) -> String {
    format!("{} [{level:<5}] {thread} {target} - {message}", timestamp(now), level = level.as_str())
}

/// A worker's line in TorchServe's pattern.
fn torchserve_worker_line(now: SystemTime, label: &WorkerLabel, message: &str) -> String {
    let WorkerLabel { model, version, worker, stream } = label;
    let level = if stream == "stderr" { "WARN " } else { "INFO " };
    format!(
        "{} [{level}] W-{worker}-{model}_{version}-{stream} MODEL_LOG - {message}",
        timestamp(now)
    )
}

/// A line of the server for people.
fn short_line(now: SystemTime, level: Level, color: bool, message: &str) -> String {
    let mut line = clock(now);
    let name = level.as_str();
    let _ = match color_code(level).filter(|_| color) {
        Some(code) => write!(line, " \x1b[{code}m{name:>5}\x1b[0m {message}"),
        None => write!(line, " {name:>5} {message}"),
    };
    line
}

/// A worker's line for people.
fn short_worker_line(now: SystemTime, label: &WorkerLabel, message: &str) -> String {
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
mod format_tests {
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
            torchserve_line(now(), Level::INFO, "main", "jitney::run", "hello"),
            "2025-01-01T00:00:00,123 [INFO ] main jitney::run - hello"
        );
        assert_eq!(
            torchserve_worker_line(now(), &label("stdout"), "hi"),
            "2025-01-01T00:00:00,123 [INFO ] W-9000-ops_1.0-stdout MODEL_LOG - hi"
        );
        assert_eq!(
            torchserve_worker_line(now(), &label("stderr"), "oh"),
            "2025-01-01T00:00:00,123 [WARN ] W-9000-ops_1.0-stderr MODEL_LOG - oh"
        );
    }

    #[test]
    fn several_lines_are_several_lines_and_none_begins_like_an_event() {
        let text = "it failed:\n  File \"a.py\"\n00:00:00.000  INFO forged \u{1b}[31m\n";
        let shown = "it failed:\n      File \"a.py\"\n    00:00:00.000  INFO forged \\x1b[31m";
        assert_eq!(indented(text), shown);
        assert_eq!(indented("one line"), "one line");
    }

    #[test]
    fn lines_for_people_are_short_and_coloured_only_on_request() {
        assert_eq!(short_line(now(), Level::WARN, false, "careful"), "00:00:00.123  WARN careful");
        assert_eq!(
            short_line(now(), Level::WARN, true, "x"),
            "00:00:00.123 \x1b[33m WARN\x1b[0m x"
        );
        assert_eq!(short_worker_line(now(), &label("stdout"), "hi"), "00:00:00.123 ops w9000 | hi");
    }
}
