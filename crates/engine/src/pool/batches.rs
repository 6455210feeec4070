//! The batches that a worker holds: since when, and until when the worker may be silent.
//!
//! Apart from `supervisor`, which talks to the worker. Usually there is one batch; a worker whose
//! handler is asynchronous holds many. A batch is taken out whole or stays whole.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{BatchId, DispatchReason, Padding};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::worker::{BatchOrder, BatchTimes};
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
    /// How late it was dispatched because the alarm rang late; once it is within its worker's reach (of one
    /// that overlaps its batches: once it is about to be written), how long that took from when it should
    /// have been dispatched. None where it is not measured.
    pub(crate) handoff: Option<Duration>,
    /// What it costs as it came and as it is run, for a model that pads.
    pub(crate) padding: Option<Padding>,
    /// Whom it was sent to.
    pub(crate) worker: u32,
    /// Whether it runs beside others: the batcher takes it for done.
    pub(crate) beside: bool,
    /// Whether it warms its worker up: nobody waits for it, and the batcher does not know it.
    pub(crate) warms_up: bool,
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
            worker: 0,
            beside: false,
            warms_up: false,
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

    /// Sends a piece to one request's caller, who makes itself heard through `left` when it leaves the stream.
    /// Whether it is there; none if there is no such request.
    fn piece(
        &mut self,
        (position, output): (usize, Output),
        compute: Duration,
        left: &Arc<Notify>,
    ) -> Option<bool> {
        let timing = self.timing(self.requests.get(position)?, position, compute);
        let PendingRequest { reply, permit, .. } = &mut self.requests[position];
        let account = permit.as_ref().map(Permit::account);
        reply.piece(Answer { output, timing, stream: None }, account, left);
        Some(!reply.is_closed())
    }
}

/// How long a batch took that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchRun {
    /// How long it was with the worker, apart from waiting for its turn where it only waited.
    pub(crate) compute: Duration,
    /// How long it kept the worker from the next one: of a worker that overlaps its batches, how long it was
    /// in the model.
    pub(crate) exec: Duration,
    /// How long it took until it was prepared, while another one could run; with what it waited for the
    /// one before it to be prepared.
    pub(crate) prepare: Option<Duration>,
    /// What the worker measured, where it does.
    pub(crate) times: Option<Box<BatchTimes>>,
}

/// Requests of a batch whose callers have left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftRequests {
    pub(super) batch: BatchId,
    /// Their places in the batch; empty: nobody waits for any of its requests.
    pub(super) positions: Vec<u16>,
}

#[derive(Debug)]
struct SentBatch {
    batch: WorkerBatch,
    given: Instant,
    /// Since when it could run: it was given, and the one before it was over.
    began: Instant,
    /// The last time the worker said something about it: its time to answer starts anew then.
    last_message: Instant,
    /// By position, whether the worker was told that the caller of the request has left; empty: of none.
    told_left: Vec<bool>,
    times: Option<Box<BatchTimes>>,
}

impl SentBatch {
    /// Whose callers have left since the worker was last told; each is named once.
    fn newly_left(&mut self) -> Option<LeftRequests> {
        let told = |at: usize| self.told_left.get(at).is_some_and(|told| *told);
        let requests = self.batch.requests.iter().enumerate();
        let left = requests.filter(|(at, request)| request.reply.is_closed() && !told(*at));
        let left: Vec<u16> = left.map(|(at, _)| at as u16).collect();
        if left.is_empty() {
            return None;
        }
        self.told_left.resize(self.batch.requests.len(), false);
        left.iter().for_each(|at| self.told_left[usize::from(*at)] = true);
        let all = self.told_left.iter().all(|told| *told);
        let positions = if all { Vec::new() } else { left };
        Some(LeftRequests { batch: self.batch.id, positions })
    }

    /// How long it was with the worker until now.
    fn compute(&self, order: BatchOrder, now: Instant) -> Duration {
        match order {
            BatchOrder::Sequential => now.duration_since(self.began),
            BatchOrder::Overlapping | BatchOrder::Concurrent => now.duration_since(self.given),
        }
    }
}

/// All batches of one worker, in the order in which it was given them.
#[derive(Debug)]
pub(crate) struct SentBatches {
    batches: Vec<SentBatch>,
    order: BatchOrder,
    /// When the batch that was answered last was prepared, where that is measured.
    prepared: Option<Instant>,
}

