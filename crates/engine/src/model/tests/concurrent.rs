//! Asynchronous handlers: one worker holds many batches at a time.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{Call, Origin, OriginKind};
use crate::error::CallError;
use crate::settings::{ModelSettings, PolicyName};
use crate::testkit::{Act, Kind, Kit, call, settings, text};

const SECOND: Duration = Duration::from_secs(1);

fn concurrent(slots: u8) -> ModelSettings {
    ModelSettings { batch_size: 1, slots, ..settings() }
}

fn patient(act: Act) -> Act {
    Act::After(SECOND, Box::new(act))
}

#[tokio::test(start_paused = true)]
async fn a_worker_serves_as_many_batches_at_a_time_as_it_has_slots() {
    let kit = Kit::serving(1, concurrent(4), |_| patient(Act::Echo)).await;
    let start = Instant::now();
    let answers = kit.call_all(&["a", "b", "c", "d"]).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(start.elapsed().as_secs(), 1);
    let answers = kit.call_all(&["a", "b", "c", "d", "e"]).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(start.elapsed().as_secs(), 3, "the fifth had to wait");
}

#[tokio::test(start_paused = true)]
async fn batches_end_in_any_order() {
    let kit = Kit::serving(1, concurrent(4), |batch| match batch.bodies[0].as_str() {
        "slow" => patient(Act::Echo),
        _ => Act::Echo,
    })
    .await;
    let slow = kit.start(call("slow"));
    tokio::task::yield_now().await;
    let start = Instant::now();
    assert_eq!(text(&kit.call("fast").await.unwrap()), "fast");
    assert!(start.elapsed() < SECOND);
    assert_eq!(text(&slow.await.unwrap().unwrap()), "slow");
}

#[tokio::test(start_paused = true)]
async fn only_the_batch_that_took_too_long_pays_for_it() {
    let kit = Kit::serving(1, concurrent(4), |batch| match batch.bodies[0].as_str() {
        "hangs" => Act::Silence,
        _ => patient(patient(Act::Echo)),
    })
    .await;
    let hangs = kit.start(call("hangs"));
    tokio::time::sleep(4 * SECOND).await;
    let innocent = kit.start(call("innocent"));
    assert!(matches!(hangs.await.unwrap(), Err(CallError::WorkerExited { .. })));
    let answer = innocent.await.unwrap().unwrap();
    assert_eq!((text(&answer).as_str(), answer.timing.attempt), ("innocent", 1));
    assert_eq!(kit.batches().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_deadly_request_among_many_fails_alone() {
    let kit = Kit::serving(2, concurrent(8), |batch| match batch.bodies[0].as_str() {
        "deadly" => Act::Die,
        _ => patient(Act::Echo),
    })
    .await;
    let answers = kit.call_all(&["a", "b", "c", "deadly", "d", "e", "f"]).await;
    let lost: Vec<usize> =
        answers.iter().enumerate().filter(|(_, a)| a.is_err()).map(|(at, _)| at).collect();
    assert_eq!(lost, [3], "{answers:?}");
    // Once the second tries are over, all workers work at full width again.
    assert!(kit.call("calm").await.is_ok());
    let start = Instant::now();
    let answers = kit.call_all(&["a"; 8]).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(start.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_all_callers_have_left_is_cancelled_while_it_runs() {
    let script = |batch: &crate::testkit::ScriptedBatch| match batch.bodies[0].as_str() {
        "slow" => patient(Act::Echo),
        _ => Act::Echo,
    };
    for (kind, seconds) in [(Kind::Cancelling, 0), (Kind::Plain, 1)] {
        let kit = Kit::of(kind, 1, concurrent(1), script).await;
        let leaves = kit.start(call("slow"));
        super::settle().await;
        assert_eq!(kit.batches().len(), 1);
        let start = Instant::now();
        leaves.abort();
        assert_eq!(text(&kit.call("next").await.unwrap()), "next");
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn what_python_sends_at_once_is_run_at_once() {
    let settings = ModelSettings { batch_size: 8, policy: PolicyName::Opportunistic, ..settings() };
    let kit = Kit::serving(1, settings, |_| patient(Act::Echo)).await;
    let python = |body: &str| {
        let origin = Origin { kind: OriginKind::Python, peer: 1 };
        kit.start(Call { origin, ..call(body) })
    };
    let calls = ["a", "b", "c"].map(python);
    let last = python("d");
    super::settle().await;
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    assert_eq!(kit.batches()[0].bodies, ["a", "b", "c", "d"]);
    assert!(last.await.unwrap().is_ok());
}
