//! Sends spans and the audit log's lines to the collector, on the admin plane's thread: many at a time, again after
//! a pause while the collector is away, and the last ones when the server ends.
//!
//! Nobody waits for it. While it cannot send, the queue before it fills up and further records are dropped and
//! counted; the log says so once when it begins and once when it is over.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use jitney_engine::store::ShownUrl;
use jitney_telemetry::trace::{TraceResource, Tracer};
use jitney_telemetry::{AuditLine, ExportQueue, ExportSender, export_queue};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::TracePlan;
use crate::failure::{Failure, cannot};
use crate::fetch::client::{self, error_chain};
use crate::url_rule::UrlRule;

/// Records of one message.
const RECORDS_MAX: usize = 512;
/// The pause after a failure doubles from the first to the second.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long the last records may take once the server has ended.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often dropped records are told while the collector answers.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The running sender.
pub struct OtlpExporter {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Where lines of the audit log go in, and who sends them.
pub type AuditExport = (Arc<ExportSender<AuditLine>>, OtlpExporter);

/// What came of one message.
enum Sent {
    Accepted,
    /// Not now; perhaps after this time.
    Later(Option<Duration>, String),
    /// Never.
    Unwanted(String),
}

/// What is sent, and where.
struct Exported<T> {
    /// What the log calls it.
    name: &'static str,
    url: Url,
    message: fn(&TraceResource, &[T]) -> Bytes,
}

struct RecordSender<T> {
    plan: Arc<TracePlan>,
    exported: Exported<T>,
    client: Client,
    counts: Arc<ExportSender<T>>,
    queue: ExportQueue<T>,
    /// Failures since the last message that was accepted.
    failures: u32,
    /// Dropped records that the log has told of, and when it did last.
    told: (u64, Option<Instant>),
}

impl OtlpExporter {
    /// Begins to send the spans that the tracer is given.
    pub fn spans(plan: &Arc<TracePlan>, runtime: &Handle) -> Result<(Arc<Tracer>, Self), Failure> {
        let (tracer, queue) = Tracer::new(plan.ratio);
        let (name, url) = ("spans", plan.url.clone());
        tracing::info!(url = %shown(&url), "requests are traced");
        let exported = Exported { name, url, message: TraceResource::message };
        let exporter = Self::start(plan, exported, Arc::clone(&tracer.spans), queue, runtime)?;
        Ok((tracer, exporter))
    }

    /// Begins to send the lines of the audit log; nothing where the collector takes traces only.
    pub fn audit(plan: &Arc<TracePlan>, runtime: &Handle) -> Result<Option<AuditExport>, Failure> {
        let Some(url) = plan.logs_url() else { return Ok(None) };
        let (lines, queue) = export_queue();
        let (name, message) = ("lines of the audit log", TraceResource::audit_message);
        let exported = Exported { name, url, message };
        let exporter = Self::start(plan, exported, Arc::clone(&lines), queue, runtime)?;
        Ok(Some((lines, exporter)))
    }

    fn start<T: Send + Sync + 'static>(
        plan: &Arc<TracePlan>,
        exported: Exported<T>,
        counts: Arc<ExportSender<T>>,
        queue: ExportQueue<T>,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let rule = UrlRule::named([exported.url.as_str()]);
        let client = client::make(Arc::new(rule)).map_err(cannot("make an HTTP client"))?;
        let (end, ended) = oneshot::channel();
        let (plan, told) = (Arc::clone(plan), (0, None));
        let sender = RecordSender { plan, exported, client, counts, queue, failures: 0, told };
        Ok(Self { end, task: runtime.spawn(sender.run(ended)) })
    }

    /// Sends what is left, for a short time.
    pub async fn finish(self) {
        let _ = self.end.send(());
        let abort = self.task.abort_handle();
        if timeout(FINISH_TIMEOUT, self.task).await.is_err() {
            abort.abort();
            tracing::warn!("the last spans or lines could not be sent in time");
        }
    }
}

fn shown(url: &Url) -> ShownUrl {
    ShownUrl::of(url.as_str())
}