impl SentBatches {
    pub(crate) fn new(order: BatchOrder) -> Self {
        Self { batches: Vec::new(), order, prepared: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn holds(&self, id: u64) -> bool {
        self.batches.iter().any(|it| it.batch.id.0 == id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// A batch is about to be given to the worker; returns it for that.
    pub(crate) fn add(&mut self, mut batch: WorkerBatch) -> &WorkerBatch {
        let now = Instant::now();
        batch.handoff = match self.order {
            BatchOrder::Sequential => batch.handoff,
            // From here on the worker measures.
            BatchOrder::Overlapping => batch.handoff.map(|late| late + (now - batch.dispatched)),
            BatchOrder::Concurrent => None,
        };
        self.batches.push(SentBatch {
            batch,
            given: now,
            began: now,
            last_message: now,
            told_left: Vec::new(),
            times: None,
        });
        &self.batches[self.batches.len() - 1].batch
    }

    /// The batch that was added last is within the worker's reach.
    pub(crate) fn handed(&mut self) {
        let sequential = self.order == BatchOrder::Sequential;
        if let Some(it) = self.batches.last_mut().filter(|_| sequential) {
            let took = it.batch.dispatched.elapsed();
            it.batch.handoff = it.batch.handoff.map(|late| late + took);
        }
    }

    /// The worker says how long a batch took; false if it was never given it.
    pub(crate) fn times(&mut self, id: u64, times: BatchTimes) -> bool {
        let found = self.batches.iter_mut().find(|it| it.batch.id.0 == id);
        found.map(|it| it.times = Some(Box::new(times))).is_some()
    }

    /// Sends pieces to their callers. Whether all of these are there; none if the worker was never given such a
    /// request.
    pub(crate) fn pieces(
        &mut self,
        id: u64,
        pieces: Vec<(usize, Output)>,
        left: &Arc<Notify>,
    ) -> Option<bool> {
        let it = self.batches.iter_mut().find(|it| it.batch.id.0 == id)?;
        it.last_message = Instant::now();
        let compute = it.compute(self.order, it.last_message);
        pieces
            .into_iter()
            .try_fold(true, |all, piece| Some(it.batch.piece(piece, compute, left)? && all))
    }

    /// Takes a finished batch out, with the time it took; none if the worker was never given it.
    pub(crate) fn finish(&mut self, id: u64) -> Option<(WorkerBatch, BatchRun)> {
        let at = self.batches.iter().position(|it| it.batch.id.0 == id)?;
        let it = self.batches.remove(at);
        let now = Instant::now();
        let in_turn = at == 0 && self.order != BatchOrder::Concurrent;
        if let Some(next) = self.batches.first_mut().filter(|_| in_turn) {
            // It could run only now, whenever it was given.
            (next.began, next.last_message) = (now, now);
        }
        let overlaps = self.order == BatchOrder::Overlapping;
        let (model, prepare) =
            it.times.as_deref().map_or((None, None), |it| (it.model, it.prepare));
        if let Some(prepare) = prepare.filter(|_| overlaps) {
            let from = self.prepared.map_or(it.given, |before| before.max(it.given));
            self.prepared = Some(now.min(from + prepare));
        }
        let prepared = self.prepared.filter(|_| overlaps && prepare.is_some());
        let run = BatchRun {
            compute: it.compute(self.order, now),
            exec: model.filter(|_| overlaps).unwrap_or_else(|| now.duration_since(it.began)),
            prepare: prepared.map(|at| at.duration_since(it.given)),
            times: it.times,
        };
        Some((it.batch, run))
    }

    /// The batch that the worker is at, where that is known: one that overlaps its batches may be at any.
    pub(crate) fn current(&self) -> Option<BatchId> {
        let sequential = self.order == BatchOrder::Sequential;
        self.batches.first().filter(|_| sequential).map(|it| it.batch.id)
    }

    /// The batch that has waited longest for a message, and when that was; of batches that are answered
    /// in order the first.
    pub(crate) fn quietest(&self) -> Option<(BatchId, Instant)> {
        let running = match self.order {
            BatchOrder::Sequential | BatchOrder::Overlapping => 1,
            BatchOrder::Concurrent => self.batches.len(),
        };
        let quiet = self.batches.iter().take(running).min_by_key(|it| it.last_message)?;
        Some((quiet.batch.id, quiet.last_message))
    }

    /// Takes everything out.
    pub(crate) fn into_batches(self) -> impl Iterator<Item = WorkerBatch> {
        self.batches.into_iter().map(|it| it.batch)
    }
}

/// What a worker holds.
pub(super) struct HeldBatches {
    pub(super) running: SentBatches,
    /// Batches that run beside them.
    pub(super) beside: SentBatches,
    /// A batch that came ahead of its turn and is too large to be given to a worker at work.
    pub(super) next: Option<WorkerBatch>,
    /// Batches it may hold, the one ahead included.
    pub(super) room: usize,
}

impl HeldBatches {
    pub(super) fn has_room(&self) -> bool {
        self.next.is_none() && self.running.len() < self.room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.beside.is_empty()
    }

    /// Requests whose callers have left since the worker was last told.
    pub(super) fn newly_left(&mut self) -> Vec<LeftRequests> {
        let sent = self.running.batches.iter_mut().chain(&mut self.beside.batches);
        sent.filter_map(SentBatch::newly_left).collect()
    }

    /// Those among which this one is.
    pub(super) fn holding(&mut self, batch: u64) -> &mut SentBatches {
        if self.beside.holds(batch) { &mut self.beside } else { &mut self.running }
    }
}

#[cfg(test)]
mod tests {
    use jitney_batcher::Request;

    use super::*;
    use crate::pending::SharedId;
    use crate::reply::{AnswerReceiver, Reply};
    use crate::testkit::call;

    fn waited_for() -> (PendingRequest, AnswerReceiver) {
        let (facts, (reply, caller)) = (Request::new(SharedId::UNSET), Reply::new());
        let input = crate::pending::Payload::Raw(call("body").input);
        (PendingRequest::new(facts, input, Instant::now(), reply, None), caller)
    }

    #[tokio::test(start_paused = true)]
    async fn each_caller_that_left_is_told_once_and_the_last_ones_as_all() {
        let (requests, mut callers): (Vec<_>, Vec<_>) = (0..3).map(|_| waited_for()).unzip();
        let [running, beside] =
            [BatchOrder::Sequential, BatchOrder::Concurrent].map(SentBatches::new);
        let mut held = HeldBatches { running, beside, next: None, room: 1 };
        held.running.add(WorkerBatch::full(BatchId(7), requests, 3));
        let left =
            |positions: &[u16]| LeftRequests { batch: BatchId(7), positions: positions.to_vec() };
        assert_eq!(held.newly_left(), []);
        drop(callers.remove(1));
        assert_eq!(held.newly_left(), [left(&[1])]);
        assert_eq!(held.newly_left(), []);
        callers.clear();
        assert_eq!(held.newly_left(), [left(&[])]);
        assert_eq!(held.newly_left(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waits_behind_a_stream_is_not_overdue() {
        use BatchOrder::{Concurrent, Overlapping, Sequential};
        for (order, quietest) in [(Sequential, 1), (Overlapping, 1), (Concurrent, 2)] {
            let mut running = SentBatches::new(order);
            running.add(WorkerBatch::full(BatchId(1), Vec::new(), 1));
            running.add(WorkerBatch::full(BatchId(2), Vec::new(), 1));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(running.pieces(1, Vec::new(), &Arc::default()), Some(true));
            assert_eq!(running.quietest().map(|it| it.0), Some(BatchId(quietest)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_worker_measures_counts_where_batches_overlap() {
        let ms = Duration::from_millis;
        for (order, first, [compute, exec]) in [
            (BatchOrder::Sequential, [30, 30], [20, 20]),
            (BatchOrder::Overlapping, [30, 12], [50, 20]),
            (BatchOrder::Concurrent, [30, 30], [50, 50]),
        ] {
            let mut running = SentBatches::new(order);
            let begun = |id| WorkerBatch {
                handoff: Some(ms(1)),
                ..WorkerBatch::full(BatchId(id), Vec::new(), 1)
            };
            running.add(begun(1));
            running.add(begun(2));
            tokio::time::advance(ms(30)).await;
            let times =
                BatchTimes { prepare: Some(ms(7)), model: Some(ms(12)), ..BatchTimes::default() };
            assert!(running.times(1, times) && !running.times(9, times));
            let (batch, run) = running.finish(1).expect("the first");
            assert_eq!([run.compute, run.exec], first.map(ms), "{order:?}");
            let overlaps = order == BatchOrder::Overlapping;
            assert_eq!(
                (run.prepare, run.times),
                (overlaps.then_some(ms(7)), Some(Box::new(times)))
            );
            assert_eq!(batch.handoff, (order != BatchOrder::Concurrent).then_some(ms(1)));
            tokio::time::advance(ms(20)).await;
            let (_, run) = running.finish(2).expect("the second");
            assert_eq!([run.compute, run.exec], [compute, exec].map(ms), "{order:?}");
            assert_eq!(run.times, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_comes_back_out_of_turn_gives_the_first_no_more_time() {
        let mut running = SentBatches::new(BatchOrder::Overlapping);
        running.add(WorkerBatch::full(BatchId(1), Vec::new(), 1));
        running.add(WorkerBatch::full(BatchId(2), Vec::new(), 1));
        let begun = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(running.finish(2).is_some());
        assert_eq!(running.quietest(), Some((BatchId(1), begun)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_to_be_prepared_until_the_one_before_it_is() {
        let ms = Duration::from_millis;
        let mut running = SentBatches::new(BatchOrder::Overlapping);
        running.add(WorkerBatch::full(BatchId(1), Vec::new(), 1));
        tokio::time::advance(ms(3)).await;
        running.add(WorkerBatch::full(BatchId(2), Vec::new(), 1));
        tokio::time::advance(ms(97)).await;
        let times = BatchTimes { prepare: Some(ms(8)), ..BatchTimes::default() };
        let prepare = [1, 2].map(|id| {
            running.times(id, times);
            running.finish(id).and_then(|(_, run)| run.prepare)
        });
        assert_eq!(prepare, [Some(ms(8)), Some(ms(13))]);
    }
}
