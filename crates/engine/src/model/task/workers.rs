//! What happens to workers: loading, warming up, ready, finished with a batch, exited, failed to start, given up,
//! stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_batcher::{BatchFailure, BatchId, DownReason, Event, Measure, Rejection};
use tokio::time::Instant;

use super::Task;
use crate::error::CallError;
use crate::model::exits::ExitPlan;
use crate::model::incidents::PoisonList;
use crate::model::scatter;
use crate::model::scheduler::SlotChange;
use crate::model::state::add;
use crate::outcome::{BatchOutcome, Cause, ItemOutcome, LaunchError, ModelFailure, WorkerExit};
use crate::pool::{
    BatchOrder, BatchRun, LoadProgress, LoadedReport, MeasuredRun, ReplaceReason, WorkerBatch,
    WorkerCapacity, WorkerEvent,
};

/// How old the published curve may be while batches run.
const CURVE_EVERY: Duration = Duration::from_secs(1);

/// From so many answers on it pays to let another thread give them out.
const MANY_ANSWERS: usize = 8;

impl Task {
    pub(super) fn on_worker(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Progress { worker, step } => self.on_progress(worker, step),
            WorkerEvent::Up { worker, pid, capacity, batches, took, report } => {
                self.reporter.ready(worker, took);
                self.startup.last_load = Some(took);
                self.published.meters.loaded(took);
                self.pool.up(worker, pid, capacity, batches, &report);
                self.learn(worker, capacity, &report);
                let batch =
                    if report.measured.is_empty() { self.first_sample(worker) } else { None };
                self.warm_up_or_serve(worker, batch);
            }
            WorkerEvent::Beside { batch, requests, exec } => {
                self.beside += 1;
                requests.into_iter().for_each(|id| drop(self.end(id)));
                let exec = exec.as_nanos() as u64;
                self.step(Event::Done { batch, exec, prepare: None });
            }
            WorkerEvent::Finished { batch, outcome, run } if batch.beside => {
                self.on_beside_finished(batch, outcome, run);
            }
            WorkerEvent::Finished { batch, outcome, run } if batch.warms_up => {
                self.on_warm_up_finished(batch.worker, &batch, outcome, run);
            }
            WorkerEvent::Finished { batch, outcome, run } => self.on_finished(batch, outcome, run),
            WorkerEvent::Worn { worker, reason } => self.on_worn(worker, reason),
            WorkerEvent::Told { worker, times } => {
                self.pool.told(worker, &times);
                self.published.publish_workers(self.pool.views());
            }
            WorkerEvent::Exited { worker, batches, exit, blamed, restart } => {
                self.reporter.exited(worker, &batches, exit, restart);
                self.on_exit((worker, restart), batches, exit, blamed);
            }
            WorkerEvent::LaunchFailed { error: LaunchError::Unwanted, .. } => self.end_workers(),
            WorkerEvent::LaunchFailed { worker, error, retry } => {
                // It does not fit: whoever waits is told, and the next one who asks is the next try.
                let ends = matches!(error, LaunchError::NoRoom { .. })
                    && self.starts_from_zero()
                    && self.pool.ready_count() == 0;
                if !ends {
                    self.reporter.load_failed(worker, &error, retry);
                    self.published.incidents.load_failed(&error, retry.is_some());
                }
                self.pool.launch_failed(worker, error, retry.map(|pause| Instant::now() + pause));
                self.pool_changed();
                if ends {
                    self.end_workers();
                }
            }
            WorkerEvent::GivenUp { worker } => {
                self.reporter.given_up(worker, self.pool.plan.retry_window);
                self.pool.given_up(worker);
                self.pool_changed();
            }
            WorkerEvent::Stopped { worker } => {
                self.warm_up.as_mut().map(|warm_up| warm_up.forget(worker));
                self.reporter.stopped(worker);
                self.tell_slots(worker, SlotChange::Down(DownReason::Removed));
                self.pool.stopped(worker);
                self.pool_changed();
            }
        }
    }

    fn on_worn(&mut self, worker: u32, reason: ReplaceReason) {
        self.reporter.worn(worker, reason);
        match reason {
            // It has nothing to serve with.
            ReplaceReason::GpuGone(_) => self.pool.replace(worker),
            ReplaceReason::Requests(_) | ReplaceReason::Memory(_) => {
                self.pool.replace_in_turn(worker);
            }
        }
        self.pool_changed();
    }

    fn on_finished(
        &mut self,
        batch: WorkerBatch,
        outcome: Result<BatchOutcome, CallError>,
        run: BatchRun,
    ) {
        let (id, compute, exec) = (batch.id, run.compute, run.exec);
        let items = match scatter::checked(outcome, batch.requests.len()) {
            Ok(items) => items,
            Err(error) => {
                self.reporter.failed(&batch, &run, &error);
                self.give_up(batch, &error);
                return self.step(Event::Failed { batch: id, kind: BatchFailure::Handler });
            }
        };
        for (request, item) in batch.requests.iter().zip(&items) {
            self.end(request.facts.id);
            if item.is_ok()
                && let Some(poison) = self.published.poison.get()
            {
                poison.acquit(&request.payload);
            }
        }
        self.sequences.end_named(&items);
        self.scheduler.worker_answered(batch.worker, batch.items);
        // The worker gets its next batch before the answers are given out: everything that an answer
        // wakes would otherwise run first, and the worker would stand idle.
        let prepare = run.prepare.map(|time| time + batch.handoff.unwrap_or_default());
        let prepare = prepare.map(|time| time.as_nanos() as u64);
        self.step(Event::Done { batch: id, exec: exec.as_nanos() as u64, prepare });
        if let Some(times) = &run.times {
            self.published.meters.timed(times);
        }
        if let Some(predicted) = batch.predicted {
            self.published.meters.was_predicted(predicted, exec);
        }
        let now = Instant::now();
        if self.curve_published.is_none_or(|at| now.duration_since(at) >= CURVE_EVERY) {
            self.curve_published = Some(now);
            let curve = self.scheduler.batcher.findings().curve().collect();
            self.published.curve.store(Arc::new(curve));
            self.published.noted.forget_old();
        }
        self.reporter.finished(&batch, &run, &self.scheduler.batcher.config().policy);
        let handoff = batch.handoff.filter(|_| prepare.is_none());
        self.give_out(batch, items, compute);
        // How long it took to reach the worker tells how early the next one is sent.
        if let Some(handoff) = handoff.filter(|_| self.scheduler.is_adaptive()) {
            self.step(Event::Handed { took: handoff.as_nanos() as u64 });
        }
    }

    /// Answers the requests of a batch. Each answer wakes the thread of its client: of a worker that is not on this
    /// thread many are given out there, so that this one goes on.
    fn give_out(&self, batch: WorkerBatch, items: Vec<ItemOutcome>, compute: Duration) {
        let clock = self.scheduler.clock;
        let many = items.len() >= MANY_ANSWERS;
        match many.then(|| self.pool.elsewhere(batch.worker)).flatten() {
            None => scatter::answer(batch, items, compute, clock, &self.published),
            Some(thread) => {
                let published = Arc::clone(&self.published);
                thread.spawn(async move {
                    scatter::answer(batch, items, compute, clock, &published);
                });
            }
        }
    }

    /// A batch that ran beside others is over; the batcher has forgotten it, and so a failed one is not tried again.
    fn on_beside_finished(
        &mut self,
        batch: WorkerBatch,
        outcome: Result<BatchOutcome, CallError>,
        run: BatchRun,
    ) {
        self.beside -= 1;
        match scatter::checked(outcome, batch.requests.len()) {
            Ok(items) => {
                self.reporter.ended(&batch, Some(&run), None);
                scatter::answer(batch, items, run.compute, self.scheduler.clock, &self.published);
            }
            Err(error) => {
                self.reporter.failed(&batch, &run, &error);
                for request in batch.requests {
                    scatter::end(request, Err(error.clone()), &self.published);
                }
            }
        }
    }

    fn on_exit(
        &mut self,
        (worker, restart): (u32, Duration),
        batches: Vec<WorkerBatch>,
        exit: WorkerExit,
        blamed: Option<BatchId>,
    ) {
        self.published.incidents.exited(exit);
        if self.warm_up.as_mut().is_some_and(|warm_up| warm_up.forget(worker)) {
            self.reporter.sample_ended(worker);
            self.warm_up = None;
        }
        self.reporter.lost(&batches, exit);
        let (beside, batches): (Vec<_>, Vec<_>) = batches.into_iter().partition(|it| it.beside);
        let ran_too_long = blamed.filter(|_| matches!(exit, WorkerExit::TimedOut { .. }));
        let blamed = blamed.filter(|blamed| beside.iter().all(|batch| batch.id != *blamed));
        let plan = ExitPlan::new(exit, batches, blamed, self.pool.capacity(worker).order);
        // First of all it gets nothing more, so that no batch is sent to it meanwhile.
        self.tell_slots(worker, SlotChange::Retired);
        for batch in plan.innocent {
            self.table.put_back(batch, None);
        }
        let error = match exit {
            WorkerExit::OutOfMemory { bytes: Some(bytes) } => {
                CallError::Model(out_of_memory(bytes))
            }
            WorkerExit::Ended { .. }
            | WorkerExit::OutOfMemory { bytes: None }
            | WorkerExit::KilledForMemory { .. }
            | WorkerExit::TimedOut { .. }
            | WorkerExit::Lost
            | WorkerExit::BrokeProtocol => CallError::WorkerExited { exit },
        };
        self.blame(&plan.failed, exit);
        for batch in plan.failed {
            self.give_up(batch, &error);
        }
        self.pool.exited(worker, restart);
        if let Some((batch, kind)) = plan.blamed {
            self.step(Event::Failed { batch, kind });
        }
        self.tell_slots(worker, SlotChange::Down(plan.down));
        self.pool_changed();
        for batch in beside {
            self.on_beside_lost(batch, exit, ran_too_long);
        }
    }

    /// A batch that ran beside others is lost with its worker. Its requests come once more, except for what has
    /// been answered in part, or was itself the reason.
    fn on_beside_lost(
        &mut self,
        batch: WorkerBatch,
        exit: WorkerExit,
        ran_too_long: Option<BatchId>,
    ) {
        self.beside -= 1;
        for mut request in batch.requests {
            if request.tried || request.reply.streams() || ran_too_long == Some(batch.id) {
                let error = CallError::WorkerExited { exit };
                scatter::end(request, Err(error), &self.published);
            } else {
                request.tried = true;
                add(&self.published.retried, request.reply.counts());
                self.on_request(request);
            }
        }
    }

    /// Writes down the request that was alone with a worker which exited.
    fn blame(&self, failed: &[WorkerBatch], exit: WorkerExit) {
        let [WorkerBatch { requests, attempt, .. }] = failed else { return };
        let [request] = &requests[..] else { return };
        if !matches!(exit, WorkerExit::TimedOut { .. })
            && self.published.poison.get_or_init(PoisonList::default).blame(
                &request.payload,
                *attempt,
                exit,
            )
        {
            self.reporter.poisonous(request.payload.id());
        }
    }

    /// Takes back a batch that failed. One whose answers have partly gone out is never tried
    /// again: its callers are told now, and to the batcher they are cancelled.
    fn give_up(&mut self, batch: WorkerBatch, error: &CallError) {
        self.published.meters.batches.failed(batch.items);
        if !batch.streamed() {
            return self.table.put_back(batch, Some(error));
        }
        for request in batch.requests {
            let id = request.facts.id;
            scatter::end(request, Err(error.clone()), &self.published);
            self.step(Event::Cancel { id });
        }
    }

    /// Tells the batcher of a change of a worker. The sequences of one that gets nothing more go on
    /// elsewhere.
    pub(super) fn tell_slots(&mut self, worker: u32, change: SlotChange) {
        if matches!(change, SlotChange::Retired | SlotChange::Down(_)) {
            self.sequences.worker_gone(worker);
            self.scheduler.worker_gone(worker);
        }
        // Requests for a model are not planned, and would fill a second slot at once.
        let multiplexed = self.scheduler.batcher.config().models > 0;
        let early = self.scheduler.is_adaptive() && !self.sequences.enabled() && !multiplexed;
        self.step(change.event(worker, self.pool.capacity(worker), early));
    }

    /// Publishes the workers. Without any, waiting requests are rejected instead of left hanging.
    pub(super) fn pool_changed(&mut self) {
        if self.closing.is_none()
            && let Some(worker) = self.pool.replace_next()
        {
            self.tell_slots(worker, SlotChange::Retired);
        }
        let from_zero = self.starts_from_zero() && self.pool.failure().is_none();
        let admits = self.pool.admits() || (from_zero && self.closing.is_none());
        let ready = self.pool.ready_count();
        self.published.failure.store(self.pool.failure().filter(|_| !admits).cloned());
        self.published.ready.store(ready, Ordering::Relaxed);
        self.published.admits.store(admits, Ordering::Relaxed);
        self.published.from_zero.store(self.starts_from_zero(), Ordering::Relaxed);
        let leaving = self.pool.count() == 0 && !self.pool.is_empty();
        self.published.leaving.store(leaving, Ordering::Relaxed);
        if ready > 0 {
            self.published.was_ready.store(true, Ordering::Relaxed);
        }
        match admits && ready == 0 {
            true => self.startup.begin(),
            false => self.startup.look_at = None,
        }
        if !admits {
            let closing = self.closing.is_some();
            let draining = || CallError::rejected(Rejection::Draining);
            let error = if closing { draining() } else { self.published.no_worker() };
            self.reject_waiting(&error, Instant::now());
        }
        self.published.unhealthy.store(!self.pool.healthy(), Ordering::Relaxed);
        self.published.publish_workers(self.pool.views());
        self.pool.share();
        // Whoever waited for the workers finds them published.
        self.pool.tell_waiters();
    }
}