impl<T> RecordSender<T> {
    async fn run(mut self, mut end: oneshot::Receiver<()>) {
        let mut records = Vec::new();
        let mut ending = false;
        while !ending {
            ending = self.gather(&mut records, &mut end).await;
            if let Some(pause) = self.send(&mut records).await.filter(|_| !ending) {
                ending = tokio::select! {
                    () = sleep(pause) => false,
                    _ = &mut end => true,
                };
            }
        }
        // A collector that is away is tried once more.
        loop {
            self.queue.take_ready(&mut records, RECORDS_MAX);
            if records.is_empty() || self.send(&mut records).await.is_some() {
                break;
            }
        }
        self.counts.drop_records(records.len() as u64);
    }

    /// Waits until there are enough records, or the first of them has waited long enough; true if the server
    /// ends.
    async fn gather(&mut self, records: &mut Vec<T>, end: &mut oneshot::Receiver<()>) -> bool {
        let mut due = (!records.is_empty()).then(Instant::now);
        while records.len() < RECORDS_MAX {
            let until = due.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                _ = &mut *end => return true,
                _ = self.queue.take(records) => {
                    due.get_or_insert_with(|| Instant::now() + self.plan.every);
                    self.queue.take_ready(records, RECORDS_MAX);
                }
                () = sleep_until(until), if due.is_some() => return false,
            }
        }
        false
    }

    /// Sends the records. They stay where they may be sent again, after the pause that is returned.
    async fn send(&mut self, records: &mut Vec<T>) -> Option<Duration> {
        if records.is_empty() {
            return None;
        }
        match self.post((self.exported.message)(&self.plan.resource, records)).await {
            Sent::Accepted => {
                records.clear();
                self.tell_recovery();
                None
            }
            Sent::Unwanted(error) => {
                self.counts.drop_records(records.len() as u64);
                records.clear();
                self.tell_failure(&error);
                None
            }
            Sent::Later(wait, error) => {
                let usual = PAUSE * (1 << self.failures.min(6));
                self.tell_failure(&error);
                Some(wait.unwrap_or(usual).min(PAUSE_MAX))
            }
        }
    }

    async fn post(&self, message: Bytes) -> Sent {
        let mut request = self.client.post(self.exported.url.clone());
        request = request.headers(self.plan.headers.clone()).timeout(self.plan.timeout);
        request = request.header(CONTENT_TYPE, "application/x-protobuf");
        let request = match self.plan.gzip.then(|| compressed(&message)).flatten() {
            Some(short) => request.header(CONTENT_ENCODING, "gzip").body(short),
            None => request.body(message),
        };
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Sent::Later(None, error_chain(&error.without_url())),
        };
        let status = response.status();
        if status.is_success() {
            return Sent::Accepted;
        }
        let error = format!("it answers {status}");
        let again = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        if !again.contains(&status) {
            return Sent::Unwanted(error);
        }
        let wait =
            response.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok()?.parse().ok());
        Sent::Later(wait.map(Duration::from_secs), error)
    }

    fn tell_failure(&mut self, error: &str) {
        if self.failures == 0 {
            tracing::warn!(
                url = %shown(&self.exported.url),
                error,
                "{} cannot be sent; the newest are dropped until the collector takes them again",
                self.exported.name
            );
        }
        self.failures = self.failures.saturating_add(1);
    }

    fn tell_recovery(&mut self) {
        let (dropped, name) = (self.counts.dropped(), self.exported.name);
        let new = dropped - self.told.0;
        if std::mem::take(&mut self.failures) > 0 {
            tracing::info!(url = %shown(&self.exported.url), dropped = new, "{name} are sent again");
        } else if new > 0 && self.told.1.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            tracing::warn!(
                dropped = new,
                "{name} dropped: more come than are sent; for spans a lower trace_sample_ratio helps"
            );
        } else {
            return;
        }
        self.told = (dropped, Some(Instant::now()));
    }
}

fn compressed(message: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message).ok()?;
    encoder.finish().ok()
}
