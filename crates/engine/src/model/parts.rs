//! A request whose items need not be run in one batch: split at the gate, put together for its caller.
//!
//! Parts let a client-side batch fill the room that others leave, and let it be larger than any batch.
//! They are ordinary requests; what makes them one is the [`SplitReply`] that their caller waits for:
//! it ends with the first part that fails or with the last that is answered, counts the request once,
//! and cancels what is left when the caller stops waiting. Whether a request may be split is for its
//! model to say.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::messages::RequestMessage;
use super::scatter;
use super::state::{ModelState, add};
use crate::error::CallError;
use crate::outcome::Output;
use crate::pending::{PendingRequest, SharedId};
use crate::reply::{Answer, PartsReceiver, Timing};

/// Parts that a full batch has room for: so fine that little of a batch stays empty because the
/// next part does not fit, and so coarse that they cost little beside the work of a batch.
const PER_BATCH: u32 = 8;

/// Items of a part where a batch has at most this many: a part of the batch without a remainder,
/// if there is one that is neither too fine nor too coarse.
pub(super) fn size(batch: u32) -> u32 {
    let finest = (batch / (2 * PER_BATCH)).max(1);
    let sizes = (finest..=batch / PER_BATCH).rev();
    sizes.into_iter().find(|size| batch.is_multiple_of(*size)).unwrap_or(finest)
}

