//! Turns `tracing` events into log lines: reads the fields, chooses format and target, and escapes control
//! characters, so that an event is one line whatever it tells.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use jitney_settings::LogFormat;
use jitney_telemetry::log_text::escape;
use jitney_telemetry::{LogBook, LogLine};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::format::{self, Style, WorkerLabel};
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
        let message = fields.message + &fields.rest;
        let banner = metadata.target() == BANNER;
        let message = if banner { message.into() } else { escape(&message) };
        self.server_line(now, *metadata.level(), metadata.target(), &message)
    }

    fn server_line(&self, now: SystemTime, level: Level, target: &str, message: &str) -> String {
        match &self.style {
            Style::Human { color } => format::human(now, level, *color, message),
            Style::TorchServe { .. } => {
                let thread = std::thread::current();
                format::server(now, level, thread.name().unwrap_or("worker"), target, message)
            }
        }
    }

    fn worker_line(&self, now: SystemTime, worker: &WorkerLabel, message: &str) -> String {
        match &self.style {
            Style::Human { .. } => format::human_worker(now, worker, message),
            Style::TorchServe { .. } => format::worker(now, worker, message),
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

/// The message, and the other fields as `name=value`.
#[derive(Default)]
struct EventFields {
    message: String,
    rest: String,
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != "message" && value.contains([' ', '"', '\n']) {
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
