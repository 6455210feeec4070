//! The access log: one line per request, in TorchServe's form; where the dialect is ours with the request's id.
//!
//! The hot path only appends to a buffer in memory; a thread of its own writes it out. When the disk
//! is stuck the buffer stays bounded: lines are dropped and counted, requests never wait.

use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, Version};

use crate::dialect::Dialect;
use crate::log_limit::LogLimit;
use crate::log_text::{LogClock, escape_from, push_number};
use crate::request_id::XRequestId;
use crate::spool::{Spool, WriteTime};

const BUFFER_BYTES_MAX: usize = 4 << 20;

/// One line.
#[derive(Clone, Copy)]
pub struct AccessRecord<'a> {
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
    /// The request's id, where lines name it.
    pub request_id: Option<&'a str>,
}

/// The id that a line names: TorchServe's lines have none.
pub(crate) fn shown_id(dialect: Dialect, id: &XRequestId) -> Option<&str> {
    (dialect == Dialect::Jitney).then(|| id.text())
}

/// One line per request, such as
/// `2025-01-01T00:00:00,123 - /127.0.0.1:40000 "POST /predictions/noop HTTP/1.1" 200 3`, where it is named
/// with ` request_id=ID` behind it.
#[derive(Debug)]
pub struct AccessLog(Spool<AccessBuffer>);

impl AccessLog {
    /// A log that ends in `sink`. Dropping it writes what is left.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn new(mut sink: Box<dyn Write + Send>, time: WriteTime) -> std::io::Result<Self> {
        let (mut lost, slow, broken) = (0, LogLimit::default(), LogLimit::default());
        let write_out = move |buffer: &mut AccessBuffer, dropped| {
            lost += dropped;
            if lost > 0 && slow.pass().is_some() {
                let dropped = std::mem::take(&mut lost);
                tracing::warn!(dropped, "access log lines dropped, the disk is too slow");
            }
            if let Err(error) = sink.write_all(&buffer.text).and_then(|()| sink.flush())
                && let Some(suppressed) = broken.pass()
            {
                tracing::warn!(%error, suppressed, "cannot write the access log");
            }
            buffer.text.clear();
        };
        Ok(Self(Spool::new("access-log", time, write_out)?))
    }

    /// Notes one request.
    pub fn write(&self, line: &AccessRecord<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.fill(|buffer| buffer.push(now, line));
    }
}

#[derive(Debug, Default)]
struct AccessBuffer {
    text: Vec<u8>,
    clock: LogClock,
}

impl AccessBuffer {
    /// Adds a line; returns the number of dropped ones.
    fn push(&mut self, now: Duration, line: &AccessRecord<'_>) -> u64 {
        let Self { text, clock } = self;
        if text.len() >= BUFFER_BYTES_MAX {
            return 1;
        }
        let AccessRecord { address, method, uri, version, status, took, request_id } = line;
        let start = text.len();
        clock.push(now, text);
        text.extend_from_slice(b" - ");
        text.extend_from_slice(address.as_bytes());
        text.extend_from_slice(b" \"");
        text.extend_from_slice(method.as_str().as_bytes());
        text.push(b' ');
        // Writing to memory does not fail.
        let _ = match *version {
            Version::HTTP_11 => write!(text, "{uri} HTTP/1.1"),
            version => write!(text, "{uri} {version:?}"),
        };
        text.extend_from_slice(b"\" ");
        push_number(text, u64::from(*status));
        text.push(b' ');
        push_number(text, took.as_millis() as u64);
        if let Some(id) = request_id {
            text.extend_from_slice(b" request_id=");
            text.extend_from_slice(id.as_bytes());
        }
        escape_from(start, text);
        text.push(b'\n');
        0
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;
    use crate::spool::sink::TestSink;

    fn line(uri: &Uri) -> AccessRecord<'_> {
        AccessRecord {
            address: "/127.0.0.1:40000",
            method: &Method::POST,
            uri,
            version: Version::HTTP_11,
            status: 200,
            took: Duration::from_micros(3_900),
            request_id: None,
        }
    }

    #[test]
    fn a_line_reads_as_torchserves() {
        let uri = "/predictions/noop?mark=1".parse().unwrap();
        let mut buffer = AccessBuffer::default();
        buffer.push(Duration::from_millis(1_735_689_600_123), &line(&uri));
        let expected = "2025-01-01T00:00:00,123 - /127.0.0.1:40000 \
            \"POST /predictions/noop?mark=1 HTTP/1.1\" 200 3\n";
        assert_eq!(String::from_utf8(buffer.text).unwrap(), expected);
    }

    #[test]
    fn a_grpc_call_reads_as_torchserves() {
        let mut buffer = AccessBuffer::default();
        let line = AccessRecord {
            address: "/127.0.0.1:40000",
            method: &Method::from_bytes(b"gRPC").unwrap(),
            uri: &"org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping",
            version: Version::HTTP_2,
            status: 0,
            took: Duration::from_millis(3),
            request_id: None,
        };
        buffer.push(Duration::from_millis(1_735_689_600_123), &line);
        let expected = "2025-01-01T00:00:00,123 - /127.0.0.1:40000 \
            \"gRPC org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping HTTP/2.0\" 0 3\n";
        assert_eq!(String::from_utf8(buffer.text).unwrap(), expected);
    }

    #[test]
    fn our_lines_name_the_request() {
        let uri = "/m".parse().unwrap();
        let (mut buffer, id) = (AccessBuffer::default(), Some("order-17"));
        buffer.push(Duration::ZERO, &AccessRecord { request_id: id, ..line(&uri) });
        let text = String::from_utf8(buffer.text).unwrap();
        assert!(text.ends_with("\"POST /m HTTP/1.1\" 200 3 request_id=order-17\n"), "{text}");
    }

    #[test]
    fn a_callers_text_forges_no_line() {
        let mut buffer = AccessBuffer::default();
        let uri = "/m/x HTTP/1.1\" 200 0\n2025-01-01T00:00:00,000 - /10.0.0.9:1 \"DELETE /\x1b[31m";
        let method = Method::from_bytes(b"PYTHON").unwrap();
        let forged = "/ping".parse().unwrap();
        buffer.push(Duration::ZERO, &AccessRecord { uri: &uri, method: &method, ..line(&forged) });
        let text = String::from_utf8(buffer.text).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("200 0\\n2025") && text.contains("\\x1b[31m"), "{text}");
    }

    #[test]
    fn dropping_the_log_writes_what_is_left() {
        let (sink, uri) = (TestSink::default(), "/ping".parse().unwrap());
        let log = AccessLog::new(Box::new(sink.clone()), WriteTime::Soon).unwrap();
        for _ in 0..3 {
            log.write(&line(&uri));
        }
        drop(log);
        assert_eq!(sink.text().lines().count(), 3);
    }

    #[test]
    fn a_full_buffer_drops_lines_instead_of_growing() {
        let uri = "/ping".parse().unwrap();
        let mut buffer =
            AccessBuffer { text: vec![0; BUFFER_BYTES_MAX], ..AccessBuffer::default() };
        let dropped = buffer.push(Duration::ZERO, &line(&uri));
        assert_eq!((buffer.text.len(), dropped), (BUFFER_BYTES_MAX, 1));
    }
}
