//! From `tracing` events to lines: reads an event's fields, picks the form and the place.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::line::{self, Origin};
use super::{Lines, Sink, Style, WORKER_OUTPUT};

/// Turns events into lines.
pub struct LogLayer {
    style: Style,
    lines: Arc<Lines>,
}

impl LogLayer {
    /// A layer that writes in this style.
    pub fn new(style: Style, lines: Arc<Lines>) -> Self {
        Self { style, lines }
    }

    fn server_line(&self, level: Level, target: &str, message: &str) -> String {
        let now = SystemTime::now();
        match &self.style {
            Style::Human { color } => line::human(now, level, *color, message),
            Style::TorchServe { .. } => {
                let thread = std::thread::current();
                line::server(now, level, thread.name().unwrap_or("worker"), target, message)
            }
        }
    }

    fn worker_line(&self, origin: &Origin, message: &str) -> String {
        let now = SystemTime::now();
        match &self.style {
            Style::Human { .. } => line::human_worker(now, origin, message),
            Style::TorchServe { .. } => line::worker(now, origin, message),
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == WORKER_OUTPUT {
            let mut output = WorkerOutput::default();
            event.record(&mut output);
            self.lines.send(Sink::Model, self.worker_line(&output.origin, &output.message));
        } else {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let message = fields.message + &fields.rest;
            self.lines.send(
                Sink::Server,
                self.server_line(*metadata.level(), metadata.target(), &message),
            );
        }
    }
}

/// The message, and the other fields as `name=value`.
#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Visit for Fields {
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

/// The fields of a worker's line.
#[derive(Default)]
struct WorkerOutput {
    message: String,
    origin: Origin,
}

impl Visit for WorkerOutput {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let slot = match field.name() {
            "message" => &mut self.message,
            "model" => &mut self.origin.model,
            "version" => &mut self.origin.version,
            "worker" => &mut self.origin.worker,
            "stream" => &mut self.origin.stream,
            _ => return,
        };
        let _ = write!(slot, "{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