/// What is said of a request on which a model needed more memory than it may have.
fn out_of_memory(bytes: u64) -> ModelFailure {
    let message = format!(
        "the model ran out of memory on this request: it asked for {bytes} bytes more than its \
         memory_limit allows; send less at a time, or raise the limit"
    );
    ModelFailure::new(Cause::Memory, message)
}

impl Task {
    /// A worker is so far with loading, or with warming up.
    pub(super) fn on_progress(&mut self, worker: u32, step: LoadProgress) {
        self.reporter.progress(worker, &step);
        self.pool.progressed(worker, step);
        self.published.publish_workers(self.pool.views());
    }

    /// Takes over what a worker found when it loaded.
    pub(super) fn learn(&mut self, worker: u32, capacity: WorkerCapacity, report: &LoadedReport) {
        for note in &report.notes {
            self.reporter.note(worker, note);
        }
        if let Some(config) = self.scheduler.sizes.report(&report.sizes) {
            self.configure(config);
        }
        if !self.scheduler.is_adaptive() {
            return;
        }
        let measure = self.scheduler.batcher.config().measure;
        for run in &report.measured {
            if let Some(event) = learned(run, measure, capacity) {
                self.step(event);
            }
        }
    }

    /// The first batch of a warm-up, for a worker that needs one.
    pub(super) fn first_sample(&mut self, worker: u32) -> Option<WorkerBatch> {
        let config = self.scheduler.batcher.config();
        let warm_up = self.warm_up.as_mut().filter(|_| self.closing.is_none());
        warm_up.and_then(|it| it.begin(worker, config))
    }

