//! What becomes of a dead worker's batches, and of batches that broke off in the middle of a
//! stream. Nothing is lost here and nobody innocent is blamed: a request is told, or tried again.

use jitney_batcher::{BatchId, Down, Event, Failure};

use super::Task;
use crate::error::CallError;
use crate::model::scatter;
use crate::outcome::Death;
use crate::pool::Batch;

impl Task {
    pub(super) fn on_death(
        &mut self,
        worker: u32,
        batches: Vec<Batch>,
        death: Death,
        overdue: Option<BatchId>,
    ) {
        let riding: usize = batches.iter().map(|batch| batch.riders.len()).sum();
        tracing::warn!(model = self.label, worker, ?death, riding, "worker died");
        let error = CallError::WorkerDied { killed: death == Death::Crashed { killed: true } };
        let crowded = batches.len() > 1;
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
            self.give_up(batch, error.clone());
        }
        self.state.pool.died(worker);
        if crowded {
            self.set_probation(true);
        }
        self.blame(worker, death, overdue, crowded);
        self.pool_changed();
    }

    fn blame(&mut self, worker: u32, death: Death, overdue: Option<BatchId>, crowded: bool) {
        let why = match (death, overdue) {
            // Of several batches only one took too long; the others wait again as if nothing was.
            (Death::TimedOut, Some(batch)) if crowded => {
                self.step(Event::Failed { batch, kind: Failure::TimedOut });
                Down::Removed
            }
            (Death::TimedOut, _) => Down::TimedOut,
            (Death::Crashed { .. } | Death::Garbled, _) => Down::Crashed,
        };
        self.tell_down(worker, why);
    }

    /// Takes back a batch that failed. One whose answers have partly gone out is never tried
    /// again: its callers are told now, and the batcher hears that nobody waits for it.
    pub(super) fn give_up(&mut self, batch: Batch, error: CallError) {
        if !batch.streamed() {
            return self.come_back(batch, Some(error));
        }
        for (id, rider) in batch.ids.into_iter().zip(batch.riders) {
            scatter::end(rider, Err(error.clone()), &self.board);
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
        for worker in self.state.pool.ready() {
            self.tell_up(worker);
        }
    }

    pub(super) fn slots(&self, worker: u32) -> u8 {
        if self.state.probation { 1 } else { self.state.pool.slots(worker) }
    }
}
