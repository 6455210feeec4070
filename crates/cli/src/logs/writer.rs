//! The one thread that touches log files and the console. Senders never wait for it; what does not
//! fit into the channel is counted, and the count is logged when there is room again.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use super::files::RollingFile;

/// Lines under way at most: half a second of a very talkative server.
const LINES_MAX: usize = 16_384;

/// A place lines go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// The console alone.
    Console,
    /// The console and the server's file.
    Server,
    /// The console and the workers' file.
    Model,
}

enum Message {
    Line(Sink, String),
    Stop,
}

/// The senders' side.
#[derive(Debug)]
pub struct Lines {
    channel: SyncSender<Message>,
    dropped: AtomicU64,
}

impl Lines {
    /// Hands a line over, or counts it as dropped.
    pub fn send(&self, sink: Sink, text: String) {
        if self.channel.try_send(Message::Line(sink, text)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread and the way to it.
pub struct Writer {
    lines: Arc<Lines>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(sinks: Sinks) -> io::Result<Self> {
        Self::with_capacity(sinks, LINES_MAX)
    }

    fn with_capacity(sinks: Sinks, capacity: usize) -> io::Result<Self> {
        let (channel, received) = sync_channel(capacity);
        let lines = Arc::new(Lines { channel, dropped: AtomicU64::new(0) });
        let counted = Arc::clone(&lines);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&received, sinks, &counted.dropped))?;
        Ok(Self { lines, thread })
    }

    /// The senders' side.
    pub fn lines(&self) -> Arc<Lines> {
        Arc::clone(&self.lines)
    }

    /// Writes what was handed over and ends the thread.
    pub fn finish(self) {
        let _ = self.lines.channel.send(Message::Stop);
        let _ = self.thread.join();
    }
}

fn write_all(received: &Receiver<Message>, mut sinks: Sinks, dropped: &AtomicU64) {
    while let Some(Message::Line(sink, text)) = next(received, &mut sinks) {
        sinks.line(sink, &text);
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            sinks.line(
                Sink::Server,
                &format!("{lost} log lines were dropped: the log is too slow for them"),
            );
        }
    }
    sinks.flush();
}

/// The next message; before waiting for one, what is buffered goes out.
fn next(received: &Receiver<Message>, sinks: &mut Sinks) -> Option<Message> {
    match received.try_recv() {
        Ok(message) => Some(message),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            sinks.flush();
            received.recv().ok()
        }
    }
}

/// The places. Write errors are ignored: there is nowhere left to report them.
pub struct Sinks {
    console: BufWriter<Box<dyn Write + Send>>,
    server: Option<RollingFile>,
    model: Option<RollingFile>,
}

impl Sinks {
    /// Only the console, on stdout.
    pub fn stdout() -> Self {
        Self::console(Box::new(io::stdout()))
    }

    /// Only the console, on stderr.
    pub fn stderr() -> Self {
        Self::console(Box::new(io::stderr()))
    }

    fn console(console: Box<dyn Write + Send>) -> Self {
        Self { console: BufWriter::new(console), server: None, model: None }
    }

    /// Adds a file.
    pub fn set(&mut self, sink: Sink, file: Option<RollingFile>) {
        match sink {
            Sink::Console => {}
            Sink::Server => self.server = file,
            Sink::Model => self.model = file,
        }
    }

    fn line(&mut self, sink: Sink, text: &str) {
        let file = match sink {
            Sink::Console => None,
            Sink::Server => self.server.as_mut(),
            Sink::Model => self.model.as_mut(),
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

    /// A console that blocks until told otherwise.
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
    fn finish_writes_what_was_handed_over_in_order() {
        let shared = Shared::default();
        let writer = Writer::start(Sinks::console(Box::new(shared.clone()))).expect("starts");
        let lines = writer.lines();
        for number in 0..100 {
            lines.send(Sink::Server, number.to_string());
        }
        writer.finish();
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(text(&shared), expected);
    }

    #[test]
    fn a_stuck_console_costs_lines_never_time_and_the_loss_is_told() {
        let (unblock, blocked) = sync_channel(1);
        let shared = Shared::default();
        let console = Box::new(Stuck(blocked, shared.clone()));
        let writer = Writer::with_capacity(Sinks::console(console), 4).expect("starts");
        let lines = writer.lines();
        for number in 0..1000 {
            lines.send(Sink::Server, number.to_string());
        }
        assert!(lines.dropped.load(Ordering::Relaxed) > 0);
        drop(unblock);
        writer.finish();
        assert!(text(&shared).contains("log lines were dropped"), "{}", text(&shared));
    }
}
