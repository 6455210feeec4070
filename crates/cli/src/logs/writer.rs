//! The thread that writes log files and the console. Senders never wait for it: lines that do not fit
//! into the channel are dropped, and their number is logged when there is room again.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use jitney_settings::LogFormat;
use jitney_telemetry::LogLine;
use serde_json::Map;

use super::rolling_file::RollingFile;

/// The most lines in the channel: half a second of heavy logging.
const LINES_MAX: usize = 16_384;

/// Where a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// The console alone.
    Console,
    /// The console and the server's file.
    Server,
    /// The console and the workers' file.
    Model,
}

enum LogMessage {
    Line(LogTarget, String),
    Stop,
}

/// Sends lines to the thread.
#[derive(Debug)]
pub struct LogSender {
    channel: SyncSender<LogMessage>,
    /// Since the log said so last.
    dropped: AtomicU64,
    dropped_total: Arc<AtomicU64>,
}

impl LogSender {
    /// Sends a line, or counts it as dropped.
    pub fn send(&self, target: LogTarget, text: String) {
        if self.channel.try_send(LogMessage::Line(target, text)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.dropped_total.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread and its channel.
pub struct LogWriter {
    /// The sender of lines.
    pub sender: Arc<LogSender>,
    thread: JoinHandle<()>,
}

impl LogWriter {
    /// Starts the thread.
    pub fn start(files: LogFiles, format: LogFormat) -> io::Result<Self> {
        Self::with_capacity(files, format, LINES_MAX)
    }

    fn with_capacity(files: LogFiles, format: LogFormat, capacity: usize) -> io::Result<Self> {
        let (channel, received) = sync_channel(capacity);
        let sender = Arc::new(LogSender {
            channel,
            dropped: AtomicU64::new(0),
            dropped_total: Arc::default(),
        });
        let counted = Arc::clone(&sender);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&received, files, format, &counted.dropped))?;
        Ok(Self { sender, thread })
    }

    /// The number of lines that were dropped so far.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sender.dropped_total)
    }

    /// Writes the remaining lines and ends the thread.
    pub fn finish(self) {
        let _ = self.sender.channel.send(LogMessage::Stop);
        let _ = self.thread.join();
    }
}

fn write_all(
    received: &Receiver<LogMessage>,
    mut files: LogFiles,
    format: LogFormat,
    dropped: &AtomicU64,
) {
    while let Some(LogMessage::Line(target, text)) = next(received, &mut files) {
        files.line(target, &text);
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            files.line(LogTarget::Server, &loss(lost, format));
        }
    }
    files.flush();
}

/// The line about lines that were dropped.
fn loss(lost: u64, format: LogFormat) -> String {
    let message = format!("{lost} log lines were dropped, because the log is too slow");
    match format {
        LogFormat::Text => message,
        LogFormat::Json => {
            let (level, target, fields) = ("WARN", module_path!(), Map::new());
            LogLine { time: SystemTime::now(), level, target, message, fields }.to_json()
        }
    }
}

/// The next message; before it waits, it writes what is buffered.
fn next(received: &Receiver<LogMessage>, files: &mut LogFiles) -> Option<LogMessage> {
    match received.try_recv() {
        Ok(message) => Some(message),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            files.flush();
            received.recv().ok()
        }
    }
}

/// The console and the log files. Write errors are ignored, since there is nowhere to report them.
pub struct LogFiles {
    console: BufWriter<Box<dyn Write + Send>>,
    server: Option<RollingFile>,
    model: Option<RollingFile>,
}

impl LogFiles {
    /// The console on stdout, and files.
    pub fn stdout(server: Option<RollingFile>, model: Option<RollingFile>) -> Self {
        Self { server, model, ..Self::console(Box::new(io::stdout())) }
    }

    /// Only the console, on stderr.
    pub fn stderr() -> Self {
        Self::console(Box::new(io::stderr()))
    }

    fn console(console: Box<dyn Write + Send>) -> Self {
        Self { console: BufWriter::new(console), server: None, model: None }
    }

    fn line(&mut self, target: LogTarget, text: &str) {
        let file = match target {
            LogTarget::Console => None,
            LogTarget::Server => self.server.as_mut(),
            LogTarget::Model => self.model.as_mut(),
        };
        if let Some(file) = file {
            let _ = file.line(text);
        }
        let _ = writeln!(self.console, "{text}");
    }

    fn flush(&mut self) {
        let _ = self.console.flush();
        for file in [&mut self.server, &mut self.model].into_iter().flatten() {
            let _ = file.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A console that blocks until its channel is closed.
    struct Stuck(std::sync::mpsc::Receiver<()>, Shared);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn text(shared: &Shared) -> String {
        String::from_utf8(shared.0.lock().expect("lock").clone()).expect("text")
    }

    #[test]
    fn finish_writes_the_remaining_lines_in_order() {
        let shared = Shared::default();
        let writer = LogWriter::start(LogFiles::console(Box::new(shared.clone())), LogFormat::Text);
        let writer = writer.expect("starts");
        let sender = Arc::clone(&writer.sender);
        for number in 0..100 {
            sender.send(LogTarget::Server, number.to_string());
        }
        writer.finish();
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(text(&shared), expected);
    }

    #[test]
    fn a_stuck_console_loses_lines_but_no_time_and_the_loss_is_logged() {
        let (unblock, blocked) = sync_channel(1);
        let shared = Shared::default();
        let console = Box::new(Stuck(blocked, shared.clone()));
        let writer = LogWriter::with_capacity(LogFiles::console(console), LogFormat::Json, 4);
        let writer = writer.expect("starts");
        let sender = Arc::clone(&writer.sender);
        for number in 0..1000 {
            sender.send(LogTarget::Server, number.to_string());
        }
        assert!(writer.dropped().load(Ordering::Relaxed) > 0);
        drop(unblock);
        writer.finish();
        assert!(text(&shared).contains("log lines were dropped"), "{}", text(&shared));
    }
}
