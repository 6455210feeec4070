//! The engine's promises, each on a virtual clock with workers that misbehave on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jitney_batcher::{DispatchReason, Rejection};
use tokio::time::{Instant, advance};

use crate::call::{Origin, OriginKind};
use crate::error::{CallError, ScaleError};
use crate::model::Reconfigure;
use crate::outcome::{Cause, LaunchError};
use crate::settings::{ModelSettings, PolicyName};
use crate::testkit::{Act, Kit, ScriptedBatch, call, settings, text};
use jitney_settings::model::{MAX_BATCH_SIZE, POLICY};

mod ahead;
mod announced;
mod beside;
mod capacity;
mod concurrent;
mod continuous;
mod loading;
mod measured;
mod objective;
mod overlap;
mod parts;
mod replaced;
mod reports;
mod sequences;
mod shares;
mod storm;
mod streams;
mod suspects;
mod warm_up;

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn echo_after(ms: u64) -> impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static {
    move |_| Act::After(millis(ms), Box::new(Act::Echo))
}

fn is_rejected(answer: &Result<String, CallError>, wanted: Rejection) -> bool {
    matches!(answer, Err(CallError::Rejected { reason, .. }) if *reason == wanted)
}

/// Lets every task that can run do so without moving the clock.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_share_a_batch_and_each_gets_its_own_answer() {
    let kit = Kit::serving(1, settings(), echo_after(5)).await;
    let answers = kit.call_all(&["a", "b", "c", "d"]).await;
    let answers: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, ["a", "b", "c", "d"]);
    assert_eq!(kit.batches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lone_request_is_dispatched_when_its_window_is_over_and_its_timing_says_so() {
    let kit = Kit::serving(1, settings(), echo_after(5)).await;
    let started = Instant::now();
    let answer = kit.call("a").await.unwrap();
    assert_eq!(text(&answer), "a");
    let timing = answer.timing;
    assert_eq!((timing.reason, timing.batch_items, timing.attempt), (DispatchReason::Window, 1, 1));
    assert!(timing.queue >= millis(10) && timing.queue < millis(13), "{:?}", timing.queue);
    assert_eq!(timing.compute.as_millis(), 5);
    assert!(started.elapsed() < millis(18));
}

#[tokio::test(start_paused = true)]
async fn a_bad_item_fails_alone() {
    let raise_on_bad = |batch: &ScriptedBatch| {
        if batch.bodies.iter().any(|body| body == "bad") { Act::Raise } else { Act::Echo }
    };
    let kit = Kit::serving(1, settings(), raise_on_bad).await;
    let answers = kit.call_all(&["a", "bad", "c", "d"]).await;
    assert_eq!(answers[0].as_ref().unwrap(), "a");
    assert!(
        matches!(&answers[1], Err(CallError::Model(failure)) if failure.message == "Prediction failed")
    );
    assert_eq!(answers[2].as_ref().unwrap(), "c");
    assert_eq!(answers[3].as_ref().unwrap(), "d");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_the_worker_marks_as_failed_costs_no_retry() {
    let kit = Kit::serving(1, settings(), |_| Act::FailItem("bad")).await;
    let answers = kit.call_all(&["a", "bad", "c", "d"]).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    assert_eq!(kit.batches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn too_few_rows_never_reach_the_wrong_caller() {
    let short_when_many =
        |batch: &ScriptedBatch| if batch.bodies.len() > 1 { Act::Short } else { Act::Echo };
    let kit = Kit::serving(1, settings(), short_when_many).await;
    let answers = kit.call_all(&["a", "b", "c", "d"]).await;
    let answers: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_always_missing_is_an_error_not_a_hang() {
    let kit = Kit::serving(1, settings(), |_| Act::Short).await;
    let answer = kit.call("a").await;
    assert!(
        matches!(answer, Err(CallError::Model(failure)) if failure.message == "number of batch response mismatched")
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_once_loses_nothing() {
    let first_life_dies =
        |batch: &ScriptedBatch| if batch.life == 0 { Act::Die } else { Act::Echo };
    let kit = Kit::serving(1, settings(), first_life_dies).await;
    let answers = kit.call_all(&["a", "b", "c", "d"]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(kit.model.status().counters.retried, 4);
}

#[tokio::test(start_paused = true)]
async fn a_poisonous_request_among_four_costs_three_processes_and_its_neighbours_nothing() {
    let exits = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&exits);
    let die_of_poison = move |batch: &ScriptedBatch| {
        if batch.bodies.iter().any(|body| body == "poison") {
            counted.fetch_add(1, Ordering::Relaxed);
            Act::Die
        } else {
            Act::Echo
        }
    };
    let kit = Kit::serving(2, settings(), die_of_poison).await;
    let answers = kit.call_all(&["a", "poison", "c", "d"]).await;
    assert!(matches!(answers[1], Err(CallError::WorkerExited { .. })), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    assert_eq!(exits.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_needs_too_much_memory_is_not_tried_twice_alone() {
    let exits = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&exits);
    let starve = move |batch: &ScriptedBatch| {
        if batch.bodies.iter().any(|body| body == "hungry") {
            counted.fetch_add(1, Ordering::Relaxed);
            Act::Starve
        } else {
            Act::Echo
        }
    };
    let kit = Kit::serving(1, settings(), starve).await;
    let starved = |error: Option<&CallError>| matches!(error, Some(CallError::Model(failure)) if failure.cause == Cause::Memory);
    assert!(starved(kit.call("hungry").await.as_ref().err()));
    assert_eq!(exits.swap(0, Ordering::Relaxed), 1, "alone it costs one worker");
    let answers = kit.call_all(&["a", "hungry", "c", "d"]).await;
    assert!(starved(answers[1].as_ref().err()), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3, "{answers:?}");
    assert!(exits.load(Ordering::Relaxed) <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_poisonous_request_costs_nothing_when_it_is_repeated() {
    let die_of_poison =
        |batch: &ScriptedBatch| if batch.bodies == ["poison"] { Act::Die } else { Act::Echo };
    let one = ModelSettings { batch_size: 1, ..settings() };
    let kit = Kit::serving(1, one, die_of_poison).await;
    assert!(matches!(kit.call("poison").await, Err(CallError::WorkerExited { .. })));
    let given = kit.batches().len();
    for _ in 0..100 {
        assert!(matches!(kit.call("poison").await, Err(CallError::Poisonous)));
    }
    assert_eq!((given, kit.batches().len()), (2, 2), "no worker saw it again");
    assert!(kit.call("a").await.is_ok());
    let rejections = kit.model.measures().rejections;
    assert!(rejections.contains(&("poison", 100)), "{rejections:?}");
    tokio::time::advance(Duration::from_secs(600)).await;
    assert!(matches!(kit.call("poison").await, Err(CallError::WorkerExited { .. })));
}

/// TorchServe's users set the retry window; it is for loads that fail.
#[tokio::test(start_paused = true)]
async fn a_model_whose_workers_exit_on_requests_stays_up() {
    let die = |batch: &ScriptedBatch| {
        if batch.bodies[0].starts_with("die") { Act::Die } else { Act::Echo }
    };
    let one = ModelSettings { batch_size: 1, retry_window: Duration::ZERO, ..settings() };
    let kit = Kit::serving(1, one, die).await;
    for number in 0..40 {
        let answer = kit.call(&format!("die {number}")).await;
        assert!(matches!(answer, Err(CallError::WorkerExited { .. })), "{answer:?}");
    }
    let asked = Instant::now();
    assert!(kit.call("a").await.is_ok(), "it is never given up");
    assert!(asked.elapsed() <= millis(1_000), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_is_replaced_and_its_lone_request_told() {
    let silent_on_x = |batch: &ScriptedBatch| {
        if batch.bodies.contains(&"x".to_owned()) { Act::Silence } else { Act::Echo }
    };
    let kit = Kit::serving(1, settings(), silent_on_x).await;
    let started = Instant::now();
    let answer = kit.call("x").await;
    assert!(matches!(answer, Err(CallError::WorkerExited { .. })), "{answer:?}");
    assert!(started.elapsed() < millis(5_100), "{:?}", started.elapsed());
    assert!(kit.call("after").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_not_delivered_to_anyone() {
    let late_in_first_life = |batch: &ScriptedBatch| {
        let late = if batch.life == 0 { 6_000 } else { 1 };
        Act::After(millis(late), Box::new(Act::Echo))
    };
    let kit = Kit::serving(1, settings(), late_in_first_life).await;
    let answers = kit.call_all(&["a", "b"]).await;
    assert!(answers.iter().all(Result::is_ok), "retried one by one: {answers:?}");
    let lives: Vec<u32> = kit.batches().iter().map(|batch| batch.life).collect();
    assert_eq!(lives, [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_client_that_left_is_cancelled_at_once() {
    let kit = Kit::serving(1, ModelSettings { batch_size: 1, ..settings() }, echo_after(100)).await;
    let running = kit.start(call("running"));
    settle().await;
    let leaving = kit.start(call("leaving"));
    settle().await;
    assert_eq!(kit.model.status().waiting, 1);
    leaving.abort();
    settle().await;
    assert_eq!(kit.model.status().waiting, 0);
    assert!(running.await.unwrap().is_ok());
    assert_eq!(kit.batches().len(), 1);
    assert_eq!(kit.model.status().counters.abandoned, 1);
    assert_eq!(kit.admission.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_told_the_moment_its_deadline_passes() {
    let kit =
        Kit::serving(1, ModelSettings { batch_size: 1, ..settings() }, echo_after(1_000)).await;
    let running = kit.start(call("running"));
    settle().await;
    let started = Instant::now();
    let mut late = call("late");
    late.deadline = Some(started + millis(200));
    let answer = kit.model.call(late).await.map(|answer| text(&answer));
    assert!(is_rejected(&answer, Rejection::Expired), "{answer:?}");
    assert!(started.elapsed() < millis(210), "{:?}", started.elapsed());
    assert!(running.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_clients_timeout_of_the_model_is_a_deadline_too() {
    let impatient = ModelSettings { batch_size: 1, client_timeout: millis(50), ..settings() };
    let kit = Kit::serving(1, impatient, echo_after(1_000)).await;
    let answers = kit.call_all(&["running", "waiting"]).await;
    assert!(answers[0].is_ok());
    assert!(is_rejected(&answers[1], Rejection::Expired), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn beyond_the_queue_requests_are_rejected_with_a_hint_when_to_come_back() {
    let small = ModelSettings { batch_size: 1, queue_max: 2, ..settings() };
    let kit = Kit::serving(1, small, echo_after(100)).await;
    kit.call("warm").await.unwrap();
    let answers = kit.call_all(&["1", "2", "3", "4", "5"]).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    let hint = answers.iter().find_map(|answer| match answer {
        Err(CallError::Rejected { reason: Rejection::QueueFull, retry_after }) => *retry_after,
        _ => None,
    });
    assert!(hint.is_some_and(|hint| hint > Duration::ZERO), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn with_a_job_ticket_only_a_free_worker_admits() {
    let ticket = ModelSettings { batch_size: 1, job_ticket: true, ..settings() };
    let kit = Kit::serving(1, ticket, echo_after(100)).await;
    let answers = kit.call_all(&["1", "2", "3"]).await;
    assert!(answers[0].is_ok());
    assert!(
        is_rejected(&answers[1], Rejection::QueueFull)
            && is_rejected(&answers[2], Rejection::QueueFull)
    );
}

#[tokio::test(start_paused = true)]
async fn origins_do_not_meet_unless_the_model_allows_it() {
    for (mix_origins, batches) in [(false, 2), (true, 1)] {
        let mixed = ModelSettings { batch_size: 2, mix_origins, ..settings() };
        let kit = Kit::serving(1, mixed, echo_after(1)).await;
        let mut python = call("python");
        python.origin = Origin { kind: OriginKind::Python, peer: 1 };
        let (http, python) = (kit.start(call("http")), kit.start(python));
        assert!(http.await.unwrap().is_ok() && python.await.unwrap().is_ok());
        assert_eq!(kit.batches().len(), batches, "mix_origins={mix_origins}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_workers_requests_are_rejected_at_once() {
    let kit = Kit::idle(settings(), |_| Act::Echo);
    settle().await;
    let answers = kit.call_all(&["a"]).await;
    assert!(is_rejected(&answers[0], Rejection::NoWorker));
}

#[tokio::test(start_paused = true)]
async fn scaling_up_and_down_takes_effect_and_drops_no_request() {
    let kit = Kit::serving(3, ModelSettings { batch_size: 1, ..settings() }, echo_after(50)).await;
    assert_eq!(kit.model.status().workers.iter().filter(|worker| worker.ready).count(), 3);
    let calls: Vec<_> = (0..9).map(|n| kit.start(call(&n.to_string()))).collect();
    settle().await;
    kit.model.scale(1, 1).await.unwrap();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    settle().await;
    assert_eq!(kit.model.status().workers.len(), 1);
    kit.model.scale(0, 0).await.unwrap();
    settle().await;
    assert!(is_rejected(&kit.call_all(&["late"]).await[0], Rejection::NoWorker));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_start_fails_the_scaling_and_is_tried_again() {
    let third_time_lucky = |life| {
        let outcome = if life < 2 { Err(LaunchError::Load("broken".into())) } else { Ok(()) };
        (millis(10), outcome)
    };
    let kit = Kit::with_launches(settings(), |_| Act::Echo, third_time_lucky);
    let scaled = kit.model.scale(1, 1).await;
    assert!(matches!(scaled, Err(ScaleError::Launch(LaunchError::Load(_)))), "{scaled:?}");
    assert!(kit.model.healthy(), "still trying");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_takes_too_long_is_given_up() {
    let kit = Kit::with_launches(settings(), |_| Act::Echo, |_| (millis(60_000), Ok(())));
    let scaled = kit.model.scale(1, 1).await;
    assert!(matches!(scaled, Err(ScaleError::Launch(LaunchError::TimedOut { seconds: 5 }))));
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_workers_are_given_up_is_unhealthy_and_its_queue_is_told() {
    let never = |_| (millis(10), Err(LaunchError::TimedOut { seconds: 1 }));
    let kit = Kit::with_launches(settings(), |_| Act::Echo, never);
    drop(kit.model.scale(1, 1).await);
    while kit.model.healthy() {
        advance(Duration::from_secs(1)).await;
        settle().await;
    }
    let answers = kit.call_all(&["late"]).await;
    assert!(matches!(answers[0], Err(CallError::NotLoaded(_))), "{answers:?}");
    kit.model.scale(0, 0).await.unwrap();
    settle().await;
    assert!(kit.model.healthy(), "nothing is wanted any more");
}

#[tokio::test(start_paused = true)]
async fn closing_answers_everything_that_was_admitted() {
    let kit = Kit::serving(1, settings(), echo_after(100)).await;
    let calls: Vec<_> = (0..10).map(|n| kit.start(call(&n.to_string()))).collect();
    settle().await;
    kit.model.close(Duration::from_secs(60)).await;
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    assert!(matches!(kit.call("late").await, Err(CallError::Gone | CallError::Rejected { .. })));
    assert_eq!(kit.admission.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_by_force_still_ends_every_request() {
    let kit = Kit::serving(1, settings(), |_| Act::Silence).await;
    let calls: Vec<_> = (0..10).map(|n| kit.start(call(&n.to_string()))).collect();
    settle().await;
    kit.model.close(millis(100)).await;
    for call in calls {
        assert!(call.await.unwrap().is_err());
    }
    assert_eq!(kit.admission.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_live_model_can_be_reconfigured() {
    let patient = ModelSettings { batch_delay: Duration::from_secs(60), ..settings() };
    let kit = Kit::serving(1, patient, |_| Act::Echo).await;
    let waiting = kit.start(call("a"));
    settle().await;
    advance(millis(100)).await;
    assert!(!waiting.is_finished());
    let change = Reconfigure::of(&POLICY, "opportunistic");
    kit.model.reconfigure(change).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().timing.reason, DispatchReason::Idle);
    let rejected = Reconfigure::of(&MAX_BATCH_SIZE, 0_u32);
    assert!(kit.model.reconfigure(rejected).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_took_effect_is_told_and_what_was_asked_for_is_remembered() {
    let kit = Kit::idle(settings(), echo_after(5));
    let mut changes = kit.model.changes.recorder();
    assert_eq!(kit.model.worker_target(), (1, 1), "what it was registered with");
    kit.model.set_worker_target(2, 3);
    let status = kit.model.status();
    assert_eq!((status.workers_min, status.workers_max), (2, 3), "before the pool knows of it");
    kit.model.scale(2, 3).await.unwrap();
    assert_eq!(kit.model.worker_target(), (2, 3));
    changes.next().await;
    let change = Reconfigure::of(&MAX_BATCH_SIZE, 2_u32);
    kit.model.reconfigure(change).await.unwrap();
    changes.next().await;
    assert!(kit.call("a").await.is_ok());
    let next = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
    assert!(next.is_err(), "a request changes nothing");
}
