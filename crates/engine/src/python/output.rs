//! What a worker prints: every line goes to the log under the model's name.
//!
//! Reading happens on a thread of its own, because a handler that prints megabytes must neither
//! block on a full pipe nor take time from the data plane. Lines are bounded: a longer one is
//! logged in pieces.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

/// Bytes of a line that are logged at once.
const LINE_MAX: u64 = 8 * 1024;

/// Whose output it is.
#[derive(Debug)]
pub(crate) struct Speaker {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) worker: u32,
}

/// Logs everything that comes out of `pipe` until it ends.
pub(crate) fn follow(
    pipe: impl Read + Send + 'static,
    speaker: Arc<Speaker>,
    stream: &'static str,
) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(format!("W-{}-{stream}", speaker.worker))
        .stack_size(128 * 1024)
        .spawn(move || log_lines(BufReader::new(pipe), &speaker, stream))?;
    Ok(())
}

fn log_lines(mut pipe: impl BufRead, speaker: &Speaker, stream: &'static str) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => log_line(&line, speaker, stream),
        }
    }
}

fn log_line(line: &[u8], speaker: &Speaker, stream: &'static str) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    let Speaker { model, version, worker } = speaker;
    if stream == "stderr" {
        tracing::warn!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    } else {
        tracing::info!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    }
}
