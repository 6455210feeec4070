//! Sends spans to the collector, on the admin plane's thread: many at a time, again after a pause while the
//! collector is away, and the last ones when the server ends.
//!
//! Nobody waits for it. While it cannot send, the queue before it fills up and further spans are dropped and
//! counted; the log says so once when it begins and once when it is over.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jitney_engine::store::ShownUrl;
use jitney_telemetry::trace::{SpanQueue, SpanRecord, Tracer};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::TracePlan;
use crate::failure::{Failure, cannot};
use crate::fetch::client::{self, error_chain};
use crate::url_rule::UrlRule;

/// Spans of one message.
const SPANS_MAX: usize = 512;
/// The pause after a failure doubles from the first to the second.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long the last spans may take once the server has ended.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often dropped spans are told while the collector answers.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The running sender.
pub struct SpanExporter {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What came of one message.
enum Sent {
    Accepted,
    /// Not now; perhaps after this time.
    Later(Option<Duration>, String),
    /// Never.
    Unwanted(String),
}

struct SpanSender {
    plan: TracePlan,
    client: Client,
    tracer: Arc<Tracer>,
    queue: SpanQueue,
    /// Failures since the last message that was accepted.
    failures: u32,
    /// Dropped spans that the log has told of, and when it did last.
    told: (u64, Option<Instant>),
}

impl SpanExporter {
    /// Begins to send what the tracer is given.
    pub fn start(plan: TracePlan, runtime: &Handle) -> Result<(Arc<Tracer>, Self), Failure> {
        let rule = UrlRule::named([plan.url.as_str()]);
        let client = client::make(Arc::new(rule)).map_err(cannot("make an HTTP client"))?;
        let (tracer, queue) = Tracer::new(plan.ratio);
        tracing::info!(url = %shown(&plan), "requests are traced");
        let (end, ended) = oneshot::channel();
        let sender = SpanSender {
            plan,
            client,
            tracer: Arc::clone(&tracer),
            queue,
            failures: 0,
            told: (0, None),
        };
        Ok((tracer, Self { end, task: runtime.spawn(sender.run(ended)) }))
    }

    /// Sends what is left, for a short time.
    pub async fn finish(self) {
        let _ = self.end.send(());
        let abort = self.task.abort_handle();
        if timeout(FINISH_TIMEOUT, self.task).await.is_err() {
            abort.abort();
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}

fn shown(plan: &TracePlan) -> ShownUrl {
    ShownUrl::of(plan.url.as_str())
}

impl SpanSender {
    async fn run(mut self, mut end: oneshot::Receiver<()>) {
        let mut spans = Vec::new();
        let mut ending = false;
        while !ending {
            ending = self.gather(&mut spans, &mut end).await;
            if let Some(pause) = self.send(&mut spans).await.filter(|_| !ending) {
                ending = tokio::select! {
                    () = sleep(pause) => false,
                    _ = &mut end => true,
                };
            }
        }
        // A collector that is away is tried once more.
        loop {
            self.queue.take_ready(&mut spans, SPANS_MAX);
            if spans.is_empty() || self.send(&mut spans).await.is_some() {
                break;
            }
        }
        self.tracer.drop_spans(spans.len() as u64);
    }

    /// Waits until there are enough spans, or the first of them has waited long enough; true if the server
    /// ends.
    async fn gather(
        &mut self,
        spans: &mut Vec<SpanRecord>,
        end: &mut oneshot::Receiver<()>,
    ) -> bool {
        let mut due = (!spans.is_empty()).then(Instant::now);
        while spans.len() < SPANS_MAX {
            let until = due.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                _ = &mut *end => return true,
                _ = self.queue.take(spans) => {
                    due.get_or_insert_with(|| Instant::now() + self.plan.every);
                    self.queue.take_ready(spans, SPANS_MAX);
                }
                () = sleep_until(until), if due.is_some() => return false,
            }
        }
        false
    }

    /// Sends the spans. They stay where they may be sent again, after the pause that is returned.
    async fn send(&mut self, spans: &mut Vec<SpanRecord>) -> Option<Duration> {
        if spans.is_empty() {
            return None;
        }
        match self.post(spans).await {
            Sent::Accepted => {
                spans.clear();
                self.tell_recovery();
                None
            }
            Sent::Unwanted(error) => {
                self.tracer.drop_spans(spans.len() as u64);
                spans.clear();
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

    async fn post(&self, spans: &[SpanRecord]) -> Sent {
        let message = self.plan.resource.message(spans);
        let mut request = self.client.post(self.plan.url.clone());
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
                url = %shown(&self.plan),
                error,
                "spans cannot be sent; the newest are dropped until the collector takes them again"
            );
        }
        self.failures = self.failures.saturating_add(1);
    }

    fn tell_recovery(&mut self) {
        let dropped = self.tracer.dropped();
        let new = dropped - self.told.0;
        if std::mem::take(&mut self.failures) > 0 {
            tracing::info!(url = %shown(&self.plan), dropped = new, "spans are sent again");
        } else if new > 0 && self.told.1.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            tracing::warn!(
                dropped = new,
                "spans dropped: more come than are sent; a lower trace_sample_ratio helps"
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
