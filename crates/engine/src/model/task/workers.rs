//! What happens to workers: ready, finished with a batch, exited, failed to start, given up, stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_batcher::{BatchFailure, BatchId, DownReason, Event, Rejection};
use tokio::time::Instant;

use super::{Task, is_adaptive};
use crate::error::CallError;
use crate::model::crash_loop::again;
use crate::model::exits::ExitPlan;
use crate::model::poison::POISON_MEMORY;
use crate::model::scatter;
use crate::model::slots::SlotChange;
use crate::model::state::add;
use crate::model::warm_up::WarmUp;
use crate::observer::{BatchEnded, BatchFinished, ModelTag};
use crate::outcome::{BatchOutcome, Cause, LaunchError, ModelFailure, WorkerExit};
use crate::pending::ShownIds;
use crate::pool::{BatchRun, WorkerBatch, WorkerEvent};

/// How old the published curve may be while batches run.
const CURVE_EVERY: Duration = Duration::from_secs(1);

impl Task {
    pub(super) fn on_worker(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Progress { worker, step } => self.on_progress(worker, step),
            WorkerEvent::Up { worker, pid, capacity, batches, took, report } => {
                tracing::info!(
                    model = self.tag.name,
                    version = self.tag.version,
                    worker,
                    "worker is ready"
                );
                self.observer.worker_loaded(&self.tag, worker, took);
                self.published.meters.loaded(took);
                self.pool.up(worker, pid, capacity, batches, &report);
                self.known_failure.clear();
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
            WorkerEvent::Finished { batch, outcome, run } => match WarmUp::worker_of(&batch) {
                _ if batch.beside => self.on_beside_finished(batch, outcome, run),
                Some(worker) => self.on_warm_up_finished(worker, &batch, outcome, run),
                None => self.on_finished(batch, outcome, run),
            },
            WorkerEvent::GpuMemory { worker, bytes } => {
                self.pool.holds_gpu_memory(worker, bytes);
                self.published.publish_workers(self.pool.views());
            }
            WorkerEvent::Exited { worker, batches, exit, blamed, restart } => {
                self.log_exit(worker, &batches, exit, restart);
                self.on_exit(worker, batches, exit, blamed);
            }
            WorkerEvent::LaunchFailed { worker, error, retry } => {
                let text = error.to_string();
                if self.known_failure != text {
                    log_traceback(&self.tag, worker, &error);
                    self.known_failure = text;
                }
                log_load_failure(&self.tag, worker, &error, retry);
                if let Some(pause) = retry {
                    self.log_crash_loop(worker, &self.known_failure.clone(), pause);
                }
                self.published.incidents.load_failed(&error, retry.is_some());
                self.pool.launch_failed(worker, error, retry.map(|pause| Instant::now() + pause));
                self.pool_changed();
            }
            WorkerEvent::GivenUp { worker } => {
                let seconds = self.pool.plan.retry_window.as_secs();
                tracing::error!(
                    model = self.tag.name,
                    version = self.tag.version,
                    worker,
                    "worker {worker} of {} is given up: it did not come up within \
                     max_retry_timeout ({seconds} s)",
                    self.tag.name
                );
                self.pool.given_up(worker);
                self.pool_changed();
            }
            WorkerEvent::Stopped { worker } => {
                self.warm_up.as_mut().map(|warm_up| warm_up.forget(worker));
                self.crash_loops.forget(worker);
                self.tell_slots(worker, SlotChange::Down(DownReason::Removed));
                self.pool.stopped(worker);
                self.pool_changed();
            }
        }
    }

    fn on_finished(&mut self, batch: WorkerBatch, outcome: BatchOutcome, run: BatchRun) {
        let (id, BatchRun { compute, exec, .. }) = (batch.id, run);
        // Second tries go before fresh work, so fresh work means that they are over.
        if self.slots.single && batch.attempt == 1 {
            self.set_single(false);
        }
        let items = match scatter::checked(outcome, batch.requests.len()) {
            Ok(items) => items,
            Err(failure) => {
                log_failure(&self.tag, &batch, &failure);
                self.tell_ended(&batch, Some(&run), Some(&failure.message));
                self.give_up(batch, &CallError::Model(failure));
                return self.step(Event::Failed { batch: id, kind: BatchFailure::Handler });
            }
        };
        for (request, item) in batch.requests.iter().zip(&items) {
            self.end(request.facts.id);
            if item.is_ok() {
                self.published.poison.acquit(&request.payload);
            }
        }
        self.turns.end_named(&items);
        // The worker gets its next batch before the answers are given out: everything that an answer
        // wakes would otherwise run first, and the worker would stand idle.
        let prepare = run.prepare.map(|time| time + batch.handoff.unwrap_or_default());
        let prepare = prepare.map(|time| time.as_nanos() as u64);
        self.step(Event::Done { batch: id, exec: exec.as_nanos() as u64, prepare });
        self.published.meters.timed(&run.times);
        if let Some(predicted) = batch.predicted {
            self.published.meters.was_predicted(predicted, exec);
        }
        let now = Instant::now();
        if self.curve_published.is_none_or(|at| now.duration_since(at) >= CURVE_EVERY) {
            self.curve_published = Some(now);
            self.published.curve.store(Arc::new(self.batcher.curve().collect()));
        }
        self.tell_ended(&batch, Some(&run), None);
        self.observer.batch_finished(&BatchFinished {
            model: &self.tag,
            compute,
            handling: batch.dispatched.elapsed().saturating_sub(compute),
            requests: &batch.requests,
        });
        if let Some(notice) = self.overload.after(&self.batcher.config().policy, &batch, compute) {
            tracing::warn!(model = self.tag.name, version = self.tag.version, "{notice}");
        }
        let handoff = batch.handoff.filter(|_| prepare.is_none());
        scatter::answer(batch, items, compute, self.clock, &self.published);
        // How long it took to reach the worker tells how early the next one is sent.
        if let Some(handoff) = handoff.filter(|_| is_adaptive(&self.batcher)) {
            self.step(Event::Handed { took: handoff.as_nanos() as u64 });
        }
    }

