//! What a worker prints: every line goes to the log under the model's name, but for the metrics
//! among them, which go to the observer. Of a metric that is longer than a piece only the first piece is
//! read.

use std::sync::{Arc, Mutex, PoisonError};

use crate::observer::Observer;
use crate::outcome::last_line;
use crate::process::OutputSink;

/// How a metric begins (`protocol/spec.md`).
const METRIC: &[u8] = b"[METRICS]";

/// The worker whose output it is.
pub(crate) struct OutputSource {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) worker: u32,
    pub(crate) observer: Arc<dyn Observer>,
    /// The last line of its stderr that was not empty.
    pub(crate) last_error: Mutex<String>,
}

impl OutputSource {
    /// The last line that it printed as an error so far; empty if there was none.
    pub(crate) fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_error(&self, text: &str) {
        let line = last_line(text);
        if !line.is_empty() {
            let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
            line.clone_into(&mut last);
        }
    }
}

/// One stream of a worker.
pub(crate) struct WorkerStream {
    source: Arc<OutputSource>,
    stream: &'static str,
    /// Whether the line at hand is a metric.
    metric: bool,
}

impl WorkerStream {
    pub(crate) fn new(source: &Arc<OutputSource>, stream: &'static str) -> Self {
        Self { source: Arc::clone(source), stream, metric: false }
    }
}

impl OutputSink for WorkerStream {
    fn take(&mut self, piece: &[u8], begins: bool) {
        if begins {
            self.metric = self.stream == "stdout" && piece.starts_with(METRIC);
        }
        match (self.metric, begins) {
            (true, true) => {
                let (line, source) = (text(&piece[METRIC.len()..]), &self.source);
                match line.starts_with('{') {
                    true => {
                        source.observer.own_metric_printed(&source.model, &source.version, &line);
                    }
                    false => source.observer.metric_printed(&line),
                }
            }
            (true, false) => {}
            (false, _) => log_line(&text(piece), &self.source, self.stream),
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned()
}

fn log_line(text: &str, source: &OutputSource, stream: &'static str) {
    let OutputSource { model, version, worker, .. } = source;
    if stream == "stderr" {
        source.note_error(text);
        tracing::warn!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    } else {
        tracing::info!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::process::{OUTPUT_PIECE_MAX, read_pieces};

    #[derive(Default)]
    struct Printed(Mutex<Vec<String>>);

    impl Observer for Printed {
        fn metric_printed(&self, line: &str) {
            self.0.lock().expect("lock").push(line.to_owned());
        }
    }

    async fn printed(output: &str, stream: &'static str) -> Vec<String> {
        let printed = Arc::new(Printed::default());
        let observer: Arc<dyn Observer> = Arc::clone(&printed) as _;
        let (model, version) = ("m".to_owned(), "1".to_owned());
        let last_error = Mutex::default();
        let source = OutputSource { model, version, worker: 9000, observer, last_error };
        let source = Arc::new(source);
        read_pieces(output.as_bytes(), WorkerStream::new(&source, stream)).await;
        let last = if stream == "stderr" { output.trim().lines().last() } else { None };
        assert_eq!(source.last_error(), last.unwrap_or_default().trim());
        std::mem::take(&mut *printed.0.lock().expect("lock"))
    }

    #[tokio::test]
    async fn metrics_are_told_apart_from_output_at_the_beginning_of_a_line() {
        let output = "hello\n[METRICS]a\r\nsee [METRICS]b\n [METRICS]c\n[METRICS]d";
        assert_eq!(printed(output, "stdout").await, ["a", "d"]);
        assert!(printed(output, "stderr").await.is_empty());
    }

    #[tokio::test]
    async fn of_an_endless_metric_only_the_first_piece_is_read() {
        let endless = "x".repeat(3 * OUTPUT_PIECE_MAX as usize);
        let output = format!("[METRICS]{endless}\n[METRICS]next\n{endless}[METRICS]no\n");
        let lines = printed(&output, "stdout").await;
        assert_eq!((lines.len(), lines[1].as_str()), (2, "next"));
        assert!(lines[0].len() < OUTPUT_PIECE_MAX as usize);
    }
}
