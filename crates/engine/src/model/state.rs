//! What a model's task publishes: written by the task alone, read by others at any time.
//!
//! Numbers are separate atomics and may be a moment apart from each other; that is enough for a
//! description or a metric, and costs the task nothing. Beside the totals are distributions, and what
//! the protocols count about calls. Every record is a few relaxed atomic adds; a writer never waits for
//! a reader.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use jitney_batcher::{CurvePoint, Dispatch, Rejection};
use tokio::time::Instant;

use super::capacity::CapacityReport;
use super::incidents::{IncidentReport, Incidents, PoisonList};
use super::noted::NotedRequests;
use super::readiness::Readiness;
use super::statistics::{BatchMeter, BatchTotals, EndpointMeters};
use crate::error::CallError;
use crate::histogram::{
    AtomicHistogram, Distribution, FILL_PERMILLE, LOAD_US, RATIO_PERMILLE, TIME_US, TimeHistogram,
};
use crate::outcome::LoadFailure;
use crate::pool::{BatchTimes, LoadProgress, WorkerView};
use crate::shadow::Occupancy;

/// Running totals of one model version.
#[derive(Clone, Debug, Default)]
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
    /// Answered requests whose answer came after their deadline or objective.
    pub late: u64,
    /// Times that it left memory for other models.
    pub left: u64,
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
    /// How many of those are wanted now, and why, where they follow the load.
    pub capacity: Option<CapacityReport>,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests that may wait.
    pub queue_max: u32,
    /// Running totals.
    pub counters: Counters,
    /// What went wrong with its workers.
    pub incidents: IncidentReport,
}

/// The published state of one model version.
#[derive(Debug, Default)]
pub(crate) struct ModelState {
    pub(crate) workers: ArcSwap<Vec<WorkerView>>,
    /// Whether requests are admitted: a worker serves, or one is being started and the last load did
    /// not fail.
    pub(crate) admits: AtomicBool,
    /// Whether the first request starts a worker.
    pub(crate) from_zero: AtomicBool,
    /// Whether its task has begun.
    pub(crate) begun: AtomicBool,
    /// The fewest and the most workers that were asked for last. The two may be read a moment apart,
    /// which a later change sets right.
    pub(crate) worker_target: [AtomicU32; 2],
    /// Until then a load is wanted though nobody waits for it: who could not be in time was told when to come back.
    pub(crate) comes_back: ArcSwapOption<Instant>,
    /// Whether its last workers are ending.
    pub(crate) leaving: AtomicBool,
    /// Workers that have loaded the model and are warm.
    pub(crate) ready: AtomicU32,
    /// Whether there ever was one.
    pub(crate) was_ready: AtomicBool,
    /// The last load, if it failed and no worker gives hope.
    pub(crate) failure: ArcSwapOption<LoadFailure>,
    pub(crate) incidents: Incidents,
    pub(crate) unhealthy: AtomicBool,
    pub(crate) waiting: AtomicU32,
    pub(crate) requests: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) left: AtomicU64,
    pub(crate) meters: Meters,
    pub(crate) endpoints: EndpointMeters,
    /// From the first worker on that a request may have made exit.
    pub(crate) poison: OnceLock<PoisonList>,
    pub(crate) noted: NotedRequests,
    /// The learned service times, as of the last time the task had a moment.
    pub(crate) curve: ArcSwap<Vec<CurvePoint>>,
    /// Why it has as many workers as it has, where they follow the load.
    pub(crate) capacity: ArcSwapOption<CapacityReport>,
    /// Batch sizes at which the model runs, as its workers or its operator say; empty for any.
    pub(crate) sizes: ArcSwap<Vec<u32>>,
}

impl ModelState {
    pub(crate) fn status(&self, queue_max: u32) -> Status {
        let (workers_min, workers_max) = self.worker_target();
        Status {
            workers: Vec::clone(&self.workers.load()),
            workers_min,
            workers_max,
            capacity: self.capacity.load().as_deref().copied(),
            waiting: self.waiting.load(Relaxed),
            queue_max,
            counters: self.counters(),
            incidents: self.incidents.report(),
        }
    }

