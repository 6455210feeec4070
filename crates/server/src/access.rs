//! The access log: one line per request, in TorchServe's words.
//!
//! The hot path only appends to a buffer in memory; a thread of its own writes it out. When the disk
//! is stuck the buffer stays bounded: lines are dropped and counted, requests never wait.

use std::fmt::Display;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, Version};

const BUFFER_BYTES_MAX: usize = 4 << 20;
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// What a line says.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// The client, as `/127.0.0.1:40000`.
    pub address: &'a str,
    /// The method.
    pub method: &'a Method,
    /// Path and query as they came; the full method of a gRPC call.
    pub uri: &'a dyn Display,
    /// The protocol.
    pub version: Version,
    /// The answer's status.
    pub status: u16,
    /// From the request's head to the answer's.
    pub took: Duration,
}

/// One line per request, such as
/// `2025-01-01T00:00:00,123 - /127.0.0.1:40000 "POST /predictions/noop HTTP/1.1" 200 3`.
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// Woken only to end.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Buffer {
    lines: Vec<u8>,
    dropped: u64,
    ending: bool,
    /// The second whose text `clock` holds.
    second: u64,
    clock: String,
}

impl AccessLog {
    /// A log that ends in `sink`. Dropping it writes what is left.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn new(sink: Box<dyn Write + Send>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || theirs.write_out(sink))?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// Notes one request.
    pub fn write(&self, line: &Line<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.shared.lock().push(now, line);
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two buffers change places, so that neither is ever allocated again.
    fn write_out(&self, mut sink: Box<dyn Write + Send>) {
        let mut spare = Vec::new();
        let mut ending = false;
        while !ending {
            let waited =
                self.wake.wait_timeout_while(self.lock(), FLUSH_EVERY, |buffer| !buffer.ending);
            let (mut buffer, _) = waited.unwrap_or_else(PoisonError::into_inner);
            ending = buffer.ending;
            std::mem::swap(&mut buffer.lines, &mut spare);
            let dropped = std::mem::take(&mut buffer.dropped);
            drop(buffer);
            if dropped > 0 {
                tracing::warn!(dropped, "access log lines dropped, the disk is too slow");
            }
            if let Err(error) = sink.write_all(&spare).and_then(|()| sink.flush()) {
                tracing::warn!(%error, "cannot write the access log");
            }
            spare.clear();
        }
    }
}

impl Buffer {
    fn push(&mut self, now: Duration, line: &Line<'_>) {
        if self.lines.len() >= BUFFER_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        if self.second != now.as_secs() || self.clock.is_empty() {
            self.second = now.as_secs();
            let second = UNIX_EPOCH + Duration::from_secs(self.second);
            self.clock = humantime::format_rfc3339_seconds(second).to_string();
            self.clock.truncate("2025-01-01T00:00:00".len());
        }
        let Line { address, method, uri, version, status, took } = line;
        let (clock, millis) = (&self.clock, now.subsec_millis());
        // Writing to memory does not fail.
        let _ = writeln!(
            self.lines,
            "{clock},{millis:03} - {address} \"{method} {uri} {version:?}\" {status} {}",
            took.as_millis()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn line(uri: &Uri) -> Line<'_> {
        Line {
            address: "/127.0.0.1:40000",
            method: &Method::POST,
            uri,
            version: Version::HTTP_11,
            status: 200,
            took: Duration::from_micros(3_900),
        }
    }

    #[test]
    fn a_line_reads_as_torchserves() {
        let uri = "/predictions/noop?mark=1".parse().unwrap();
        let mut buffer = Buffer::default();
        buffer.push(Duration::from_millis(1_735_689_600_123), &line(&uri));
        let expected = "2025-01-01T00:00:00,123 - /127.0.0.1:40000 \
            \"POST /predictions/noop?mark=1 HTTP/1.1\" 200 3\n";
        assert_eq!(String::from_utf8(buffer.lines).unwrap(), expected);
    }

    #[test]
    fn a_grpc_call_reads_as_torchserves() {
        let mut buffer = Buffer::default();
        let line = Line {
            address: "/127.0.0.1:40000",
            method: &Method::from_bytes(b"gRPC").unwrap(),
            uri: &"org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping",
            version: Version::HTTP_2,
            status: 0,
            took: Duration::from_millis(3),
        };
        buffer.push(Duration::from_millis(1_735_689_600_123), &line);
        let expected = "2025-01-01T00:00:00,123 - /127.0.0.1:40000 \
            \"gRPC org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping HTTP/2.0\" 0 3\n";
        assert_eq!(String::from_utf8(buffer.lines).unwrap(), expected);
    }

    #[test]
    fn dropping_the_log_writes_what_is_left() {
        let (sink, uri) = (Sink::default(), "/ping".parse().unwrap());
        let log = AccessLog::new(Box::new(sink.clone())).unwrap();
        for _ in 0..3 {
            log.write(&line(&uri));
        }
        drop(log);
        assert_eq!(sink.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count(), 3);
    }

    #[test]
    fn a_full_buffer_drops_lines_instead_of_growing() {
        let uri = "/ping".parse().unwrap();
        let mut buffer = Buffer { lines: vec![0; BUFFER_BYTES_MAX], ..Buffer::default() };
        buffer.push(Duration::ZERO, &line(&uri));
        assert_eq!((buffer.lines.len(), buffer.dropped), (BUFFER_BYTES_MAX, 1));
    }
}
