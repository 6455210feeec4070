//! Requests that are worth a look: the last that failed, and the slowest of the last minutes. They are few, and
//! what they carried is kept only of those that failed, and only where the operator wants it.
//!
//! An answered batch costs one comparison. A writer waits for nobody: while somebody reads, nothing is noted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use crate::admission::HeldBytes;
use crate::call::{CallRoute, HeaderBlock, Parameter, Timing};
use crate::error::CallError;
use crate::pending::PendingRequest;

const FAILED_MAX: usize = 30;
const SLOW_MAX: usize = 10;
/// The slowest of so long are kept.
const SLOW_TIME: Duration = Duration::from_secs(600);
/// Characters of an error, and of the value of a header.
const TEXT_MAX: usize = 500;
const HEADERS_MAX: usize = 30;
/// A longer body is not kept.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Headers with one of these in their name say who somebody is, and are not kept.
const SECRET: [&str; 8] =
    ["auth", "cookie", "token", "key", "secret", "password", "credential", "signature"];

/// A request that is over.
#[derive(Clone, Debug)]
pub struct NotedRequest {
    /// Its id, as the log has it.
    pub id: String,
    /// When it ended.
    pub ended: SystemTime,
    /// From its admission to its end.
    pub latency: Duration,
    /// How its last batch was, if it was in one.
    pub timing: Option<Timing>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What its path said.
    pub route: CallRoute,
    /// The headers that it came with, but for those that name or prove who sent it.
    pub headers: Vec<(String, String)>,
    /// Its body, where such bodies are kept.
    pub body: Option<Arc<KeptBody>>,
}

/// The body of a request that failed, with its share of the memory for requests.
#[derive(Debug)]
pub struct KeptBody {
    /// As it came.
    pub bytes: Bytes,
    _held: HeldBytes,
}

impl KeptBody {
    fn new(request: &PendingRequest) -> Option<Arc<Self>> {
        let [Parameter { value, .. }] = &request.payload.raw()?.parameters[..] else { return None };
        if value.len() > BODY_BYTES_MAX {
            return None;
        }
        let held = request.permit.as_ref()?.account().keep_failed(value.len() as u64)?;
        // A copy, since the request's own bytes may be a piece of something larger.
        Some(Arc::new(Self { bytes: value.pieces().concat().into(), _held: held }))
    }
}

/// Those of one version.
#[derive(Debug, Default)]
pub(crate) struct NotedRequests {
    /// The last one first.
    failed: Mutex<VecDeque<NotedRequest>>,
    /// The slowest first, with when they ended.
    slow: Mutex<Vec<(Instant, NotedRequest)>>,
    /// Nanoseconds; who took no longer is not among the slowest.
    least: AtomicU64,
}

impl NotedRequests {
    /// The first request of a batch was answered. It is the oldest one, as a rule.
    #[inline]
    pub(super) fn answered(&self, request: &PendingRequest, latency: Duration, timing: &Timing) {
        if latency.as_nanos() as u64 > self.least.load(Relaxed) {
            self.slow(request, latency, timing);
        }
    }

    #[cold]
    fn slow(&self, request: &PendingRequest, latency: Duration, timing: &Timing) {
        let Ok(mut slow) = self.slow.try_lock() else { return };
        let at = slow.partition_point(|(_, other)| other.latency >= latency);
        let noted = NotedRequest::new(request, latency, Some(timing), None);
        slow.insert(at, (Instant::now(), noted));
        slow.truncate(SLOW_MAX);
        self.settle(&mut slow);
    }

    /// Forgets those of long ago, so that there is room for the slowest of now.
    pub(super) fn forget_old(&self) {
        if let Ok(mut slow) = self.slow.try_lock() {
            self.settle(&mut slow);
        }
    }

    fn settle(&self, slow: &mut Vec<(Instant, NotedRequest)>) {
        slow.retain(|(at, _)| at.elapsed() < SLOW_TIME);
        let last = slow.get(SLOW_MAX - 1);
        self.least.store(last.map_or(0, |(_, last)| last.latency.as_nanos() as u64), Relaxed);
    }

    /// A request failed.
    #[cold]
    pub(super) fn failed(
        &self,
        request: &PendingRequest,
        error: &CallError,
        timing: Option<&Timing>,
    ) {
        let Ok(mut failed) = self.failed.try_lock() else { return };
        // Several parts of one request are one line.
        if failed.front().is_some_and(|last| last.id == request.payload.id()) {
            return;
        }
        failed.truncate(FAILED_MAX - 1);
        let latency = request.admitted.elapsed();
        let body = KeptBody::new(request);
        let noted = NotedRequest::new(request, latency, timing, Some(error));
        failed.push_front(NotedRequest { body, ..noted });
    }

    /// When and why the last one failed.
    pub(super) fn last_failed(&self) -> Option<(SystemTime, String)> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.front().and_then(|last| Some((last.ended, last.error.clone()?)))
    }

    /// The last that failed, and the slowest.
    pub(super) fn read(&self) -> [Vec<NotedRequest>; 2] {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut slow);
        let slow = slow.iter().map(|(_, request)| request.clone());
        [failed.iter().cloned().collect(), slow.collect()]
    }
}

impl NotedRequest {
    fn new(
        request: &PendingRequest,
        latency: Duration,
        timing: Option<&Timing>,
        error: Option<&CallError>,
    ) -> Self {
        let input = request.payload.raw();
        Self {
            id: request.payload.id().to_owned(),
            ended: SystemTime::now(),
            latency,
            timing: timing.cloned(),
            error: error.map(|error| cut(&error.to_string())),
            route: input.map(|input| input.route.clone()).unwrap_or_default(),
            headers: input.map(|input| shown_headers(&input.headers)).unwrap_or_default(),
            body: None,
        }
    }
}

fn shown_headers(headers: &HeaderBlock) -> Vec<(String, String)> {
    let text = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name).to_lowercase();
        (!SECRET.iter().any(|it| name.contains(it)))
            .then(|| (name, cut(&String::from_utf8_lossy(value))))
    };
    headers.iter().filter_map(text).take(HEADERS_MAX).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_kept_but_for_those_that_tell_who_sent_them() {
        let mut headers = HeaderBlock::new();
        let sent = [("Accept", "text/plain"), ("authorization", "Bearer x"), ("X-Api-Key", "y")];
        sent.iter().for_each(|(name, value)| headers.push(name, value.as_bytes()));
        assert_eq!(shown_headers(&headers), [("accept".to_owned(), "text/plain".to_owned())]);
    }
}