    /// A batch that ran beside others is over; the batcher has forgotten it, and so a failed one is not tried again.
    fn on_beside_finished(&mut self, batch: WorkerBatch, outcome: BatchOutcome, run: BatchRun) {
        self.beside -= 1;
        match scatter::checked(outcome, batch.requests.len()) {
            Ok(items) => {
                self.tell_ended(&batch, Some(&run), None);
                scatter::answer(batch, items, run.compute, self.clock, &self.published);
            }
            Err(failure) => {
                log_failure(&self.tag, &batch, &failure);
                self.tell_ended(&batch, Some(&run), Some(&failure.message));
                self.fail_beside(batch, &CallError::Model(failure));
            }
        }
    }

    fn fail_beside(&self, batch: WorkerBatch, error: &CallError) {
        for request in batch.requests {
            scatter::end(request, Err(error.clone()), &self.published);
        }
    }

    fn on_exit(
        &mut self,
        worker: u32,
        batches: Vec<WorkerBatch>,
        exit: WorkerExit,
        blamed: Option<BatchId>,
    ) {
        self.published.incidents.exited(exit);
        if self.warm_up.as_mut().is_some_and(|warm_up| warm_up.forget(worker)) {
            tracing::warn!(
                model = self.tag.name,
                version = self.tag.version,
                worker,
                "the worker exited on the model's sample input, which is not used any more"
            );
            self.warm_up = None;
        }
        if self.marks {
            let error = exit.to_string();
            batches.iter().for_each(|batch| self.tell_ended(batch, None, Some(&error)));
        }
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
            WorkerExit::OutOfMemory { bytes } => CallError::Model(out_of_memory(bytes)),
            WorkerExit::Ended { .. }
            | WorkerExit::KilledForMemory { .. }
            | WorkerExit::TimedOut { .. }
            | WorkerExit::Lost
            | WorkerExit::BrokeProtocol => CallError::WorkerExited { exit },
        };
        self.blame(&plan.failed, exit);
        for batch in plan.failed {
            self.give_up(batch, &error);
        }
        self.pool.exited(worker);
        if plan.doubtful {
            self.set_single(true);
        }
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

    /// Says how a worker ended, and when it is started again.
    fn log_exit(
        &mut self,
        worker: u32,
        batches: &[WorkerBatch],
        exit: WorkerExit,
        restart: Duration,
    ) {
        let requests: usize = batches.iter().map(|batch| batch.requests.len()).sum();
        let (model, version, again) = (&self.tag.name, &self.tag.version, again(restart));
        tracing::warn!(
            model,
            version,
            worker,
            requests,
            "worker exit: {exit}; it is started again {again}"
        );
        self.log_crash_loop(worker, &exit.to_string(), restart);
    }

    /// Says that a worker ends again and again, if it does.
    fn log_crash_loop(&mut self, worker: u32, error: &str, pause: Duration) {
        if let Some(ends) = self.crash_loops.ended(worker, Instant::now()) {
            let (model, version) = (&self.tag.name, &self.tag.version);
            tracing::error!(
                model,
                version,
                worker,
                ends,
                "crash loop: worker {worker} of {model} has ended {ends} times within a minute; the \
                 next start is {}; last error: {error}",
                again(pause)
            );
        }
    }

    /// Writes down the request that was alone with a worker which exited.
    fn blame(&self, failed: &[WorkerBatch], exit: WorkerExit) {
        let [WorkerBatch { requests, attempt, .. }] = failed else { return };
        let [request] = &requests[..] else { return };
        if !matches!(exit, WorkerExit::TimedOut { .. })
            && self.published.poison.blame(&request.payload, *attempt, exit)
        {
            tracing::error!(
                model = self.tag.name,
                version = self.tag.version,
                request_id = request.payload.id(),
                "the request has made workers exit; the same request is rejected for {} minutes",
                POISON_MEMORY.as_secs() / 60
            );
        }
    }

