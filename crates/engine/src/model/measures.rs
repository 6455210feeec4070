//! What a model's task measures about requests and batches, and what the protocols count about calls.
//!
//! Beside the counters, because these are distributions and not totals. Every record is a few relaxed
//! atomic adds; a writer never waits for a reader.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use jitney_batcher::Rejection;

use crate::error::CallError;
use crate::histogram::{
    AtomicHistogram, Distribution, FILL_PERMILLE, ITEMS, RATIO_PERMILLE, TIME_US,
};

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}

/// Why requests are rejected, in the words of the error messages and the metrics.
pub const REJECTIONS: [&str; 10] = [
    "queue_full",
    "too_large",
    "expired",
    "draining",
    "hopeless",
    "overload",
    "quota",
    "no_worker",
    "crowded",
    "bad_input",
];

/// What was measured about the requests and batches of a model version so far.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Microseconds that answered requests waited.
    pub queue_us: Distribution,
    /// Microseconds that answered batches ran.
    pub compute_us: Distribution,
    /// Microseconds from admission to answer.
    pub latency_us: Distribution,
    /// Items of dispatched batches.
    pub batch_items: Distribution,
    /// Thousandths of a full batch that they were.
    pub fill_permille: Distribution,
    /// Thousandths of the predicted time that batches took.
    pub prediction_permille: Distribution,
    /// Rejected requests, in the order of [`REJECTIONS`].
    pub rejections: [(&'static str, u64); REJECTIONS.len()],
    /// Microseconds that the last answered batch ran, if there was one.
    pub compute_last_us: Option<u64>,
}

/// Calls to a model version, counted by the protocols.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Requests for a prediction.
    pub requests: AtomicU64,
    /// Microseconds that answered ones waited in the queue.
    pub queue_us: AtomicU64,
    /// Microseconds that answered ones took.
    pub latency_us: AtomicU64,
}

impl Traffic {
    /// A prediction was asked for.
    pub fn asked(&self) {
        add(&self.requests, 1);
    }

    /// It was answered.
    pub fn answered(&self, queue: Duration, latency: Duration) {
        add(&self.queue_us, queue.as_micros() as u64);
        add(&self.latency_us, latency.as_micros() as u64);
    }
}

#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) queue_us: AtomicHistogram,
    pub(crate) compute_us: AtomicHistogram,
    pub(crate) latency_us: AtomicHistogram,
    batch_items: AtomicHistogram,
    fill_permille: AtomicHistogram,
    prediction_permille: AtomicHistogram,
    rejections: [AtomicU64; REJECTIONS.len()],
    /// One more than the microseconds, so that 0 means never.
    compute_last_us: AtomicU64,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            queue_us: AtomicHistogram::new(TIME_US),
            compute_us: AtomicHistogram::new(TIME_US),
            latency_us: AtomicHistogram::new(TIME_US),
            batch_items: AtomicHistogram::new(ITEMS),
            fill_permille: AtomicHistogram::new(FILL_PERMILLE),
            prediction_permille: AtomicHistogram::new(RATIO_PERMILLE),
            rejections: Default::default(),
            compute_last_us: AtomicU64::new(0),
        }
    }
}

impl Meters {
    /// A batch was dispatched.
    pub(super) fn dispatched(&self, items: u32, items_max: u32) {
        self.batch_items.record(items.into());
        self.fill_permille.record(u64::from(items) * 1000 / u64::from(items_max.max(1)));
    }

    /// A batch was answered.
    pub(super) fn computed(&self, compute: Duration) {
        let compute_us = compute.as_micros() as u64;
        self.compute_us.record(compute_us);
        self.compute_last_us.store(compute_us + 1, Relaxed);
    }

    /// A batch took so long; it was expected to take `predicted`.
    pub(super) fn was_predicted(&self, predicted: Duration, compute: Duration) {
        let permille = compute.as_nanos() * 1000 / predicted.as_nanos().max(1);
        self.prediction_permille.record(u64::try_from(permille).unwrap_or(u64::MAX));
    }

    /// A request was answered.
    pub(super) fn answered(&self, queue: Duration, latency: Duration) {
        self.queue_us.record(queue.as_micros() as u64);
        self.latency_us.record(latency.as_micros() as u64);
    }

    /// A request ended with this error; counted if that is a rejection.
    pub(super) fn rejected(&self, error: &CallError) {
        if let Some(index) = rejection(error) {
            add(&self.rejections[index], 1);
        }
    }

    pub(super) fn read(&self) -> Measures {
        let count = |index: usize| (REJECTIONS[index], self.rejections[index].load(Relaxed));
        Measures {
            queue_us: self.queue_us.read(),
            compute_us: self.compute_us.read(),
            latency_us: self.latency_us.read(),
            batch_items: self.batch_items.read(),
            fill_permille: self.fill_permille.read(),
            prediction_permille: self.prediction_permille.read(),
            rejections: std::array::from_fn(count),
            compute_last_us: self.compute_last_us.load(Relaxed).checked_sub(1),
        }
    }
}

/// The position in [`REJECTIONS`].
fn rejection(error: &CallError) -> Option<usize> {
    match error {
        CallError::Rejected { reason, .. } => match reason {
            Rejection::QueueFull => Some(0),
            Rejection::TooLarge => Some(1),
            Rejection::Expired => Some(2),
            Rejection::Draining => Some(3),
            Rejection::Hopeless => Some(4),
            Rejection::Overload => Some(5),
            Rejection::Quota => Some(6),
            Rejection::NoWorker => Some(7),
            // Its client went away: abandoned, not rejected.
            Rejection::Cancelled => None,
        },
        CallError::Sequence(_) => Some(0),
        CallError::ServerFull { .. } => Some(8),
        CallError::BadInput(_) => Some(9),
        CallError::Model(_)
        | CallError::WorkerExited { .. }
        | CallError::SlowReader
        | CallError::Gone => None,
    }
}
