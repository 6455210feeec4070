//! What can be seen and done while the load runs: the figures of the last second, and an early end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::{Instant, sleep};

use crate::answer::Ending;
use crate::tally::{millis, nanos};
use crate::timeline::coarse;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ends a run early.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    calls: AtomicU32,
    first: OnceLock<Instant>,
}

impl Stop {
    /// The first call ends the load, and what was sent is waited for; the second ends that too.
    pub fn set(&self) {
        self.0.first.get_or_init(Instant::now);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.calls.load(Ordering::Relaxed) > 0
    }

    /// When the load was ended early, if it was.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0.first.get().copied()
    }

    /// Waits for the second call.
    pub(crate) async fn at_once(&self) {
        while self.0.calls.load(Ordering::Relaxed) < 2 {
            sleep(LOOK_EVERY).await;
        }
    }
}

/// What happened within the last second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveFigures {
    /// Seconds since the start.
    pub seconds: u64,
    /// Answers.
    pub answered: u64,
    /// Requests that the server did not take.
    pub rejected: u64,
    /// Requests that failed otherwise.
    pub failed: u64,
    /// Median latency of the answers.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
}

/// What happened on a thread since it was asked last.
#[derive(Debug)]
pub(crate) struct LiveWindow {
    answers: Histogram<u32>,
    rejected: u64,
    failed: u64,
}

impl Default for LiveWindow {
    fn default() -> Self {
        Self { answers: coarse(), rejected: 0, failed: 0 }
    }
}

impl LiveWindow {
    pub(crate) fn record(&mut self, took: Duration, ending: Ending) {
        if ending.is_answer() {
            self.answers.saturating_record(nanos(took));
        } else if ending.is_rejection() {
            self.rejected += 1;
        } else {
            self.failed += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let _ = self.answers.add(&other.answers);
        self.rejected += other.rejected;
        self.failed += other.failed;
    }

    pub(crate) fn figures(&self, seconds: u64) -> LiveFigures {
        LiveFigures {
            seconds,
            answered: self.answers.len(),
            rejected: self.rejected,
            failed: self.failed,
            p50_ms: millis(self.answers.value_at_quantile(0.5)),
            p99_ms: millis(self.answers.value_at_quantile(0.99)),
        }
    }
}
