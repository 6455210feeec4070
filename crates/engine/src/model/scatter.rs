//! The end of a ride: splits a batch's outcome by request and answers every caller.
//!
//! The length of the outcome is checked here and believed nowhere: an answer goes to a caller only
//! when there is exactly one per request, so nobody ever gets another's row.

use std::time::Duration;

use tokio::time::Instant;

use super::board::{ModelState, add};
use crate::call::{Answer, PendingRequest};
use crate::error::CallError;
use crate::outcome::{BatchOutcome, Cause, ItemOutcome, ModelFailure};
use crate::pool::Batch;

/// One outcome per request, or the failure of the batch as a whole.
pub(super) fn checked(
    outcome: BatchOutcome,
    count: usize,
) -> Result<Vec<ItemOutcome>, ModelFailure> {
    match outcome {
        BatchOutcome::Items(items) if items.len() == count => Ok(items),
        BatchOutcome::Items(_) => Err(ModelFailure {
            cause: Cause::WrongLength,
            status: None,
            message: "number of batch response mismatched".to_owned(),
        }),
        BatchOutcome::Failed(failure) => Err(failure),
    }
}

/// Answers every request of a finished batch.
pub(super) fn answer(
    mut batch: Batch,
    items: Vec<ItemOutcome>,
    compute: Duration,
    board: &ModelState,
) {
    let now = Instant::now();
    board.meters.computed(compute);
    let requests = std::mem::take(&mut batch.requests);
    for (position, (request, item)) in requests.into_iter().zip(items).enumerate() {
        let timing = batch.timing(&request, position, compute);
        if !request.reply.is_part() {
            board.meters.answered(timing.queue, now.duration_since(request.admitted));
        }
        match item {
            Ok(output) => end(request, Ok(Answer { output, timing, stream: None }), board),
            Err(failure) => end(request, Err(CallError::Model(failure)), board),
        }
    }
}

/// Ends one request: its caller is told and its permit returned. What becomes of the whole is
/// counted by the caller of a part.
pub(super) fn end(request: PendingRequest, answer: Result<Answer, CallError>, board: &ModelState) {
    if !request.reply.is_part() {
        count(&answer, request.reply.is_closed(), board);
    }
    drop(request.permit);
    request.reply.finish(answer);
}

/// Writes down how one request ended.
pub(super) fn count(answer: &Result<Answer, CallError>, abandoned: bool, board: &ModelState) {
    let counter = match answer {
        _ if abandoned => &board.abandoned,
        Ok(_) => &board.answered,
        Err(
            CallError::Rejected { .. }
            | CallError::ServerFull { .. }
            | CallError::Sequence(_)
            | CallError::BadInput(_),
        ) => &board.rejected,
        Err(
            CallError::Model(_)
            | CallError::WorkerExited { .. }
            | CallError::SlowReader
            | CallError::Gone,
        ) => &board.failed,
    };
    add(counter, 1);
    if let (Err(error), false) = (answer, abandoned) {
        board.meters.refused(error);
    }
}
