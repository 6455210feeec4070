//! The audit log: one JSON object per change that somebody made to the server, and per attempt that was denied,
//! with who it was, from where, and what it was before and after.
//!
//! Whoever makes a record leaves out what is secret. Lines are written by a thread of their own, as those of the
//! access log are.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use jitney_net::LogLimit;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::export::ExportSender;
use crate::log_line::{one_line, rfc3339};
use crate::spool::{Spool, WriteTime, line_writer};

const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Refused attempts to manage the server that are written in a second. Chosen: enough for people and scripts, and
/// it takes a flood hours to push older lines out of the files.
const DENIED_PER_SECOND: u32 = 100;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// It was carried out, or goes on.
    Done,
    /// The caller may not do it.
    Denied,
    /// It was allowed, and went wrong.
    Failed,
    /// The caller went away before it was answered; it may still be carried out.
    Abandoned,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct AuditRecord<'a> {
    /// When it ended.
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    /// What was attempted, as plugins are told it; or the setting that names a file or a folder that is followed.
    pub operation: &'a str,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// The name of the caller's key, if one was needed.
    pub who: Option<&'a str>,
    /// The subject of the certificate that the caller showed.
    pub certificate: Option<&'a str>,
    /// Where the caller is, or the file or the folder.
    pub address: &'a str,
    /// The model it is about, if it is known.
    pub model: Option<&'a str>,
    /// The version, if it is known.
    pub version: Option<&'a str>,
    /// The workflow it is about.
    pub workflow: Option<&'a str>,
    /// HTTP's status, or gRPC's code.
    pub status: u16,
    /// What changed, as it was; by the names of versions.
    pub before: Map<String, Value>,
    /// The same as it is now.
    pub after: Map<String, Value>,
    /// The request's id.
    pub request_id: &'a str,
    /// Refused attempts before this one that have no line.
    pub suppressed: u64,
}

/// One line as it is written, for a collector.
#[derive(Clone, Debug)]
pub struct AuditLine {
    pub(crate) time: SystemTime,
    pub(crate) denied: bool,
    pub(crate) text: String,
}

/// The file of these lines, and the collector that gets them too.
#[derive(Debug)]
pub struct AuditLog {
    spool: Spool<Vec<u8>>,
    collector: Option<Arc<ExportSender<AuditLine>>>,
    /// Which denied attempts have a line: those to manage, and all others.
    management: LogLimit,
    others: LogLimit,
}

impl AuditLog {
    /// A log that ends in `sink`. Dropping it writes what is left.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn new(
        sink: Box<dyn Write + Send>,
        collector: Option<Arc<ExportSender<AuditLine>>>,
    ) -> io::Result<Self> {
        let write_out = line_writer(sink, "audit log", |text: &mut Vec<u8>| text);
        Ok(Self {
            spool: Spool::new("audit-log", WriteTime::Soon, write_out)?,
            collector,
            management: LogLimit::per_second(DENIED_PER_SECOND),
            others: LogLimit::default(),
        })
    }

    /// Whether a denied attempt has a line: if so, how many before it had none.
    pub fn pass_denied(&self, management: bool) -> Option<u64> {
        if management { self.management.pass() } else { self.others.pass() }
    }

    /// Notes what a file or a folder that the server follows has changed, as it was and as it is.
    pub fn write_followed(
        &self,
        setting: &str,
        location: &str,
        outcome: AuditOutcome,
        (before, after): (Map<String, Value>, Map<String, Value>),
    ) {
        self.write(&AuditRecord {
            time: SystemTime::now(),
            operation: setting,
            outcome,
            who: None,
            certificate: None,
            address: location,
            model: None,
            version: None,
            workflow: None,
            status: 0,
            before,
            after,
            request_id: "",
            suppressed: 0,
        });
    }

    /// Notes one attempt.
    pub fn write(&self, record: &AuditRecord<'_>) {
        let line = one_line(record);
        self.spool.fill(|text| {
            if text.len() >= BUFFER_BYTES_MAX {
                return 1;
            }
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
            0
        });
        if let Some(collector) = &self.collector {
            let denied = record.outcome == AuditOutcome::Denied;
            collector.push(vec![AuditLine { time: record.time, denied, text: line }]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spool::sink::TestSink;

    fn record() -> AuditRecord<'static> {
        AuditRecord {
            time: SystemTime::UNIX_EPOCH,
            operation: "scale",
            outcome: AuditOutcome::Done,
            who: None,
            certificate: Some("CN=ops\u{202e},O=Example"),
            address: "127.0.0.1:40000",
            model: Some("m"),
            version: None,
            workflow: None,
            status: 200,
            before: Map::from_iter([("m/1".to_owned(), json!({ "minWorkers": 1 }))]),
            after: Map::from_iter([("m/1".to_owned(), json!({ "minWorkers": 2 }))]),
            request_id: "order-17",
            suppressed: 0,
        }
    }

    #[test]
    fn a_line_is_one_object_and_steers_no_terminal() {
        let sink = TestSink::default();
        let log = AuditLog::new(Box::new(sink.clone()), None).unwrap();
        log.write(&record());
        drop(log);
        let text = sink.text();
        assert!(text.is_ascii() && text.lines().count() == 1, "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "time": "1970-01-01T00:00:00.000Z",
            "operation": "scale",
            "outcome": "done",
            "who": null,
            "certificate": "CN=ops\u{202e},O=Example",
            "address": "127.0.0.1:40000",
            "model": "m",
            "version": null,
            "workflow": null,
            "status": 200,
            "before": { "m/1": { "minWorkers": 1 } },
            "after": { "m/1": { "minWorkers": 2 } },
            "request_id": "order-17",
            "suppressed": 0,
        });
        assert_eq!(read, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_denied_attempts_is_counted_and_not_written() {
        let log = AuditLog::new(Box::new(TestSink::default()), None).unwrap();
        let passed = |management| (0..500).filter_map(|_| log.pass_denied(management)).count();
        assert_eq!((passed(true), passed(false)), (100, 1));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert_eq!((log.pass_denied(true), log.pass_denied(false)), (Some(400), Some(499)));
    }
}
