//! What workers say: up, finished, failed to start, given up, gone. A death is in `burial`.

use std::time::Duration;

use jitney_batcher::{BatchFailure, DownReason, Event};
use tokio::time::Instant;

use super::Task;
use crate::error::CallError;
use crate::model::scatter;
use crate::observer::BatchFinished;
use crate::outcome::{BatchOutcome, Cause, LaunchError, ModelFailure};
use crate::pool::{Batch, WorkerEvent};

impl Task {
    pub(super) fn on_worker(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Up { worker, pid, slots, ahead, batches, took } => {
                tracing::info!(model = self.label, worker, "worker is ready");
                self.observer.worker_loaded(&self.tag, worker, took);
                self.state.pool.up(worker, pid, (slots, ahead), batches);
                if !self.begin_sweep(worker) {
                    self.serve(worker);
                }
            }
            WorkerEvent::Finished { batch, outcome, exec } if Self::is_swept(&batch) => {
                self.on_swept(batch, outcome, exec);
            }
            WorkerEvent::Finished { batch, outcome, exec } => {
                self.on_finished(batch, outcome, exec);
            }
            WorkerEvent::Exited { worker, batches, death, blamed } => {
                self.on_death(worker, batches, death, blamed);
            }
            WorkerEvent::LaunchFailed { worker, error } => self.on_launch_failed(worker, &error),
            WorkerEvent::GivenUp { worker } => {
                tracing::error!(
                    model = self.label,
                    worker,
                    "worker is given up: it did not come back within the retry window"
                );
                self.state.pool.given_up(worker);
                self.pool_changed();
            }
            WorkerEvent::Stopped { worker } => {
                self.forget_worker(worker);
                self.forget_sweep(worker);
                self.tell_down(worker, DownReason::Removed);
                self.state.pool.stopped(worker);
                self.pool_changed();
            }
        }
    }

    /// The worker may have batches from now on.
    pub(super) fn serve(&mut self, worker: u32) {
        self.know_worker(worker);
        self.tell_up(worker);
        self.pool_changed();
    }

    fn on_finished(&mut self, batch: Batch, outcome: BatchOutcome, exec: Duration) {
        let id = batch.id;
        // Second tries go before fresh work, so fresh work means that they are over.
        if self.state.probation && batch.attempt == 1 {
            self.set_probation(false);
        }
        match scatter::checked(outcome, batch.requests.len()) {
            Ok(items) => {
                for request in &batch.ids {
                    self.end(*request);
                }
                self.end_sequences(&items);
                // The worker gets its next batch before the answers are given out: everything that
                // an answer wakes would otherwise run first, and the worker would stand idle.
                self.step(Event::Done { batch: id, exec: exec.as_nanos() as u64 });
                if let Some(predicted) = batch.predicted {
                    self.board.meters.foretold(predicted, exec);
                }
                self.show_curve(Instant::now());
                self.observer.batch_finished(&BatchFinished {
                    model: &self.tag,
                    compute: exec,
                    handling: batch.departed.elapsed().saturating_sub(exec),
                    requests: &batch.requests,
                });
                let handoff = batch.handoff;
                scatter::answer(batch, items, exec, &self.board);
                self.note_handoff(handoff);
            }
            Err(failure) => {
                self.log_failure(&batch, &failure);
                self.give_up(batch, CallError::Model(failure));
                self.step(Event::Failed { batch: id, kind: BatchFailure::Handler });
            }
        }
    }

    fn on_launch_failed(&mut self, worker: u32, error: &LaunchError) {
        match error {
            // The worker has printed the traceback; a second line with the exception in it would
            // only look like a second one to those who search for it.
            LaunchError::Load(_) => tracing::error!(
                model = self.label,
                worker,
                "worker did not start: the model did not load, for the reason that it printed"
            ),
            error @ (LaunchError::Spawn(_)
            | LaunchError::Ended
            | LaunchError::TimedOut { .. }
            | LaunchError::Memory(_)) => {
                tracing::error!(model = self.label, worker, %error, "worker did not start");
            }
        }
        self.state.pool.launch_failed(error);
        self.pool_changed();
    }

    fn log_failure(&self, batch: &Batch, failure: &ModelFailure) {
        let (requests, attempt) = (batch.requests.len(), batch.attempt);
        match failure.cause {
            Cause::Prediction | Cause::Stated => tracing::debug!(
                model = self.label,
                requests,
                attempt,
                message = failure.message,
                "prediction error"
            ),
            Cause::Raised
            | Cause::Memory
            | Cause::NotAList
            | Cause::WrongLength
            | Cause::UnsupportedOutput => tracing::warn!(
                model = self.label, requests, attempt, cause = ?failure.cause, "batch failed"
            ),
        }
    }
}
