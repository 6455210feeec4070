//! The end of a ride: splits a batch's outcome by request and answers every caller.
//!
//! The length of the outcome is checked here and believed nowhere: an answer goes to a caller only
//! when there is exactly one per request, so nobody ever gets another's row.

use std::time::Duration;

use tokio::time::Instant;

use super::board::{Board, add};
use crate::call::{Answer, Rider};
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

/// Answers every rider of a finished batch.
pub(super) fn answer(mut batch: Batch, items: Vec<ItemOutcome>, compute: Duration, board: &Board) {
    let now = Instant::now();
    board.meters.computed(compute);
    let riders = std::mem::take(&mut batch.riders);
    for (position, (rider, item)) in riders.into_iter().zip(items).enumerate() {
        let receipt = batch.receipt(&rider, position, compute);
        if !rider.reply.is_portion() {
            board.meters.answered(receipt.queue, now.duration_since(rider.admitted));
        }
        match item {
            Ok(output) => end(rider, Ok(Answer { output, receipt, rest: None }), board),
            Err(failure) => end(rider, Err(CallError::Model(failure)), board),
        }
    }
}

/// Ends one request: its caller is told and its permit returned. What becomes of the whole is
/// counted by the caller of a portion.
pub(super) fn end(rider: Rider, answer: Result<Answer, CallError>, board: &Board) {
    if !rider.reply.is_portion() {
        count(&answer, rider.reply.is_closed(), board);
    }
    drop(rider.permit);
    rider.reply.finish(answer);
}

/// Writes down how one request ended.
pub(super) fn count(answer: &Result<Answer, CallError>, abandoned: bool, board: &Board) {
    let counter = match answer {
        _ if abandoned => &board.abandoned,
        Ok(_) => &board.answered,
        Err(
            CallError::Refused { .. }
            | CallError::Crowded { .. }
            | CallError::Sequence(_)
            | CallError::BadInput(_),
        ) => &board.refused,
        Err(
            CallError::Model(_)
            | CallError::WorkerDied { .. }
            | CallError::Outpaced
            | CallError::Gone,
        ) => &board.failed,
    };
    add(counter, 1);
    if let (Err(error), false) = (answer, abandoned) {
        board.meters.refused(error);
    }
}
