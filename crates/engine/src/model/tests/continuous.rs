//! Continuous batching as the engine sees it: a worker that is given jobs one by one, many at a time.

use std::time::Duration;

use tokio::time::Instant;

use super::settle;
use crate::settings::{Declared, ModelSettings};
use crate::testkit::{Act, Kit, call, settings};

const SECOND: Duration = Duration::from_secs(1);

fn continuous(slots: u8) -> ModelSettings {
    let declared = Declared { continuous_batching: true, ..Declared::default() };
    ModelSettings { batch_size: slots.into(), slots, declared, ..settings() }
}

fn endless(_: &crate::testkit::ScriptedBatch) -> Act {
    Act::Stream(1_000_000, SECOND, Box::new(Act::Echo))
}

#[tokio::test(start_paused = true)]
async fn a_job_joins_at_once_while_others_go_on() {
    let kit = Kit::serving(1, continuous(3), endless).await;
    let start = Instant::now();
    let mut live = Vec::new();
    for body in ["a", "b", "c"] {
        live.push(kit.call(body).await.unwrap());
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "no request waits for others or for the others");
    assert!(kit.batches().iter().all(|batch| batch.bodies.len() == 1));
    let waits = kit.start(call("d"));
    settle().await;
    assert_eq!(kit.model.status().waiting, 1);
    drop(waits);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_client_left_gives_its_slot_to_the_next() {
    let kit = Kit::serving(1, continuous(1), endless).await;
    let answer = kit.call("leaves").await.unwrap();
    let next = kit.start(call("next"));
    settle().await;
    drop(answer);
    assert!(next.await.unwrap().is_ok());
    assert_eq!(kit.batches().len(), 2);
    assert_eq!(kit.model.status().counters.abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_its_first_piece_is_noticed_with_it() {
    let kit = Kit::serving(1, continuous(1), |batch| match batch.bodies[0].as_str() {
        "slow" => Act::After(SECOND, Box::new(Act::Echo)),
        _ => Act::Stream(1_000_000, SECOND, Box::new(Act::Echo)),
    })
    .await;
    let busy = kit.start(call("slow"));
    let leaves = kit.start(call("leaves"));
    settle().await;
    leaves.abort();
    assert!(busy.await.unwrap().is_ok());
    assert!(kit.call("next").await.is_ok());
}
