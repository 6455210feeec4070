//! What a model's task publishes: written by the task alone, read by others at any time.
//!
//! Numbers are separate atomics and may be a moment apart from each other; that is enough for a
//! description or a metric, and costs the task nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use jitney_batcher::{CurvePoint, Dispatch, DispatchReason, Padding};

use super::measures::{Meters, add};
use crate::pool::WorkerView;

/// The reasons for which batches are dispatched, in the order of [`Counters::dispatches`].
pub const DISPATCH_REASONS: [DispatchReason; 7] = [
    DispatchReason::Full,
    DispatchReason::Idle,
    DispatchReason::Window,
    DispatchReason::Deadline,
    DispatchReason::Everyone,
    DispatchReason::Drain,
    DispatchReason::Retry,
];

/// Running totals of one model version.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Requests that came.
    pub requests: u64,
    /// Requests that the model answered.
    pub answered: u64,
    /// Requests rejected before the model saw them.
    pub rejected: u64,
    /// Requests on which the model or its worker failed.
    pub failed: u64,
    /// Requests whose client went away.
    pub abandoned: u64,
    /// Requests that were tried more than once.
    pub retried: u64,
    /// Batches that were dispatched.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Microseconds that answered requests waited.
    pub queue_us: u64,
    /// Microseconds that answered batches ran.
    pub compute_us: u64,
    /// Microseconds from admission to answer.
    pub latency_us: u64,
    /// Dispatched batches by reason.
    pub dispatches: [(&'static str, u64); 7],
    /// What dispatched batches cost without and with padding, where the model pads.
    pub padding: Padding,
}

/// A look at a model version.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its workers.
    pub workers: Vec<WorkerView>,
    /// Workers wanted.
    pub workers_min: u32,
    /// Workers allowed.
    pub workers_max: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests that may wait.
    pub queue_max: u32,
    /// Running totals.
    pub counters: Counters,
}

/// The published state of one model version.
#[derive(Debug, Default)]
pub(crate) struct ModelState {
    pub(crate) workers: ArcSwap<Vec<WorkerView>>,
    /// Whether a worker serves or is being started; without one nothing is admitted.
    pub(crate) has_workers: AtomicBool,
    pub(crate) unhealthy: AtomicBool,
    pub(crate) waiting: AtomicU32,
    pub(crate) requests: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) items: AtomicU64,
    pub(crate) meters: Meters,
    pub(crate) dispatches: [AtomicU64; 7],
    cost_real: AtomicU64,
    cost_padded: AtomicU64,
    /// The learned service times, as of the last time the task had a moment.
    pub(crate) curve: ArcSwap<Vec<CurvePoint>>,
}

impl ModelState {
    /// Counts a batch that is dispatched.
    pub(super) fn dispatched(&self, dispatch: &Dispatch, items_max: u32) {
        let Dispatch { items, reason, padding, .. } = *dispatch;
        if let Some(index) = DISPATCH_REASONS.iter().position(|known| *known == reason) {
            add(&self.dispatches[index], 1);
        }
        if let Some(Padding { real, padded }) = padding {
            add(&self.cost_real, real);
            add(&self.cost_padded, padded);
        }
        self.meters.dispatched(items, items_max);
        add(&self.batches, 1);
        add(&self.items, u64::from(items));
    }

    pub(crate) fn status(&self, queue_max: u32, target: (u32, u32)) -> Status {
        Status {
            workers: Vec::clone(&self.workers.load()),
            workers_min: target.0,
            workers_max: target.1,
            waiting: self.waiting.load(Ordering::Relaxed),
            queue_max,
            counters: self.counters(),
        }
    }

    pub(crate) fn publish_workers(&self, workers: Vec<WorkerView>) {
        self.workers.store(Arc::new(workers));
    }

    fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            requests: read(&self.requests),
            answered: read(&self.answered),
            rejected: read(&self.rejected),
            failed: read(&self.failed),
            abandoned: read(&self.abandoned),
            retried: read(&self.retried),
            batches: read(&self.batches),
            items: read(&self.items),
            queue_us: self.meters.queue_us.sum(),
            compute_us: self.meters.compute_us.sum(),
            latency_us: self.meters.latency_us.sum(),
            dispatches: std::array::from_fn(|index| {
                (DISPATCH_REASONS[index].as_str(), read(&self.dispatches[index]))
            }),
            padding: Padding { real: read(&self.cost_real), padded: read(&self.cost_padded) },
        }
    }
}