    /// How busy it is, of at most so many items in a batch.
    pub(super) fn occupancy(&self, batch_max: u32) -> Occupancy {
        let (waiting, ready) = (self.waiting.load(Relaxed), self.ready.load(Relaxed));
        let it = self.counters();
        let ended = it.answered + it.rejected + it.failed + it.abandoned;
        let running = it.requests.saturating_sub(ended).saturating_sub(waiting.into());
        let on_gpu = self.workers.load().iter().any(|worker| worker.gpu.is_some());
        Occupancy { ready: ready > 0, waiting, batch_max, busy: running.min(ready.into()), on_gpu }
    }

    /// Workers are about to be started: until one fails, requests wait for them.
    pub(super) fn expect_workers(&self, min: u32, max: u32) {
        self.worker_target[0].store(min, SeqCst);
        self.worker_target[1].store(max, SeqCst);
        if min > 0 && self.failure.load().is_none() {
            self.admits.store(true, Relaxed);
        }
    }

    /// The fewest and the most workers that were asked for last.
    pub(super) fn worker_target(&self) -> (u32, u32) {
        let [min, max] = &self.worker_target;
        (min.load(SeqCst), max.load(SeqCst))
    }

    /// Lets the first request begin the task, which then starts a worker; false where it has begun.
    pub(super) fn wait_for_first(&self) -> bool {
        if self.begun.load(SeqCst) {
            return false;
        }
        self.from_zero.store(true, SeqCst);
        self.admits.store(true, Relaxed);
        !self.begun.load(SeqCst)
    }

    /// Why nothing is admitted.
    pub(super) fn no_worker(&self) -> CallError {
        match self.failure.load_full() {
            Some(failure) => CallError::NotLoaded(failure),
            None => CallError::rejected(Rejection::NoWorker),
        }
    }

    /// Whether it can serve.
    pub(crate) fn readiness(&self) -> Readiness {
        let (wanted, _) = self.worker_target();
        if self.ready.load(Relaxed) > 0 {
            return Readiness::Ready;
        }
        match self.failure.load_full() {
            Some(failure) => Readiness::Failed(failure),
            None if self.from_zero.load(Relaxed) => self.without_worker(),
            None if wanted == 0 => Readiness::Unstaffed,
            None => Readiness::Loading { wanted, progress: self.progress() },
        }
    }

    /// How a model is that the first request loads, while no worker serves.
    fn without_worker(&self) -> Readiness {
        match self.workers.load().len() as u32 {
            0 if self.leaving.load(Relaxed) => Readiness::Leaving,
            0 => Readiness::Known,
            wanted => Readiness::Loading { wanted, progress: self.progress() },
        }
    }

    /// How far the first worker is that says so.
    fn progress(&self) -> Option<LoadProgress> {
        self.workers.load().iter().find_map(|worker| worker.progress.clone())
    }

    pub(crate) fn publish_workers(&self, workers: Vec<WorkerView>) {
        self.workers.store(Arc::new(workers));
    }

    pub(super) fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Counters {
            requests: read(&self.requests),
            answered: read(&self.answered),
            rejected: read(&self.rejected),
            failed: read(&self.failed),
            abandoned: read(&self.abandoned),
            retried: read(&self.retried),
            late: read(&self.late),
            left: read(&self.left),
        }
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}

/// Why requests are rejected, in the words of the error messages and the metrics.
pub const REJECTIONS: [&str; 13] = [
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
    "poison",
    "not_loaded",
    "loading",
];

/// What was measured about the requests and batches of a model version so far.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Microseconds that answered requests waited.
    pub queue_us: Distribution,
    /// Microseconds that answered batches ran.
    pub compute_us: Distribution,
    /// Microseconds that batches took to be prepared, as workers measured it.
    pub prepare_us: Distribution,
    /// Microseconds that batches were in the model, as workers measured it.
    pub model_us: Distribution,
    /// Microseconds from admission to answer.
    pub latency_us: Distribution,
    /// All batches together.
    pub batches: BatchTotals,
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
    /// Microseconds that workers took to load the model.
    pub load_us: Distribution,
    /// The same of the last one that did, if there was one.
    pub load_last_us: Option<u64>,
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
    pub(crate) queue_us: TimeHistogram,
    pub(crate) compute_us: TimeHistogram,
    prepare_us: AtomicHistogram,
    model_us: AtomicHistogram,
    pub(crate) latency_us: TimeHistogram,
    pub(crate) batches: BatchMeter,
    fill_permille: AtomicHistogram,
    prediction_permille: AtomicHistogram,
    rejections: [AtomicU64; REJECTIONS.len()],
    /// One more than the microseconds, so that 0 means never.
    compute_last_us: AtomicU64,
    load_us: AtomicHistogram,
    /// One more than the microseconds, so that 0 means never.
    load_last_us: AtomicU64,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            queue_us: TimeHistogram::default(),
            compute_us: TimeHistogram::default(),
            prepare_us: AtomicHistogram::new(TIME_US),
            model_us: AtomicHistogram::new(TIME_US),
            latency_us: TimeHistogram::default(),
            batches: BatchMeter::default(),
            fill_permille: AtomicHistogram::new(FILL_PERMILLE),
            prediction_permille: AtomicHistogram::new(RATIO_PERMILLE),
            rejections: Default::default(),
            compute_last_us: AtomicU64::new(0),
            load_us: AtomicHistogram::new(LOAD_US),
            load_last_us: AtomicU64::new(0),
        }
    }
}

