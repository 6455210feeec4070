//! A caller's way back: whole answers, streams, slow clients, lost requests.

use std::time::Duration;

use super::*;
use crate::call::{Output, Timing};
use crate::outcome::WorkerExit;

fn answer(body: &'static str) -> Answer {
    big(Bytes::from_static(body.as_bytes()))
}

fn big(body: Bytes) -> Answer {
    let timing = Timing {
        queue: Duration::ZERO,
        compute: Duration::ZERO,
        batch_items: 1,
        batch_items_max: 1,
        position: 0,
        reason: jitney_batcher::DispatchReason::Idle,
        attempt: 1,
        batch: 1,
        batches: Vec::new(),
        padding: None,
    };
    Answer { output: Output { body, ..Output::default() }, timing, stream: None }
}

async fn drain(rest: &mut AnswerStream) -> (Vec<Bytes>, Option<CallError>) {
    let mut pieces = Vec::new();
    while let Some(next) = rest.next().await {
        match next {
            Ok(piece) => pieces.push(piece),
            Err(error) => {
                assert!(rest.next().await.is_none(), "an error is the last word");
                return (pieces, Some(error));
            }
        }
    }
    (pieces, None)
}

#[tokio::test]
async fn a_whole_answer_has_no_rest() {
    let (reply, caller) = Reply::new();
    assert!(!reply.streams());
    reply.finish(Ok(answer("all")));
    assert!(caller.await.unwrap().unwrap().stream.is_none());
}

#[tokio::test]
async fn pieces_follow_the_first_one_and_empty_ones_are_left_out() {
    let (mut reply, caller) = Reply::new();
    reply.piece(answer("a"), None, &Arc::default());
    assert!(reply.streams());
    let mut first = caller.await.unwrap().unwrap();
    assert_eq!(first.output.body, "a");
    reply.piece(answer("b"), None, &Arc::default());
    reply.piece(answer(""), None, &Arc::default());
    reply.finish(Ok(answer("c")));
    let (pieces, error) = drain(first.stream.as_mut().unwrap()).await;
    assert_eq!(pieces, ["b", "c"]);
    assert!(error.is_none());
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_stream_and_keeps_what_was_buffered() {
    let quarter = Bytes::from(vec![0; BYTES_MAX / 4 - PIECE_BYTES]);
    for (piece, kept) in [(Bytes::from_static(b"x"), BYTES_MAX / (1 + PIECE_BYTES)), (quarter, 4)] {
        let (mut reply, caller) = Reply::new();
        reply.piece(answer("head"), None, &Arc::default());
        for _ in 0..=PIECES_MAX {
            reply.piece(big(piece.clone()), None, &Arc::default());
        }
        assert!(reply.is_closed(), "there is nobody left to work for");
        reply.finish(Ok(answer("end")));
        let mut first = caller.await.unwrap().unwrap();
        let (pieces, error) = drain(first.stream.as_mut().unwrap()).await;
        assert_eq!(pieces.len(), kept);
        assert!(matches!(error, Some(CallError::SlowReader)), "{error:?}");
    }
}

#[tokio::test]
async fn a_client_that_reads_gets_more_than_the_buffer_holds() {
    let (mut reply, caller) = Reply::new();
    reply.piece(answer("head"), None, &Arc::default());
    let mut rest = caller.await.unwrap().unwrap().stream.unwrap();
    for _ in 0..=PIECES_MAX {
        reply.piece(answer("x"), None, &Arc::default());
        assert_eq!(rest.next().await.unwrap().unwrap(), "x");
    }
    assert!(!reply.is_closed());
}

#[tokio::test]
async fn one_piece_larger_than_the_buffer_still_passes() {
    let (mut reply, caller) = Reply::new();
    reply.piece(answer("head"), None, &Arc::default());
    reply.finish(Ok(big(vec![0; BYTES_MAX + 1].into())));
    let mut first = caller.await.unwrap().unwrap();
    let (pieces, error) = drain(first.stream.as_mut().unwrap()).await;
    assert!(pieces.len() == 1 && error.is_none());
}

#[tokio::test]
async fn failure_and_loss_end_a_stream_with_an_error() {
    let (mut reply, caller) = Reply::new();
    reply.piece(answer("a"), None, &Arc::default());
    let mut first = caller.await.unwrap().unwrap();
    reply.finish(Err(CallError::WorkerExited { exit: WorkerExit::BrokeProtocol }));
    let (_, error) = drain(first.stream.as_mut().unwrap()).await;
    assert!(matches!(error, Some(CallError::WorkerExited { .. })));

    let (mut reply, caller) = Reply::new();
    reply.piece(answer("a"), None, &Arc::default());
    let mut first = caller.await.unwrap().unwrap();
    drop(reply);
    let (_, error) = drain(first.stream.as_mut().unwrap()).await;
    assert!(matches!(error, Some(CallError::Gone)));
}

#[tokio::test]
async fn a_client_that_left_costs_nothing_more() {
    let (mut reply, caller) = Reply::new();
    let left = Arc::new(Notify::new());
    reply.piece(answer("a"), None, &left);
    drop(caller.await.unwrap());
    left.notified().await;
    assert!(reply.is_closed());
    reply.piece(answer("b"), None, &left);
    reply.finish(Ok(answer("c")));

    let (mut reply, caller) = Reply::new();
    drop(caller);
    reply.piece(answer("a"), None, &Arc::default());
    assert!(reply.is_closed());
}
