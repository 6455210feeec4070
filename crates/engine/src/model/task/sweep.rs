//! The start-up sweep: a new worker runs batches of 1, 2, 4 ... items before it serves, so that
//! every size is warm and the adaptive policy knows the curve when the first user comes.
//!
//! Its batches bypass the batcher, which only hears how long they took; no user, counter or metric
//! ever sees them. It is bounded in time and by the limits of a batch, and a sample that does harm is
//! not tried again. Where items weigh differently and nobody says what the sample weighs, sizes are
//! made warm and nothing is learned.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{BatchId, Config, DispatchReason, Event};
use tokio::time::Instant;

use super::Task;
use crate::admission::Admission;
use crate::call::PendingRequest;
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
    /// What an item of it weighs, if anybody can tell.
    cost: Option<u64>,
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
    pub(crate) fn new(sample: Sample, cost: Option<u64>, admission: Arc<Admission>) -> Self {
        Self { sample, cost, admission, swept: 0, courses: Vec::new() }
    }

    /// The largest batch of samples that the model may be given; 0 if not even one, or if there is a
    /// limit and nobody knows how soon it is reached.
    fn most(&self, config: &Config) -> u32 {
        let within = match (self.cost, config.max_cost) {
            (_, u64::MAX) => u64::MAX,
            (Some(cost), most) => most / cost.max(1),
            (None, _) => 0,
        };
        u32::try_from(within).unwrap_or(u32::MAX).min(config.max_items)
    }

    fn batch(&self, worker: u32, size: u32) -> Option<Batch> {
        let now = Instant::now();
        let request = |_| {
            let permit = self.admission.admit(1, 0).ok()?;
            let (reply, _nobody) = Reply::new();
            let payload = self.sample.payload();
            Some(PendingRequest { payload, items: 1, admitted: now, reply, permit: Some(permit) })
        };
        Some(Batch {
            id: BatchId(SWEEP | u64::from(worker)),
            ids: Vec::new(),
            requests: (0..size).map(request).collect::<Option<_>>()?,
            items: size,
            items_max: size,
            attempt: 1,
            reason: DispatchReason::Idle,
            departed: now,
            predicted: None,
            handoff: None,
            padding: None,
        })
    }
}

impl Task {
    /// Begins the sweep of a worker that has just loaded; false if it should serve at once.
    pub(super) fn begin_sweep(&mut self, worker: u32) -> bool {
        let (adaptive, closing) = (self.adaptive(), self.state.closing.is_some());
        let config = self.state.batcher.config();
        let Some(sweep) = self.state.sweep.as_mut().filter(|_| adaptive && !closing) else {
            return false;
        };
        if worker <= sweep.swept || sweep.most(config) == 0 {
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
        if let Err(failure) = scatter::checked(outcome, batch.requests.len()) {
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
        let sweep = self.state.sweep.as_mut()?;
        let most = sweep.most(self.state.batcher.config());
        let (bucket, cost) = (sweep.sample.bucket, sweep.cost);
        let course = sweep.courses.iter_mut().find(|course| course.worker == worker)?;
        let size = course.size;
        let enough = course.began.elapsed() + 2 * exec > TIME_MAX;
        if std::mem::take(&mut course.first) {
            return (!enough).then_some(size);
        }
        course.size = size.saturating_mul(2).min(most);
        let next = (size < most && !enough).then_some(course.size);
        if let Some(cost) = cost {
            let (cost, exec) = (cost.saturating_mul(size.into()), exec.as_nanos() as u64);
            self.step(Event::Measured { group: bucket, items: size, cost, exec });
        }
        next
    }

    fn run_sample(&mut self, worker: u32, size: u32) -> bool {
        let batch = self.state.sweep.as_ref().and_then(|sweep| sweep.batch(worker, size));
        batch.is_some_and(|batch| self.state.pool.hand(worker, batch).is_ok())
    }
}