impl Meters {
    /// A batch is dispatched.
    pub(super) fn dispatched(&self, dispatch: &Dispatch, items_max: u32) {
        self.batches.dispatched(dispatch, items_max);
        let items = dispatch.items.min(items_max);
        self.fill_permille.record(u64::from(items) * 1000 / u64::from(items_max.max(1)));
    }

    /// A batch was answered.
    pub(super) fn computed(&self, compute: Duration) {
        let compute_us = compute.as_micros() as u64;
        self.compute_us.record(compute_us);
        self.compute_last_us.store(compute_us + 1, Relaxed);
    }

    /// A worker has loaded the model.
    pub(super) fn loaded(&self, took: Duration) {
        let load_us = took.as_micros() as u64;
        self.load_us.record(load_us);
        self.load_last_us.store(load_us + 1, Relaxed);
    }

    /// A worker measured an answered batch.
    pub(super) fn timed(&self, times: &BatchTimes) {
        for (histogram, time) in [(&self.prepare_us, times.prepare), (&self.model_us, times.model)]
        {
            if let Some(time) = time {
                histogram.record(time.as_micros() as u64);
            }
        }
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

    /// A request ended with this error: whether that is a rejection, which is counted.
    pub(super) fn rejected(&self, error: &CallError) -> bool {
        let Some(index) = rejection(error) else { return false };
        add(&self.rejections[index], 1);
        true
    }

    /// Rejected requests, in the order of [`REJECTIONS`].
    pub(super) fn rejections(&self) -> [u64; REJECTIONS.len()] {
        std::array::from_fn(|index| self.rejections[index].load(Relaxed))
    }

    pub(super) fn read(&self) -> Measures {
        let count = |index: usize| (REJECTIONS[index], self.rejections[index].load(Relaxed));
        let batches = self.batches.read();
        Measures {
            queue_us: self.queue_us.read(),
            compute_us: self.compute_us.read(),
            prepare_us: self.prepare_us.read(),
            model_us: self.model_us.read(),
            latency_us: self.latency_us.read(),
            batches: batches.total(),
            batch_items: batches.batch_items(),
            fill_permille: self.fill_permille.read(),
            prediction_permille: self.prediction_permille.read(),
            rejections: std::array::from_fn(count),
            compute_last_us: self.compute_last_us.load(Relaxed).checked_sub(1),
            load_us: self.load_us.read(),
            load_last_us: self.load_last_us.load(Relaxed).checked_sub(1),
        }
    }
}

/// The position in [`REJECTIONS`].
pub(super) fn rejection(error: &CallError) -> Option<usize> {
    match error {
        CallError::Rejected { reason, .. } => match reason {
            Rejection::QueueFull => Some(0),
            Rejection::TooLarge => Some(1),
            Rejection::Expired => Some(2),
            Rejection::Draining => Some(3),
            Rejection::Infeasible => Some(4),
            Rejection::Overload => Some(5),
            Rejection::Quota => Some(6),
            Rejection::NoWorker => Some(7),
            // Its client went away: abandoned, not rejected.
            Rejection::Cancelled => None,
        },
        CallError::Sequence(_) => Some(0),
        CallError::ServerFull { .. } => Some(8),
        CallError::BadInput(_) | CallError::UnknownEndpoint(_) => Some(9),
        CallError::Poisonous => Some(10),
        CallError::NotLoaded(_) => Some(11),
        CallError::Loading(_) => Some(12),
        CallError::Model(_)
        | CallError::WorkerExited { .. }
        | CallError::SlowReader
        | CallError::Gone => None,
    }
}
