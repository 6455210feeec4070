//! Turns `tracing` events into log lines: reads the fields, chooses format and target, and escapes control
//! characters, so that an event is one line whatever it tells.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use jitney_server::log_text::escape;
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
    /// Takes the lines.
    pub sender: Arc<LogSender>,
}

impl LogLayer {
    fn server_line(&self, level: Level, target: &str, message: &str) -> String {
        let now = SystemTime::now();
        match &self.style {
            Style::Human { color } => format::human(now, level, *color, message),
            Style::TorchServe { .. } => {
                let thread = std::thread::current();
                format::server(now, level, thread.name().unwrap_or("worker"), target, message)
            }
        }
    }

    fn worker_line(&self, worker: &WorkerLabel, message: &str) -> String {
        let now = SystemTime::now();
        match &self.style {
            Style::Human { .. } => format::human_worker(now, worker, message),
            Style::TorchServe { .. } => format::worker(now, worker, message),
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == WORKER_OUTPUT {
            let mut output = WorkerOutput::default();
            event.record(&mut output);
            let line = self.worker_line(&output.worker, &output.message);
            self.sender.send(LogTarget::Model, escape(&line).into_owned());
        } else {
            let mut fields = EventFields::default();
            event.record(&mut fields);
            let message = fields.message + &fields.rest;
            let banner = metadata.target() == BANNER;
            let message = if banner { message.into() } else { escape(&message) };
            let line = self.server_line(*metadata.level(), metadata.target(), &message);
            self.sender.send(LogTarget::Server, line);
        }
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
