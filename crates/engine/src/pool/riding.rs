//! The batches a worker holds: who rides, since when, and until when the worker may be silent.
//!
//! Apart from `seat`, which talks to the worker. Usually there is one batch; a worker whose
//! handler is asynchronous holds many. A batch is taken out whole or stays whole.

use std::time::Duration;

use jitney_batcher::{BatchId, DispatchReason, Padding, RequestId};
use tokio::time::Instant;

use crate::call::{Answer, Output, PendingRequest, Timing};

/// A departed batch with everybody in it.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: BatchId,
    pub(crate) ids: Vec<RequestId>,
    pub(crate) requests: Vec<PendingRequest>,
    pub(crate) items: u32,
    /// The most items a batch of this model may hold.
    pub(crate) items_max: u32,
    pub(crate) attempt: u8,
    pub(crate) reason: DispatchReason,
    pub(crate) departed: Instant,
    /// How long it was expected to run, if anybody could tell.
    pub(crate) predicted: Option<Duration>,
    /// How late it departed because the clock rang late; once it lies before its worker, how long
    /// that took from when it should have departed. None where nobody measures that.
    pub(crate) handoff: Option<Duration>,
    /// What it costs as it came and as it is run, for a model that pads.
    pub(crate) padding: Option<Padding>,
}

impl Batch {
    /// What one request can be told about the ride.
    pub(crate) fn timing(
        &self,
        request: &PendingRequest,
        position: usize,
        compute: Duration,
    ) -> Timing {
        Timing {
            queue: self.departed.duration_since(request.admitted),
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
        self.requests[position].reply.piece(Answer { output, timing, stream: None });
        true
    }
}

#[derive(Debug)]
struct Ride {
    batch: Batch,
    given: Instant,
    /// The last time the worker said something about it: its time to answer starts anew then.
    heard: Instant,
    /// The worker was told that nobody waits for it.
    cancelled: bool,
}

/// All batches of one worker, in the order in which it was given them.
#[derive(Debug)]
pub(crate) struct Riding {
    rides: Vec<Ride>,
    /// Whether it runs them one after another: only the first one's time runs.
    queued: bool,
}

impl Riding {
    pub(crate) fn new(queued: bool) -> Self {
        Self { rides: Vec::new(), queued }
    }

    pub(crate) fn len(&self) -> usize {
        self.rides.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rides.is_empty()
    }

    /// A batch is about to be given to the worker; returns it for that.
    pub(crate) fn board(&mut self, mut batch: Batch) -> &Batch {
        let now = Instant::now();
        batch.handoff = batch.handoff.filter(|_| self.queued);
        self.rides.push(Ride { batch, given: now, heard: now, cancelled: false });
        &self.rides[self.rides.len() - 1].batch
    }

    /// The batch that was boarded last lies before the worker.
    pub(crate) fn handed(&mut self) {
        if let Some(ride) = self.rides.last_mut().filter(|_| self.queued) {
            let took = ride.batch.departed.elapsed();
            ride.batch.handoff = ride.batch.handoff.map(|late| late + took);
        }
    }

    /// Sends pieces to their callers; false if the worker spoke of somebody it was never given.
    pub(crate) fn pieces(&mut self, id: u64, pieces: Vec<(usize, Output)>) -> bool {
        let Some(ride) = self.rides.iter_mut().find(|ride| ride.batch.id.0 == id) else {
            return false;
        };
        ride.heard = Instant::now();
        let compute = ride.heard.duration_since(ride.given);
        pieces.into_iter().all(|(position, output)| ride.batch.piece(position, output, compute))
    }

    /// Whether everybody has left this batch, said once.
    pub(crate) fn deserted(&mut self, id: u64) -> bool {
        let Some(ride) = self.rides.iter_mut().find(|ride| ride.batch.id.0 == id) else {
            return false;
        };
        let left = ride.batch.requests.iter().all(|request| request.reply.is_closed());
        left && !std::mem::replace(&mut ride.cancelled, true)
    }

    /// Takes a finished batch out, with the time it took; none if the worker was never given it.
    pub(crate) fn over(&mut self, id: u64) -> Option<(Batch, Duration)> {
        let at = self.rides.iter().position(|ride| ride.batch.id.0 == id)?;
        let ride = self.rides.remove(at);
        let now = Instant::now();
        if let Some(next) = self.rides.first_mut().filter(|_| self.queued) {
            // It begins only now, whenever it was given.
            (next.given, next.heard) = (now, now);
        }
        Some((ride.batch, now.duration_since(ride.given)))
    }

    /// The batch that the worker is at, where that is known.
    pub(crate) fn current(&self) -> Option<BatchId> {
        self.rides.first().filter(|_| self.queued).map(|ride| ride.batch.id)
    }

    /// The batch that has waited longest for a word, and when that was; of batches that run one
    /// after another the first.
    pub(crate) fn quietest(&self) -> Option<(BatchId, Instant)> {
        let running = if self.queued { 1 } else { self.rides.len() };
        let quiet = self.rides.iter().take(running).min_by_key(|ride| ride.heard)?;
        Some((quiet.batch.id, quiet.heard))
    }

    /// Takes everything out.
    pub(crate) fn into_batches(self) -> impl Iterator<Item = Batch> {
        self.rides.into_iter().map(|ride| ride.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(id: u64) -> Batch {
        Batch {
            id: BatchId(id),
            ids: Vec::new(),
            requests: Vec::new(),
            items: 1,
            items_max: 1,
            attempt: 1,
            reason: DispatchReason::Idle,
            departed: Instant::now(),
            predicted: None,
            handoff: None,
            padding: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waits_behind_a_stream_is_not_overdue() {
        for (queued, quietest) in [(true, 1), (false, 2)] {
            let mut riding = Riding::new(queued);
            riding.board(batch(1));
            riding.board(batch(2));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(riding.pieces(1, Vec::new()));
            assert_eq!(riding.quietest().map(|it| it.0), Some(BatchId(quietest)));
        }
    }
}
