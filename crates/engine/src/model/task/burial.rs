//! What becomes of a dead worker's batches, and of batches that broke off in the middle of a
//! stream. Nothing is lost here and nobody innocent is blamed: a request is told, or tried again.

use jitney_batcher::{BatchFailure, BatchId, DownReason, Event};

use super::Task;
use crate::error::CallError;
use crate::model::scatter;
use crate::outcome::WorkerExit;
use crate::pool::Batch;

impl Task {
    pub(super) fn on_death(
        &mut self,
        worker: u32,
        batches: Vec<Batch>,
        death: WorkerExit,
        blamed: Option<BatchId>,
    ) {
        let riding: usize = batches.iter().map(|batch| batch.requests.len()).sum();
        tracing::warn!(model = self.label, worker, ?death, riding, "worker died");
        let error =
            CallError::WorkerExited { killed: death == WorkerExit::Crashed { killed: true } };
        let (ahead, crowded) = (self.state.pool.ahead(worker), batches.len() > 1);
        if self.forget_sweep(worker) {
            tracing::warn!(
                model = self.label,
                "the model's sample ends its worker and is not used any more"
            );
            self.state.sweep = None;
        }
        // First of all it gets nothing more, so that no batch is sent to the dead meanwhile.
        self.retire(worker);
        for batch in batches {
            match ahead && blamed != Some(batch.id) {
                true => self.come_back(batch, None),
                false => self.give_up(batch, error.clone()),
            }
        }
        self.state.pool.exited(worker);
        if crowded && !ahead {
            self.set_probation(true);
        }
        self.blame(worker, death, blamed, ahead, crowded);
        self.pool_changed();
    }

    fn blame(
        &mut self,
        worker: u32,
        death: WorkerExit,
        blamed: Option<BatchId>,
        ahead: bool,
        crowded: bool,
    ) {
        let (kind, down) = match death {
            WorkerExit::TimedOut => (BatchFailure::TimedOut, DownReason::TimedOut),
            WorkerExit::Crashed { .. } | WorkerExit::Garbled => {
                (BatchFailure::Crashed, DownReason::Crashed)
            }
        };
        let why = match blamed {
            // Of several batches only one is to blame; the others wait again as if nothing was.
            Some(batch) if ahead || crowded => {
                self.step(Event::Failed { batch, kind });
                DownReason::Removed
            }
            // It was at none of the batches that were on their way to it.
            None if ahead => DownReason::Removed,
            Some(_) | None => down,
        };
        self.tell_down(worker, why);
    }

    /// Takes back a batch that failed. One whose answers have partly gone out is never tried
    /// again: its callers are told now, and the batcher hears that nobody waits for it.
    pub(super) fn give_up(&mut self, batch: Batch, error: CallError) {
        if !batch.streamed() {
            return self.come_back(batch, Some(error));
        }
        for (id, request) in batch.ids.into_iter().zip(batch.requests) {
            scatter::end(request, Err(error.clone()), &self.board);
            self.step(Event::Cancel { id });
        }
    }

    /// After the death of a worker with several batches nobody knows which of them killed it:
    /// until the second tries are over, every worker gets one batch at a time.
    pub(super) fn set_probation(&mut self, probation: bool) {
        if self.state.probation == probation {
            return;
        }
        self.state.probation = probation;
        self.tell_slots();
    }
}
