//! The batches that a worker holds: since when, and until when the worker may be silent.
//!
//! Apart from `supervisor`, which talks to the worker. Usually there is one batch; a worker whose
//! handler is asynchronous holds many. A batch is taken out whole or stays whole.

use std::time::Duration;

use jitney_batcher::{BatchId, DispatchReason, Padding};
use tokio::time::Instant;

use crate::admission::Permit;
use crate::outcome::Output;
use crate::pending::PendingRequest;
use crate::reply::{Answer, Timing};

/// A dispatched batch with its requests.
#[derive(Debug)]
pub(crate) struct WorkerBatch {
    pub(crate) id: BatchId,
    pub(crate) requests: Vec<PendingRequest>,
    pub(crate) items: u32,
    /// The most items a batch of this model may hold.
    pub(crate) items_max: u32,
    pub(crate) attempt: u8,
    pub(crate) reason: DispatchReason,
    pub(crate) dispatched: Instant,
    /// How long it was expected to run, if that was known.
    pub(crate) predicted: Option<Duration>,
    /// How late it was dispatched because the alarm rang late; once it is within its worker's reach,
    /// how long that took from when it should have been dispatched. None where it is not measured.
    pub(crate) handoff: Option<Duration>,
    /// What it costs as it came and as it is run, for a model that pads.
    pub(crate) padding: Option<Padding>,
}

impl WorkerBatch {
    /// The first try of a batch that is as large as may be.
    pub(crate) fn full(id: BatchId, requests: Vec<PendingRequest>, items: u32) -> Self {
        Self {
            id,
            requests,
            items,
            items_max: items,
            attempt: 1,
            reason: DispatchReason::Idle,
            dispatched: Instant::now(),
            predicted: None,
            handoff: None,
            padding: None,
        }
    }

    /// What one request can be told about the it.
    pub(crate) fn timing(
        &self,
        request: &PendingRequest,
        position: usize,
        compute: Duration,
    ) -> Timing {
        Timing {
            queue: self.dispatched.duration_since(request.admitted),
            compute,
            batch_items: self.items,
            batch_items_max: self.items_max,
            position: position as u32,
            reason: self.reason,
            attempt: self.attempt,
            batch: self.id.0,
            batches: Vec::new(),
            padding: self.padding,
        }
    }

    /// Whether any caller has a part of its answer, so that the batch cannot be tried again.
    pub(crate) fn streamed(&self) -> bool {
        self.requests.iter().any(|request| request.reply.streams())
    }

    /// Sends a piece to one request's caller; false if there is no such request.
    fn piece(&mut self, position: usize, output: Output, compute: Duration) -> bool {
        let Some(request) = self.requests.get(position) else { return false };
        let timing = self.timing(request, position, compute);
        let PendingRequest { reply, permit, .. } = &mut self.requests[position];
        let account = permit.as_ref().map(Permit::account);
        reply.piece(Answer { output, timing, stream: None }, account);
        true
    }
}

#[derive(Debug)]
struct SentBatch {
    batch: WorkerBatch,
    given: Instant,
    /// The last time the worker said something about it: its time to answer starts anew then.
    last_message: Instant,
    /// The worker was told that no caller waits for it.
    cancelled: bool,
}

/// All batches of one worker, in the order in which it was given them.
#[derive(Debug)]
pub(crate) struct SentBatches {
    batches: Vec<SentBatch>,
    /// Whether it runs them one after another: only the first one's time runs.
    queued: bool,
}

impl SentBatches {
    pub(crate) fn new(queued: bool) -> Self {
        Self { batches: Vec::new(), queued }
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// A batch is about to be given to the worker; returns it for that.
    pub(crate) fn add(&mut self, mut batch: WorkerBatch) -> &WorkerBatch {
        let now = Instant::now();
        batch.handoff = batch.handoff.filter(|_| self.queued);
        self.batches.push(SentBatch { batch, given: now, last_message: now, cancelled: false });
        &self.batches[self.batches.len() - 1].batch
    }

    /// The batch that was added last is within the worker's reach.
    pub(crate) fn handed(&mut self) {
        if let Some(it) = self.batches.last_mut().filter(|_| self.queued) {
            let took = it.batch.dispatched.elapsed();
            it.batch.handoff = it.batch.handoff.map(|late| late + took);
        }
    }

    /// Sends pieces to their callers; false if the worker was never given such a request.
    pub(crate) fn pieces(&mut self, id: u64, pieces: Vec<(usize, Output)>) -> bool {
        let Some(it) = self.batches.iter_mut().find(|it| it.batch.id.0 == id) else {
            return false;
        };
        it.last_message = Instant::now();
        let compute = it.last_message.duration_since(it.given);
        pieces.into_iter().all(|(position, output)| it.batch.piece(position, output, compute))
    }

    /// Whether all callers have left this batch; true once.
    pub(crate) fn is_deserted(&mut self, id: u64) -> bool {
        let Some(it) = self.batches.iter_mut().find(|it| it.batch.id.0 == id) else {
            return false;
        };
        let left = it.batch.requests.iter().all(|request| request.reply.is_closed());
        left && !std::mem::replace(&mut it.cancelled, true)
    }

    /// Takes a finished batch out, with the time it took; none if the worker was never given it.
    pub(crate) fn finish(&mut self, id: u64) -> Option<(WorkerBatch, Duration)> {
        let at = self.batches.iter().position(|it| it.batch.id.0 == id)?;
        let it = self.batches.remove(at);
        let now = Instant::now();
        if let Some(next) = self.batches.first_mut().filter(|_| self.queued) {
            // It begins only now, whenever it was given.
            (next.given, next.last_message) = (now, now);
        }
        Some((it.batch, now.duration_since(it.given)))
    }

    /// The batch that the worker is at, where that is known.
    pub(crate) fn current(&self) -> Option<BatchId> {
        self.batches.first().filter(|_| self.queued).map(|it| it.batch.id)
    }

    /// The batch that has waited longest for a message, and when that was; of batches that run one
    /// after another the first.
    pub(crate) fn quietest(&self) -> Option<(BatchId, Instant)> {
        let running = if self.queued { 1 } else { self.batches.len() };
        let quiet = self.batches.iter().take(running).min_by_key(|it| it.last_message)?;
        Some((quiet.batch.id, quiet.last_message))
    }

    /// Takes everything out.
    pub(crate) fn into_batches(self) -> impl Iterator<Item = WorkerBatch> {
        self.batches.into_iter().map(|it| it.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waits_behind_a_stream_is_not_overdue() {
        for (queued, quietest) in [(true, 1), (false, 2)] {
            let mut running = SentBatches::new(queued);
            running.add(WorkerBatch::full(BatchId(1), Vec::new(), 1));
            running.add(WorkerBatch::full(BatchId(2), Vec::new(), 1));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(running.pieces(1, Vec::new()));
            assert_eq!(running.quietest().map(|it| it.0), Some(BatchId(quietest)));
        }
    }
}