/// The cost of a part of a request: its share, rounded up.
pub(super) fn cost(whole: u64, items: u32, all: u32) -> u64 {
    let share = (u128::from(whole) * u128::from(items)).div_ceil(u128::from(all.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Parts that are sent at a time: all of them, unless there are more items than may wait. Then half of
/// those, so that others find room too.
pub(super) fn wave(items: u32, waiting_max: u64, size: u32) -> usize {
    if u64::from(items) <= waiting_max {
        return usize::MAX;
    }
    usize::try_from(waiting_max / 2 / u64::from(size.max(1))).unwrap_or(usize::MAX).max(1)
}

/// The caller's end of a request in parts. Dropping it is a client that went away.
pub(super) struct SplitReply<'a> {
    inbox: &'a mpsc::Sender<RequestMessage>,
    published: &'a Arc<ModelState>,
    answers: PartsReceiver,
    ids: Vec<SharedId>,
    /// Parts that are not sent yet, the first one last.
    unsent: Vec<PendingRequest>,
    /// Parts that are sent at a time.
    wave: usize,
    /// Parts that have not ended.
    left: usize,
    admitted: Instant,
    /// When it should be answered.
    deadline: Option<Instant>,
    /// Whether the request was counted.
    ended: bool,
}

impl<'a> SplitReply<'a> {
    pub(super) fn new(
        inbox: &'a mpsc::Sender<RequestMessage>,
        published: &'a Arc<ModelState>,
        answers: PartsReceiver,
        mut parts: Vec<PendingRequest>,
        wave: usize,
        admitted: Instant,
        deadline: Option<Instant>,
    ) -> Self {
        let ids: Vec<_> = parts.iter().map(|part| part.id.clone()).collect();
        parts.reverse();
        let (left, unsent, ended) = (ids.len(), parts, false);
        Self { inbox, published, answers, ids, unsent, wave, left, admitted, deadline, ended }
    }

    /// Sends the next parts.
    pub(super) fn submit(&mut self) -> Result<(), CallError> {
        let kept = self.unsent.len().saturating_sub(self.wave);
        let mut parts = self.unsent.split_off(kept);
        parts.reverse();
        RequestMessage::SubmitParts(parts).send(self.inbox)
    }

    /// The answer to the whole request, or the first thing that went wrong.
    pub(super) async fn answer(mut self) -> Result<Answer, CallError> {
        let answer = self.gather().await;
        self.ended = true;
        if let Ok(answer) = &answer {
            let now = Instant::now();
            self.published.meters.answered(answer.timing.queue, now - self.admitted);
            let is_late = self.deadline.is_some_and(|deadline| now > deadline);
            add(&self.published.late, is_late.into());
        }
        scatter::count(&answer, false, self.published);
        answer
    }

    async fn gather(&mut self) -> Result<Answer, CallError> {
        let mut whole: Option<PartAnswers> = None;
        while self.left > 0 {
            let Answer { output, timing, .. } =
                self.answers.recv().await.unwrap_or(Err(CallError::Gone))?;
            self.left -= 1;
            whole.get_or_insert_default().add(output, timing);
            if !self.unsent.is_empty() && self.left - self.unsent.len() <= self.wave / 2 {
                self.submit()?;
            }
        }
        whole.and_then(PartAnswers::answer).ok_or(CallError::Gone)
    }
}

impl Drop for SplitReply<'_> {
    fn drop(&mut self) {
        if !self.ended {
            add(&self.published.abandoned, 1);
        }
        if self.left > 0 {
            // As with any request: if the inbox is full, the parts are run for nothing.
            let ids = std::mem::take(&mut self.ids);
            drop(self.inbox.try_send(RequestMessage::CancelParts(ids)));
        }
    }
}

/// The answers to the parts so far.
#[derive(Default)]
struct PartAnswers {
    /// The answer, once the part that brings it is answered.
    output: Option<Output>,
    /// One for each batch.
    timings: Vec<Timing>,
}

impl PartAnswers {
    fn add(&mut self, output: Output, timing: Timing) {
        if !output.body.is_empty() || output.tensors.is_some() {
            self.output = Some(output);
        }
        if self.timings.iter().all(|other| other.batch != timing.batch) {
            self.timings.push(timing);
        }
    }

    fn answer(mut self) -> Option<Answer> {
        self.timings.sort_by_key(|timing| timing.batch);
        let batches: Vec<u32> = self.timings.iter().map(|timing| timing.batch_items).collect();
        let queue = self.timings.iter().map(|timing| timing.queue).min()?;
        let end = self.timings.iter().map(|timing| timing.queue + timing.compute).max()?;
        let attempt = self.timings.iter().map(|timing| timing.attempt).max()?;
        let last = self.timings.pop()?;
        let compute = end.checked_sub(queue).unwrap_or(Duration::ZERO);
        let batches = if batches.len() > 1 { batches } else { Vec::new() };
        let timing = Timing { queue, compute, attempt, batches, ..last };
        Some(Answer { output: self.output?, timing, stream: None })
    }
}

#[cfg(test)]
mod tests {
    use jitney_batcher::{Action, Actions, Batcher, Config, Event, Request, RequestId, WorkerId};

    use super::{cost, size, wave};

    #[test]
    fn a_part_divides_a_batch_without_a_remainder_where_that_is_not_too_fine() {
        let sizes = [1, 4, 8, 16, 30, 31, 32, 100, 127, 128].map(|batch| (batch, size(batch)));
        let expected = [
            (1, 1),
            (4, 1),
            (8, 1),
            (16, 2),
            (30, 3),
            (31, 1),
            (32, 4),
            (100, 10),
            (127, 7),
            (128, 16),
        ];
        assert_eq!(sizes, expected);
    }

    #[test]
    fn what_may_wait_is_sent_at_once_and_more_than_that_in_waves() {
        assert_eq!(wave(80, 80, 1), usize::MAX);
        assert_eq!([wave(81, 80, 1), wave(20_000, 3200, 4), wave(2, 1, 4)], [40, 400, 1]);
    }

    #[test]
    fn the_parts_of_a_request_cost_no_less_than_the_whole() {
        assert_eq!([cost(10, 1, 3), cost(10, 3, 3)], [4, 10]);
        assert_eq!(cost(u64::MAX, 1, 1), u64::MAX);
    }

    /// The batches that a backlog of requests with these items needs.
    fn batches(max_items: u32, requests: &[u32], part: u32) -> u32 {
        let config = Config { max_items, max_queue: u32::MAX, ..Config::default() };
        let (mut batcher, mut out) = (Batcher::new(config), Actions::new());
        let mut index = 0;
        for items in requests {
            for start in (0..*items).step_by(part as usize) {
                let (left, id) = (items - start, RequestId::new(index, 0));
                let request = Request { items: left.min(part), ..Request::new(id) };
                let more = left > part;
                batcher.step(0, Event::Arrive(Request { more, ..request }), &mut out);
                index += 1;
            }
        }
        batcher.step(1, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &mut out);
        let mut count = 0;
        loop {
            let left = out.iter().find_map(|action| match action {
                Action::Dispatch(dispatch) => Some((dispatch.batch, dispatch.items)),
                Action::Reject { .. } | Action::Fail { .. } => None,
                Action::SetTimer(_) | Action::ClearTimer => None,
            });
            let Some((batch, items)) = left else { return count };
            assert!(items <= max_items);
            count += 1;
            out.clear();
            batcher.step(2, Event::Done { batch, exec: 1, prepare: None }, &mut out);
        }
    }

    #[test]
    fn a_backlog_in_parts_needs_hardly_more_batches_than_its_items() {
        let mut dice = fastrand::Rng::with_seed(1);
        for max_items in [4, 8, 16, 31, 32, 100, 128] {
            let most = 2 * max_items;
            let requests: Vec<u32> = (0..400).map(|_| dice.u32(1..=most)).collect();
            let fewest = requests.iter().sum::<u32>().div_ceil(max_items);
            let needed = batches(max_items, &requests, size(max_items));
            assert!(f64::from(needed) <= f64::from(fewest) * 1.06, "{needed} for {fewest}");
            let fitting: Vec<u32> = requests.iter().map(|items| items.div_ceil(2)).collect();
            let fewest = fitting.iter().sum::<u32>().div_ceil(max_items);
            let needed = batches(max_items, &fitting, size(max_items));
            let whole = batches(max_items, &fitting, max_items);
            assert!(f64::from(needed) <= f64::from(fewest) * 1.06, "{needed} for {fewest}");
            assert!(f64::from(whole) > f64::from(needed) * 1.15, "{needed}, whole {whole}");
        }
    }
}
