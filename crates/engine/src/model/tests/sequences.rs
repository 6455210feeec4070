//! Sequences in a running model: order, company, bounds, and workers that die with what they knew.

use std::time::Duration;

use jitney_batcher::Rejection;
use tokio::time::{Instant, advance};

use super::settle;
use crate::call::{Call, SequenceRef};
use crate::error::{CallError, SequenceRejection};
use crate::settings::{Declared, ModelSettings};
use crate::testkit::{Act, Kit, call, settings, text};

const SECOND: Duration = Duration::from_secs(1);

fn stateful() -> ModelSettings {
    let declared = Declared {
        stateful: true,
        sequence_max_idle_ms: 20_000,
        max_num_sequence: 4,
        max_sequence_job_queue_size: 3,
        ..Declared::default()
    };
    ModelSettings { isolate: false, declared, ..settings() }
}

fn of(id: &str, body: &str) -> Call {
    let mut call = call(body);
    let sequence = SequenceRef { id: id.to_owned(), starts: false, ends: false };
    call.input.route.sequence = Some(Box::new(sequence));
    call
}

fn slow(_: &crate::testkit::ScriptedBatch) -> Act {
    Act::After(SECOND, Box::new(Act::Echo))
}

/// Until those who came have left, their window being over.
async fn window_passes() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn told(call: tokio::task::JoinHandle<Result<crate::call::Answer, CallError>>) -> String {
    match call.await.unwrap() {
        Ok(answer) => text(&answer),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_sequence_run_in_order_and_never_together() {
    let kit = Kit::serving(1, stateful(), slow).await;
    let calls: Vec<_> =
        ["a1", "b1", "a2", "b2", "a3"].map(|body| kit.start(of(&body[..1], body))).into();
    for (call, body) in calls.into_iter().zip(["a1", "b1", "a2", "b2", "a3"]) {
        assert_eq!(told(call).await, body);
    }
    let batches: Vec<_> = kit.batches().into_iter().map(|batch| batch.bodies.join(" ")).collect();
    assert_eq!(batches, ["a1 b1", "a2 b2", "a3"]);
    assert_eq!((kit.admission.requests(), kit.model.status().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_sequence_stays_with_its_worker_and_sequences_spread() {
    let kit = Kit::serving(2, stateful(), |_| Act::Echo).await;
    for _ in 0..3 {
        for id in ["a", "b", "c", "d"] {
            assert!(kit.model.call(of(id, id)).await.is_ok());
        }
    }
    let mut homes = std::collections::BTreeMap::new();
    for batch in kit.batches() {
        let home = homes.entry(batch.bodies[0].clone()).or_insert(batch.worker);
        assert_eq!(*home, batch.worker, "{} has moved", batch.bodies[0]);
    }
    let first = homes["a"];
    assert_eq!(homes.values().filter(|&&home| home == first).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn bounds_are_rejections_that_say_which() {
    let kit = Kit::serving(1, stateful(), slow).await;
    let calls: Vec<_> = (0..4).map(|_| kit.start(of("a", "a"))).collect();
    settle().await;
    let rejected = kit.model.call(of("a", "a")).await;
    let backlog = SequenceRejection::Backlog { most: 3 };
    assert!(matches!(rejected, Err(CallError::Sequence(why)) if why == backlog));
    for id in ["b", "c", "d"] {
        kit.start(of(id, id));
    }
    settle().await;
    let rejected = kit.model.call(of("e", "e")).await;
    let many = SequenceRejection::TooMany { most: 4 };
    assert!(matches!(rejected, Err(CallError::Sequence(why)) if why == many));
    for call in calls {
        assert_eq!(told(call).await, "a");
    }
    // All four are idle at last, and make room after their time.
    advance(25 * SECOND).await;
    assert!(kit.model.call(of("e", "e")).await.is_ok());
    assert_eq!(kit.admission.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_exits_costs_the_request_under_way_and_the_sequence_goes_on_elsewhere() {
    let kit = Kit::serving(2, stateful(), |batch| match batch.bodies[0].as_str() {
        "dies" => Act::After(SECOND, Box::new(Act::Die)),
        _ => Act::Echo,
    })
    .await;
    assert!(kit.model.call(of("a", "first")).await.is_ok());
    let dies = kit.start(of("a", "dies"));
    settle().await;
    let behind = kit.start(of("a", "behind"));
    assert!(matches!(dies.await.unwrap(), Err(CallError::WorkerExited { .. })));
    assert_eq!(told(behind).await, "behind");
    let workers: Vec<u32> = kit.batches().iter().map(|batch| batch.worker).collect();
    assert_eq!(workers[0], workers[1]);
    assert_ne!(workers[1], workers[2]);
    assert!(kit.model.call(of("a", "later")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_only_worker_may_die_and_its_sequences_wait_for_it_to_come_back() {
    let kit = Kit::serving(1, stateful(), |batch| match batch.bodies[0].as_str() {
        "dies" => Act::After(SECOND, Box::new(Act::Die)),
        _ => Act::Echo,
    })
    .await;
    let dies = kit.start(of("a", "dies"));
    window_passes().await;
    let behind = [kit.start(of("a", "1")), kit.start(of("b", "2"))];
    assert!(matches!(dies.await.unwrap(), Err(CallError::WorkerExited { .. })));
    for (call, body) in behind.into_iter().zip(["1", "2"]) {
        assert_eq!(told(call).await, body);
    }
    let lives: Vec<u32> = kit.batches().iter().map(|batch| batch.life).collect();
    assert!(lives[0] == 0 && lives[1..].iter().all(|life| *life == 1), "{lives:?}");
}

#[tokio::test(start_paused = true)]
async fn scaling_down_moves_those_who_wait() {
    let kit = Kit::serving(2, stateful(), slow).await;
    let riding = ["a", "b"].map(|id| kit.start(of(id, id)));
    window_passes().await;
    let behind = ["a", "b"].map(|id| kit.start(of(id, id)));
    settle().await;
    kit.model.scale(1, 1).await.unwrap();
    for call in riding.into_iter().chain(behind) {
        assert!(call.await.unwrap().is_ok());
    }
    assert_eq!(kit.batches().len(), 3, "both sequences met on the worker that stayed");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_and_a_client_leaves_while_they_wait_for_their_turn() {
    let kit = Kit::serving(1, stateful(), slow).await;
    let first = kit.start(of("a", "first"));
    settle().await;
    let late = Call { deadline: Some(Instant::now() + SECOND / 2), ..of("a", "late") };
    let (late, leaves) = (kit.start(late), kit.start(of("a", "leaves")));
    let last = kit.start(of("a", "last"));
    settle().await;
    leaves.abort();
    let late = late.await.unwrap();
    assert!(matches!(late, Err(CallError::Rejected { reason: Rejection::Expired, .. })));
    assert_eq!((told(first).await.as_str(), told(last).await.as_str()), ("first", "last"));
    assert_eq!(kit.batches().len(), 2);
    assert_eq!((kit.model.status().counters.abandoned, kit.admission.requests()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_closing_model_answers_all_that_it_admitted() {
    let kit = Kit::serving(1, stateful(), slow).await;
    let calls = ["1", "2", "3"].map(|body| kit.start(of("a", body)));
    settle().await;
    kit.model.close(60 * SECOND).await;
    for (call, body) in calls.into_iter().zip(["1", "2", "3"]) {
        assert_eq!(told(call).await, body);
    }
    let kit = Kit::serving(1, stateful(), slow).await;
    let calls = ["1", "2", "3"].map(|body| kit.start(of("a", body)));
    settle().await;
    kit.model.close(SECOND / 2).await;
    for call in calls {
        assert!(call.await.unwrap().is_err());
    }
    assert_eq!(kit.admission.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_worker_to_come_waiting_requests_are_rejected() {
    let kit = Kit::serving(1, stateful(), slow).await;
    let calls = ["1", "2"].map(|body| kit.start(of("a", body)));
    window_passes().await;
    kit.model.scale(0, 0).await.unwrap();
    let [first, second] = calls;
    assert_eq!(told(first).await, "1");
    let second = second.await.unwrap();
    assert!(matches!(second, Err(CallError::Rejected { reason: Rejection::NoWorker, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_failing_batch_is_not_tried_again() {
    let kit = Kit::serving(1, stateful(), |batch| match batch.bodies[0].as_str() {
        "bad" => Act::Raise,
        _ => Act::Echo,
    })
    .await;
    let calls = [kit.start(of("a", "bad")), kit.start(of("b", "good"))];
    for call in calls {
        assert!(matches!(call.await.unwrap(), Err(CallError::Model(_))));
    }
    assert_eq!(kit.batches().len(), 1);
    assert!(kit.model.call(of("a", "next")).await.is_ok());
}
