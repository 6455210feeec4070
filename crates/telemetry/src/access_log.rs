//! The access log: one line per request, in TorchServe's form or as a JSON object; with the request's id where
//! the dialect is ours.
//!
//! The hot path only appends to a buffer in memory; a thread of its own writes it out. When the disk
//! is stuck the buffer stays bounded: lines are dropped and counted, requests never wait.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, Version};
use jitney_net::push_number;
use jitney_net::request_id::XRequestId;
use jitney_settings::Dialect;
use jitney_settings::LogFormat;
use serde_json::json;

use crate::log_line::{self, LogLine};
use crate::log_text::{LogClock, escape_from};
use crate::spool::{Spool, WriteTime, line_writer};
use crate::trace::RequestTrace;

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
    /// By what the request is known elsewhere, where lines tell that.
    pub names: Option<RecordNames<'a>>,
}

/// By what the request of a line is known elsewhere.
#[derive(Clone, Copy)]
pub struct RecordNames<'a> {
    /// Its id.
    pub request_id: &'a str,
    /// The id of its trace, if it is traced.
    pub trace_id: Option<&'a dyn Display>,
}

impl<'a> RecordNames<'a> {
    /// What a line tells: TorchServe's lines have none of it.
    pub fn of(
        dialect: Dialect,
        id: &'a XRequestId,
        trace: Option<&'a Arc<RequestTrace>>,
    ) -> Option<Self> {
        let trace_id = trace.map(|trace| trace.id() as &dyn Display);
        (dialect == Dialect::Jitney).then(|| Self { request_id: id.text(), trace_id })
    }
}

/// One line per request, such as
/// `2025-01-01T00:00:00,123 - /127.0.0.1:40000 "POST /predictions/noop HTTP/1.1" 200 3`, where it is named
/// with ` request_id=ID` and ` trace_id=ID` behind it.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    spool: Spool<AccessBuffer>,
}

impl AccessLog {
    /// A log that ends in `sink`. Dropping it writes what is left.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn new(
        sink: Box<dyn Write + Send>,
        time: WriteTime,
        format: LogFormat,
    ) -> std::io::Result<Self> {
        let write_out =
            line_writer(sink, "access log", |buffer: &mut AccessBuffer| &mut buffer.text);
        Ok(Self { format, spool: Spool::new("access-log", time, write_out)? })
    }

    /// Notes one request.
    pub fn write(&self, line: &AccessRecord<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.spool.fill(|buffer| match self.format {
            LogFormat::Text => buffer.push(now, line),
            LogFormat::Json => buffer.push_json(now, line),
        });
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
        let AccessRecord { address, method, uri, version, status, took, names } = line;
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
        if let Some(RecordNames { request_id, trace_id }) = names {
            text.extend_from_slice(b" request_id=");
            text.extend_from_slice(request_id.as_bytes());
            if let Some(trace_id) = trace_id {
                let _ = write!(text, " trace_id={trace_id}");
            }
        }
        escape_from(start, text);
        text.push(b'\n');
        0
    }

    /// Adds a JSON line; returns the number of dropped ones.
    fn push_json(&mut self, now: Duration, line: &AccessRecord<'_>) -> u64 {
        let Self { text, .. } = self;
        if text.len() >= BUFFER_BYTES_MAX {
            return 1;
        }
        let AccessRecord { address, method, uri, version, status, took, names } = line;
        let uri = uri.to_string();
        let fields = [
            ("address", json!(address)),
            ("method", json!(method.as_str())),
            ("uri", json!(uri)),
            ("protocol", json!(format!("{version:?}"))),
            ("status", json!(status)),
            ("ms", json!(log_line::millis(*took))),
        ];
        let request_id = names.map(|names| ("request_id", json!(names.request_id)));
        let trace_id = names.and_then(|names| names.trace_id);
        let trace_id = trace_id.map(|trace_id| ("trace_id", json!(trace_id.to_string())));
        let named = request_id.into_iter().chain(trace_id);
        let line = LogLine {
            time: UNIX_EPOCH + now,
            level: "INFO",
            target: "jitney::access",
            message: format!("{method} {uri} {status}"),
            fields: fields
                .into_iter()
                .chain(named)
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        text.extend_from_slice(line.to_json().as_bytes());
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
            names: None,
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
            names: None,
        };
        buffer.push(Duration::from_millis(1_735_689_600_123), &line);
        let expected = "2025-01-01T00:00:00,123 - /127.0.0.1:40000 \
            \"gRPC org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping HTTP/2.0\" 0 3\n";
        assert_eq!(String::from_utf8(buffer.text).unwrap(), expected);
    }

    #[test]
    fn our_lines_name_the_request() {
        let uri = "/m".parse().unwrap();
        let mut buffer = AccessBuffer::default();
        let names = RecordNames { request_id: "order-17", trace_id: Some(&"4b") };
        buffer.push(Duration::ZERO, &AccessRecord { names: Some(names), ..line(&uri) });
        let text = String::from_utf8(buffer.text).unwrap();
        assert!(
            text.ends_with("\"POST /m HTTP/1.1\" 200 3 request_id=order-17 trace_id=4b\n"),
            "{text}"
        );
    }

    #[test]
    fn a_json_line_has_the_facts_as_fields() {
        let uri = "/predictions/noop?mark=1".parse().unwrap();
        let mut buffer = AccessBuffer::default();
        let names = Some(RecordNames { request_id: "order-17", trace_id: None });
        let line = AccessRecord { names, ..line(&uri) };
        buffer.push_json(Duration::from_millis(1_735_689_600_123), &line);
        let read: serde_json::Value = serde_json::from_slice(&buffer.text).unwrap();
        let expected = json!({
            "time": "2025-01-01T00:00:00.123Z",
            "level": "INFO",
            "target": "jitney::access",
            "message": "POST /predictions/noop?mark=1 200",
            "fields": {
                "address": "/127.0.0.1:40000",
                "method": "POST",
                "uri": "/predictions/noop?mark=1",
                "protocol": "HTTP/1.1",
                "status": 200,
                "ms": 3.9,
                "request_id": "order-17",
            },
        });
        assert_eq!(read, expected);
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
        let log = AccessLog::new(Box::new(sink.clone()), WriteTime::Soon, LogFormat::Text).unwrap();
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
