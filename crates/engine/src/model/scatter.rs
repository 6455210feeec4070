//! The end of a batch: splits a batch's outcome by request and answers every caller.
//!
//! The length of the outcome is checked here and believed nowhere: an answer goes to a caller only
//! when there is exactly one per request, so that no caller ever gets the row of another.

use std::time::Duration;

use tokio::time::Instant;

use super::scheduler::ModelClock;
use super::state::{ModelState, add, rejection};
use crate::error::CallError;
use crate::outcome::{BatchOutcome, Cause, ItemOutcome, ModelFailure};
use crate::pending::PendingRequest;
use crate::pool::WorkerBatch;
use crate::reply::{Answer, Timing};

/// One outcome per request, or the failure of the batch as a whole.
pub(super) fn checked(
    outcome: Result<BatchOutcome, CallError>,
    count: usize,
) -> Result<Vec<ItemOutcome>, CallError> {
    match outcome? {
        BatchOutcome::Items(items) if items.len() == count => Ok(items),
        BatchOutcome::Items(_) => Err(CallError::Model(ModelFailure::new(
            Cause::WrongLength,
            "number of batch response mismatched",
        ))),
        BatchOutcome::Failed(failure) => Err(CallError::Model(failure)),
    }
}

/// Answers every request of a finished batch.
pub(super) fn answer(
    mut batch: WorkerBatch,
    items: Vec<ItemOutcome>,
    compute: Duration,
    clock: ModelClock,
    published: &ModelState,
) {
    let now = Instant::now();
    let now_ns = clock.nanos(now);
    published.meters.computed(compute);
    // Before the answers, so that whoever has one finds its batch counted.
    let counted = batch.requests.iter().filter(|request| request.reply.counts() > 0);
    let (requests, queued) = counted.fold((0, Duration::ZERO), |(requests, queued), request| {
        (requests + 1, queued + batch.dispatched.duration_since(request.admitted))
    });
    published.meters.batches.answered(batch.items, requests, queued, compute);
    published.meters.batches.answered_at(now);
    let requests = std::mem::take(&mut batch.requests);
    for (position, (request, item)) in requests.into_iter().zip(items).enumerate() {
        let timing = batch.timing(&request, position, compute);
        let latency = now.duration_since(request.admitted);
        if !request.reply.is_part() {
            published.meters.answered(timing.queue, latency);
        }
        if position == 0 && item.is_ok() {
            published.noted.answered(&request, latency, &timing);
        }
        match item {
            Ok(output) => {
                let is_late = now_ns > request.facts.deadline;
                if is_late {
                    count_late(&request, published);
                }
                if let Some(endpoint) = request.endpoint {
                    published.endpoints.answered(endpoint, latency, is_late);
                    let ran = (position == 0).then_some(timing.compute);
                    published.endpoints.ran(endpoint, timing.queue, ran);
                }
                end(request, Ok(Answer { output, timing, stream: None }), published);
            }
            Err(failure) => fail(request, CallError::Model(failure), Some(&timing), published),
        }
    }
}

/// Ends one request: its caller is told and its permit returned. What becomes of the whole is
/// counted by the caller of the parts.
pub(super) fn end(
    request: PendingRequest,
    answer: Result<Answer, CallError>,
    published: &ModelState,
) {
    match answer {
        Ok(_) => finish(request, answer, published),
        Err(error) => fail(request, error, None, published),
    }
}

/// Ends a request without an answer, after a batch that went like this if it was in one.
pub(super) fn fail(
    request: PendingRequest,
    error: CallError,
    timing: Option<&Timing>,
    published: &ModelState,
) {
    if !request.reply.is_closed() && rejection(&error).is_none() {
        published.noted.failed(&request, &error, timing);
    }
    finish(request, Err(error), published);
}

fn finish(request: PendingRequest, answer: Result<Answer, CallError>, published: &ModelState) {
    if !request.reply.is_part() {
        count(&answer, request.reply.is_closed(), published);
    }
    drop(request.permit);
    request.reply.finish(answer);
}

/// Counts an answer that comes too late, as far as somebody still waits for it.
#[cold]
fn count_late(request: &PendingRequest, published: &ModelState) {
    if !request.reply.is_part() && !request.reply.is_closed() {
        add(&published.late, 1);
    }
}

/// Ends requests that the model will not see.
pub(super) fn reject(
    requests: impl IntoIterator<Item = PendingRequest>,
    error: &CallError,
    published: &ModelState,
) {
    for request in requests {
        end(request, Err(error.clone()), published);
    }
}

/// Counts how one request ended.
pub(super) fn count(answer: &Result<Answer, CallError>, abandoned: bool, published: &ModelState) {
    let counter = match answer {
        _ if abandoned => &published.abandoned,
        Ok(_) => &published.answered,
        Err(error) if published.meters.rejected(error) => &published.rejected,
        Err(_) => &published.failed,
    };
    add(counter, 1);
}
