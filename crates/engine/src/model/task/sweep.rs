//! The start-up sweep: a new worker runs batches of 1, 2, 4 ... items before it serves, so that
//! every size is warm and the adaptive policy knows the curve when the first user comes.
//!
//! Its batches bypass the batcher, which only hears how long they took; no user, counter or metric
//! ever sees them. It is bounded in time, and a sample that does harm is not tried again.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{BatchId, Departure, Event, Measure};
use tokio::time::Instant;

use super::Task;
use crate::admission::Admission;
use crate::call::Rider;
use crate::model::{Sample, scatter};
use crate::outcome::BatchOutcome;
use crate::pool::Batch;
use crate::reply::Reply;

/// Marks the batches of sweeps; the batcher counts up from 1 and never gets here.
const SWEEP: u64 = 1 << 63;

/// No batch is begun that would probably end later than this after the worker's first.
const TIME_MAX: Duration = Duration::from_secs(2);

/// What sweeps need, and how far they are.
pub(crate) struct Sweep {
    sample: Sample,
    admission: Arc<Admission>,
    /// Workers above this id are new; those started again serve at once.
    swept: u32,
    courses: Vec<Course>,
}

/// One worker's sweep.
struct Course {
    worker: u32,
    began: Instant,
    /// Items of the batch that runs.
    size: u32,
    /// Whether it is the very first, which is slower than any other and teaches nothing.
    first: bool,
}

impl Sweep {
    pub(crate) fn new(sample: Sample, admission: Arc<Admission>) -> Self {
        Self { sample, admission, swept: 0, courses: Vec::new() }
    }

    fn batch(&self, worker: u32, size: u32) -> Option<Batch> {
        let now = Instant::now();
        let rider = |_| {
            let permit = self.admission.admit(1, 0).ok()?;
            let (reply, _nobody) = Reply::new();
            let payload = self.sample.payload();
            Some(Rider { payload, items: 1, admitted: now, reply, permit: Some(permit) })
        };
        Some(Batch {
            id: BatchId(SWEEP | u64::from(worker)),
            ids: Vec::new(),
            riders: (0..size).map(rider).collect::<Option<_>>()?,
            items: size,
            items_max: size,
            attempt: 1,
            reason: Departure::Idle,
            departed: now,
            predicted: None,
            handoff: None,
        })
    }
}

impl Task {
    /// Begins the sweep of a worker that has just loaded; false if it should serve at once.
    pub(super) fn begin_sweep(&mut self, worker: u32) -> bool {
        // Of a sample nobody knows the cost, so only items can be learned from it.
        let items = self.state.batcher.config().measure == Measure::Items;
        let (adaptive, closing) = (self.adaptive() && items, self.state.closing.is_some());
        let Some(sweep) = self.state.sweep.as_mut().filter(|_| adaptive && !closing) else {
            return false;
        };
        if worker <= sweep.swept {
            return false;
        }
        sweep.swept = worker;
        sweep.courses.push(Course { worker, began: Instant::now(), size: 1, first: true });
        let runs = self.run_sample(worker, 1);
        if !runs {
            self.forget_sweep(worker);
        }
        runs
    }

    /// Whether a batch belongs to a sweep.
    pub(super) fn is_swept(batch: &Batch) -> bool {
        batch.id.0 & SWEEP != 0
    }

    /// A batch of a sweep is over: the next one runs, or the worker begins to serve.
    pub(super) fn on_swept(&mut self, batch: Batch, outcome: BatchOutcome, exec: Duration) {
        let worker = (batch.id.0 & u64::from(u32::MAX)) as u32;
        if let Err(failure) = scatter::checked(outcome, batch.riders.len()) {
            tracing::warn!(model = self.label, cause = ?failure.cause, "the model fails on its sample, which is not used any more");
            self.state.sweep = None;
            return self.serve(worker);
        }
        match self.next_size(worker, exec) {
            Some(size) if self.run_sample(worker, size) => {}
            Some(_) | None => {
                self.forget_sweep(worker);
                self.serve(worker);
            }
        }
    }

    /// A worker died; if that was in its sweep, there is none any more.
    pub(super) fn forget_sweep(&mut self, worker: u32) -> bool {
        let Some(sweep) = &mut self.state.sweep else { return false };
        let before = sweep.courses.len();
        sweep.courses.retain(|course| course.worker != worker);
        sweep.courses.len() < before
    }

    /// Learns from the batch that is over and says how large the next one is.
    fn next_size(&mut self, worker: u32, exec: Duration) -> Option<u32> {
        let most = self.state.batcher.config().max_items;
        let sweep = self.state.sweep.as_mut()?;
        let bucket = sweep.sample.bucket;
        let course = sweep.courses.iter_mut().find(|course| course.worker == worker)?;
        let size = course.size;
        let enough = course.began.elapsed() + 2 * exec > TIME_MAX;
        if std::mem::take(&mut course.first) {
            return (!enough).then_some(size);
        }
        course.size = size.saturating_mul(2).min(most);
        let next = (size < most && !enough).then_some(course.size);
        let exec = exec.as_nanos() as u64;
        self.step(Event::Measured { bucket, items: size, exec });
        next
    }

    fn run_sample(&mut self, worker: u32, size: u32) -> bool {
        let batch = self.state.sweep.as_ref().and_then(|sweep| sweep.batch(worker, size));
        batch.is_some_and(|batch| self.state.pool.hand(worker, batch).is_ok())
    }
}