    /// Tells the observer of a batch that is over, if it has marked requests.
    fn tell_ended(&self, batch: &WorkerBatch, run: Option<&BatchRun>, error: Option<&str>) {
        if !self.marks || batch.requests.iter().all(|request| request.mark.is_none()) {
            return;
        }
        self.observer.batch_ended(&BatchEnded {
            model: &self.tag,
            worker: batch.worker,
            batch: batch.id.0,
            items: batch.items,
            items_max: batch.items_max,
            reason: batch.reason,
            attempt: batch.attempt,
            dispatched: batch.dispatched,
            predicted: batch.predicted,
            compute: run.map(|run| run.compute),
            times: run.map(|run| run.times).unwrap_or_default(),
            error,
            requests: &batch.requests,
        });
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

    /// Changes whether each worker gets one batch at a time.
    pub(super) fn set_single(&mut self, single: bool) {
        if self.slots.set_single(single) {
            let ready = self.pool.ready().into_iter();
            ready.for_each(|worker| self.tell_slots(worker, SlotChange::Up));
        }
    }

    /// Tells the batcher of a change of a worker. The sequences of one that gets nothing more go on
    /// elsewhere.
    pub(super) fn tell_slots(&mut self, worker: u32, change: SlotChange) {
        if change != SlotChange::Up {
            self.turns.worker_gone(worker);
        }
        let early = is_adaptive(&self.batcher) && !self.turns.enabled();
        self.step(self.slots.event(worker, self.pool.capacity(worker), early, change));
    }

    /// Publishes the workers. Without any, waiting requests are rejected instead of left hanging.
    pub(super) fn pool_changed(&mut self) {
        let (admits, ready) = (self.pool.admits(), self.pool.ready_count());
        self.published.failure.store(self.pool.failure().filter(|_| !admits).cloned());
        self.published.ready.store(ready, Ordering::Relaxed);
        self.published.admits.store(admits, Ordering::Relaxed);
        if ready > 0 {
            self.published.was_ready.store(true, Ordering::Relaxed);
        }
        self.startup.set(admits && ready == 0);
        if !admits {
            let closing = self.closing.is_some();
            let draining = || CallError::rejected(Rejection::Draining);
            let error = if closing { draining() } else { self.published.no_worker() };
            self.reject_waiting(&error, Instant::now());
        }
        self.published.unhealthy.store(!self.pool.healthy(), Ordering::Relaxed);
        self.published.publish_workers(self.pool.views());
        // Whoever waited for the workers finds them published.
        self.pool.tell_waiters();
    }
}

/// Logs the traceback of a load that failed, as a line of the worker's own output each.
fn log_traceback(tag: &ModelTag, worker: u32, error: &LaunchError) {
    let ModelTag { name: model, version, .. } = tag;
    for line in error.traceback().lines() {
        let stream = "stdout";
        tracing::info!(target: "jitney::worker_output", model, version, worker, stream, "{line}");
    }
}

fn log_load_failure(tag: &ModelTag, worker: u32, error: &LaunchError, retry: Option<Duration>) {
    let next = match retry {
        Some(pause) if pause.is_zero() => "trying again at once".to_owned(),
        Some(pause) => format!("trying again in {} s", pause.as_secs()),
        None => "not tried again".to_owned(),
    };
    let above = if error.traceback().is_empty() { "" } else { "; traceback above" };
    let ModelTag { name: model, version, .. } = tag;
    tracing::error!(
        model,
        version,
        worker,
        "worker {worker} of {model} could not load: {error} ({next}{above})"
    );
}

/// What is said of a request on which a model needed more memory than it may have.
fn out_of_memory(bytes: u64) -> ModelFailure {
    let message = format!(
        "the model ran out of memory on this request: it asked for {bytes} bytes more than its \
         memory_limit allows; send less at a time, or raise the limit"
    );
    ModelFailure { cause: Cause::Memory, status: None, message }
}

fn log_failure(tag: &ModelTag, batch: &WorkerBatch, failure: &ModelFailure) {
    let ModelTag { name: model, version, .. } = tag;
    let WorkerBatch { requests, attempt, worker, .. } = batch;
    let (count, request_id, error) = (requests.len(), ShownIds(requests), &failure.message);
    let cause = failure.cause;
    if matches!(cause, Cause::Prediction | Cause::Stated) {
        tracing::debug!(
            model, version, worker, requests = count, %request_id, attempt, error,
            "prediction error"
        );
    } else {
        tracing::warn!(
            model, version, worker, requests = count, %request_id, attempt, ?cause, error,
            "batch failed"
        );
    }
}
