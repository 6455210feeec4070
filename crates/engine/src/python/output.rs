//! What a worker prints: every line goes to the log under the model's name, but for the metrics
//! among them, which go to the observer.
//!
//! Reading happens on a thread of its own, because a handler that prints megabytes must neither
//! block on a full pipe nor take time from the data plane. Lines are bounded: a longer one is
//! logged in pieces, and of a longer metric only the first piece is read.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::observer::Observer;
use crate::outcome::last_line;

/// Bytes of a line that are logged at once.
const LINE_MAX: u64 = 8 * 1024;

/// How a metric begins (`protocol/spec.md`).
const METRIC: &[u8] = b"[METRICS]";

/// How long the end of a process's output may take to be read after the process has ended. It takes
/// longer only where a child of it holds the pipe.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// What a stream ended with, once it has ended.
#[derive(Default)]
pub(crate) struct ErrorOutput {
    last_line: Option<oneshot::Receiver<String>>,
}

impl ErrorOutput {
    /// The last line of a process that has ended; empty if it printed none.
    pub(crate) async fn last_line(self) -> String {
        let Some(line) = self.last_line else { return String::new() };
        timeout(END_TIMEOUT, line).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

/// The worker whose output it is.
pub(crate) struct OutputSource {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) worker: u32,
    pub(crate) observer: Arc<dyn Observer>,
}

/// Logs everything that comes out of `pipe` until it ends.
pub(crate) fn log_output(
    pipe: impl Read + Send + 'static,
    source: Arc<OutputSource>,
    stream: &'static str,
) -> std::io::Result<ErrorOutput> {
    let (ended, last_line) = oneshot::channel();
    let name = format!("W-{}-{stream}", source.worker);
    let read = move || {
        let last = read_lines(BufReader::new(pipe), &source, stream);
        // A worker that has loaded is not asked for it.
        let _ = ended.send(last);
    };
    std::thread::Builder::new().name(name).stack_size(128 * 1024).spawn(read)?;
    Ok(ErrorOutput { last_line: Some(last_line) })
}

/// Reads to the end; returns the last line that is not empty.
fn read_lines(mut pipe: impl BufRead, source: &OutputSource, stream: &'static str) -> String {
    let (mut line, mut last) = (Vec::new(), String::new());
    // Whether the piece at hand begins a line, and whether its line is a metric.
    let (mut begins, mut metric) = (true, false);
    loop {
        line.clear();
        match pipe.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        if begins {
            metric = stream == "stdout" && line.starts_with(METRIC);
        }
        match (metric, begins) {
            (true, true) => source.observer.metric_printed(&text(&line[METRIC.len()..])),
            (true, false) => {}
            (false, _) => {
                let text = text(&line);
                log_line(&text, source, stream);
                if stream == "stderr" && !last_line(&text).is_empty() {
                    last_line(&text).clone_into(&mut last);
                }
            }
        }
        begins = line.ends_with(b"\n");
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned()
}

fn log_line(text: &str, source: &OutputSource, stream: &'static str) {
    let OutputSource { model, version, worker, .. } = source;
    if stream == "stderr" {
        tracing::warn!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    } else {
        tracing::info!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Printed(Mutex<Vec<String>>);

    impl Observer for Printed {
        fn metric_printed(&self, line: &str) {
            self.0.lock().expect("lock").push(line.to_owned());
        }
    }

    fn printed(output: &str, stream: &'static str) -> Vec<String> {
        let printed = Arc::new(Printed::default());
        let observer: Arc<dyn Observer> = Arc::clone(&printed) as _;
        let (model, version) = ("m".to_owned(), "1".to_owned());
        let source = OutputSource { model, version, worker: 9000, observer };
        read_lines(output.as_bytes(), &source, stream);
        std::mem::take(&mut *printed.0.lock().expect("lock"))
    }

    #[test]
    fn metrics_are_told_apart_from_output_at_the_beginning_of_a_line() {
        let output = "hello\n[METRICS]a\r\nsee [METRICS]b\n [METRICS]c\n[METRICS]d";
        assert_eq!(printed(output, "stdout"), ["a", "d"]);
        assert!(printed(output, "stderr").is_empty());
    }

    #[test]
    fn of_an_endless_metric_only_the_first_piece_is_read() {
        let endless = "x".repeat(3 * LINE_MAX as usize);
        let output = format!("[METRICS]{endless}\n[METRICS]next\n{endless}[METRICS]no\n");
        let lines = printed(&output, "stdout");
        assert_eq!((lines.len(), lines[1].as_str()), (2, "next"));
        assert!(lines[0].len() < LINE_MAX as usize);
    }
}
