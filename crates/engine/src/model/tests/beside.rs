//! Batches that go on beside others: the worker takes the next one at once, and the others are planned as ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::CallError;
use crate::settings::ModelSettings;
use crate::testkit::{Act, Kit, call, settings, text};

const SECOND: Duration = Duration::from_secs(1);

fn single() -> ModelSettings {
    ModelSettings { batch_size: 4, slots: 1, ..settings() }
}

fn later(act: Act) -> Act {
    Act::After(SECOND, Box::new(act))
}

#[tokio::test(start_paused = true)]
async fn others_do_not_wait_for_it_and_keep_their_batches() {
    let kit = Kit::serving(1, single(), |batch| match batch.bodies[0].as_str() {
        "async" => Act::Beside(Box::new(Act::After(4 * SECOND, Box::new(Act::Echo)))),
        _ => later(Act::Echo),
    })
    .await;
    let beside = kit.start(call("async"));
    tokio::time::sleep(SECOND / 10).await;
    let start = Instant::now();
    let first = kit.start(call("a"));
    tokio::time::sleep(SECOND / 2).await;
    let waiting = ["b", "c", "d"].map(|body| kit.start(call(body)));
    for one in waiting {
        assert_eq!(one.await.unwrap().unwrap().timing.batch_items, 3);
    }
    assert!(start.elapsed() < 3 * SECOND, "they did not wait for what runs beside them");
    assert_eq!(text(&first.await.unwrap().unwrap()), "a");
    let answer = beside.await.unwrap().unwrap();
    assert_eq!((text(&answer).as_str(), answer.timing.compute.as_secs()), ("async", 4));
}

#[tokio::test(start_paused = true)]
async fn it_is_tried_again_when_its_worker_exits_as_the_others_are() {
    let kit = Kit::serving(1, single(), |batch| match (batch.bodies[0].as_str(), batch.life) {
        ("async", 0) => Act::Beside(Box::new(Act::Silence)),
        ("dies", 0) => later(Act::Die),
        _ => Act::Echo,
    })
    .await;
    let beside = kit.start(call("async"));
    tokio::time::sleep(SECOND / 10).await;
    assert!(kit.call("dies").await.is_ok(), "it was tried again when the worker was back");
    assert_eq!(text(&beside.await.unwrap().unwrap()), "async");
}

#[tokio::test(start_paused = true)]
async fn one_whose_workers_exit_costs_two_of_them() {
    let lives = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&lives);
    let kit = Kit::serving(1, single(), move |batch| match batch.bodies[0].as_str() {
        "async" => {
            seen.store(batch.life + 1, Ordering::Relaxed);
            Act::Beside(Box::new(later(Act::Die)))
        }
        _ => Act::Echo,
    })
    .await;
    let lost = kit.call("async").await;
    assert!(matches!(lost, Err(CallError::WorkerExited { .. })), "{lost:?}");
    assert_eq!(lives.load(Ordering::Relaxed), 2);
    assert!(kit.call("other").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_ends_waits_for_it() {
    let kit = Kit::serving(1, single(), |_| Act::Beside(Box::new(later(Act::Echo)))).await;
    let beside = kit.start(call("async"));
    tokio::time::sleep(SECOND / 10).await;
    kit.model.close(10 * SECOND).await;
    assert_eq!(text(&beside.await.unwrap().unwrap()), "async");
}
