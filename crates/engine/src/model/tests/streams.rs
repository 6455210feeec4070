//! Streams: pieces as they come, and what becomes of them when things go wrong.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{Answer, AnswerStream};
use crate::error::CallError;
use crate::settings::ModelSettings;
use crate::testkit::{Act, Kind, Kit, call, settings, text};

const SECOND: Duration = Duration::from_secs(1);

fn lone() -> ModelSettings {
    ModelSettings { batch_size: 1, ..settings() }
}

fn stream(count: usize, then: Act) -> Act {
    Act::Stream(count, SECOND, Box::new(then))
}

async fn next(rest: &mut AnswerStream) -> Option<Result<String, CallError>> {
    let piece = rest.next().await?;
    Some(piece.map(|piece| String::from_utf8_lossy(&piece).into_owned()))
}

/// Everything a caller got, and the error that ended it.
async fn whole(mut answer: Answer) -> (String, Option<CallError>) {
    let mut all = text(&answer);
    let rest = answer.stream.as_mut().expect("a stream");
    while let Some(piece) = next(rest).await {
        match piece {
            Ok(piece) => all.push_str(&piece),
            Err(error) => return (all, Some(error)),
        }
    }
    (all, None)
}

#[tokio::test(start_paused = true)]
async fn pieces_arrive_as_they_are_made() {
    let kit = Kit::serving(1, lone(), |_| stream(2, Act::Echo)).await;
    let start = Instant::now();
    let mut answer = kit.call("end").await.unwrap();
    assert_eq!((text(&answer).as_str(), start.elapsed()), ("0 ", Duration::ZERO));
    let rest = answer.stream.as_mut().unwrap();
    assert_eq!(next(rest).await.unwrap().unwrap(), "1 ");
    assert_eq!(start.elapsed(), SECOND);
    assert_eq!(next(rest).await.unwrap().unwrap(), "end");
    assert_eq!(start.elapsed(), 2 * SECOND);
    assert!(next(rest).await.is_none());
    assert_eq!(kit.model.status().counters.answered, 1);
}

#[tokio::test(start_paused = true)]
async fn each_request_in_a_batch_has_a_stream_of_its_own() {
    let kit = Kit::serving(1, settings(), |_| stream(2, Act::Echo)).await;
    let calls = ["a", "b", "c"].map(|body| kit.start(call(body)));
    for (call, body) in calls.into_iter().zip(["a", "b", "c"]) {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(answer.timing.batch_items, 3);
        let (all, error) = whole(answer).await;
        assert_eq!(all, format!("0 1 {body}"));
        assert!(error.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_response_timeout_starts_anew_with_every_piece() {
    let patient = ModelSettings { response_timeout: Duration::from_millis(1500), ..lone() };
    let kit = Kit::serving(1, patient.clone(), |_| stream(10, Act::Echo)).await;
    let (all, error) = whole(kit.call("end").await.unwrap()).await;
    assert!(all.ends_with("9 end") && error.is_none());

    let kit = Kit::serving(1, patient, |_| stream(2, Act::Silence)).await;
    let start = Instant::now();
    let (all, error) = whole(kit.call("end").await.unwrap()).await;
    assert_eq!((all.as_str(), start.elapsed()), ("0 1 ", Duration::from_millis(2500)));
    assert!(matches!(error, Some(CallError::WorkerExited { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_has_streamed_is_not_tried_again_when_it_fails() {
    for (act, died) in [(Act::Raise, false), (Act::Short, false), (Act::Die, true)] {
        let kit = Kit::serving(1, settings(), move |batch| match batch.bodies[0].as_str() {
            "next" => Act::Echo,
            _ => stream(1, act.clone()),
        })
        .await;
        let calls = ["a", "b"].map(|body| kit.start(call(body)));
        for call in calls {
            let (all, error) = whole(call.await.unwrap().unwrap()).await;
            assert_eq!(all, "0 ");
            assert_eq!(matches!(error, Some(CallError::WorkerExited { .. })), died, "{error:?}");
            assert!(error.is_some());
        }
        assert_eq!(text(&kit.call("next").await.unwrap()), "next");
        assert_eq!(kit.batches().len(), 2, "the stream ran once");
        assert_eq!(kit.admission.requests(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_mid_stream_disturbs_no_other() {
    let kit = Kit::serving(1, settings(), |_| stream(3, Act::Echo)).await;
    let calls = ["stays", "leaves"].map(|body| kit.start(call(body)));
    let [stays, leaves] = calls;
    drop(leaves.await.unwrap().unwrap());
    let (all, error) = whole(stays.await.unwrap().unwrap()).await;
    assert_eq!(all, "0 1 2 stays");
    assert!(error.is_none());
    let counters = kit.model.status().counters;
    assert_eq!((counters.answered, counters.abandoned), (1, 1));
    assert_eq!(kit.call("next").await.unwrap().timing.attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_at_once_that_nobody_reads_its_stream_any_more() {
    for (count, stays) in [(1, false), (2, false), (2, true)] {
        let kit =
            Kit::of(Kind::Cancelling, 1, settings(), |batch| match batch.bodies[0].as_str() {
                "next" => Act::Echo,
                _ => stream(100, Act::Echo),
            })
            .await;
        let calls = ["leaves", "other"].iter().take(count).map(|body| kit.start(call(body)));
        let mut answers = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            answers.push(call.await.unwrap().unwrap());
        }
        answers.truncate(usize::from(stays));
        let start = Instant::now();
        assert_eq!(text(&kit.call("next").await.unwrap()), "next");
        assert_eq!(start.elapsed().as_secs(), if stays { 100 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn closing_the_model_lets_a_stream_finish_and_by_force_ends_it() {
    for (grace, ends_well) in [(60 * SECOND, true), (SECOND, false)] {
        let kit = Kit::serving(1, lone(), |_| stream(5, Act::Echo)).await;
        let answer = kit.call("end").await.unwrap();
        kit.model.close(grace).await;
        let (all, error) = whole(answer).await;
        assert_eq!((all.ends_with("end"), error.is_none()), (ends_well, ends_well), "{error:?}");
    }
}