    /// Gives a worker its next batch of a warm-up; without one it serves from now on.
    pub(super) fn warm_up_or_serve(&mut self, worker: u32, batch: Option<WorkerBatch>) {
        if batch.is_some_and(|batch| self.pool.hand(worker, batch).is_ok()) {
            return;
        }
        self.warm_up.as_mut().map(|warm_up| warm_up.forget(worker));
        self.pool.serves(worker);
        self.scheduler.worker_serves(worker, self.pool.gpu_answers(worker));
        self.sequences.worker_up(worker);
        self.tell_slots(worker, SlotChange::Up);
        for replaced in self.pool.retire_replaced(worker) {
            self.tell_slots(replaced, SlotChange::Retired);
        }
        self.pool_changed();
    }

    pub(super) fn on_warm_up_finished(
        &mut self,
        worker: u32,
        batch: &WorkerBatch,
        outcome: Result<BatchOutcome, CallError>,
        run: BatchRun,
    ) {
        if let Err(error) = scatter::checked(outcome, batch.requests.len()) {
            self.reporter.sample_failed(&error.to_string());
            self.warm_up = None;
        }
        let config = self.scheduler.batcher.config();
        let next = self.warm_up.as_mut().map(|warm_up| warm_up.next(worker, run, config));
        let (learned, batch) = next.unwrap_or_default();
        if let Some(learned) = learned.filter(|_| self.scheduler.is_adaptive()) {
            self.step(learned);
        }
        if let Some(step) = self.warm_up.as_ref().and_then(|warm_up| warm_up.progress(worker)) {
            self.on_progress(worker, step);
        }
        self.warm_up_or_serve(worker, batch);
    }
}

/// What the batcher learns of a batch that a worker ran to warm up; nothing where its cost is unknown.
fn learned(run: &MeasuredRun, measure: Measure, capacity: WorkerCapacity) -> Option<Event> {
    let items = u64::from(run.items);
    let cost = match measure {
        Measure::Items => items,
        Measure::Padded => run.length?.saturating_mul(items),
        Measure::Packed => return None,
    };
    let overlaps = capacity.order == BatchOrder::Overlapping;
    // Elsewhere the worker does one after the other.
    let exec = if overlaps { run.model } else { run.prepare + run.model };
    Some(Event::Measured {
        group: 0,
        items: run.items,
        cost,
        exec: exec.as_nanos() as u64,
        prepare: overlaps.then_some(run.prepare.as_nanos() as u64),
    })
}
