//! Client-side batches that run in parts: filled batches, one answer, one end.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::call::Call;
use crate::testkit::RowsModel;

/// At most four items in a batch, so that a part is one item, and no request waits for others.
fn eager() -> ModelSettings {
    ModelSettings { policy: PolicyName::Opportunistic, ..settings() }
}

async fn serving(
    settings: ModelSettings,
    script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
) -> Kit {
    Kit::of_local(RowsModel::default(), settings, script).await
}

/// A request of so many rows.
fn of_rows(count: usize) -> Call {
    let rows: Vec<_> = (0..count).map(|row| format!("[{row}]")).collect();
    call(&format!("[{}]", rows.join(",")))
}

/// How many items each batch had.
fn sizes(kit: &Kit) -> Vec<usize> {
    kit.batches().iter().map(|batch| batch.bodies.len()).collect()
}

/// Requests, answered, rejected, failed, abandoned.
fn ends(kit: &Kit) -> [u64; 5] {
    let it = kit.model.status().counters;
    [it.requests, it.answered, it.rejected, it.failed, it.abandoned]
}

/// Nothing waits, and nothing is held any more.
async fn assert_empty(kit: &Kit) {
    settle().await;
    assert_eq!((kit.model.status().waiting, kit.admission.requests()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_a_batch_runs_in_full_ones_and_its_timing_tells() {
    let kit = serving(eager(), echo_after(5)).await;
    let answer = kit.model.call(of_rows(10)).await.unwrap();
    assert_eq!(sizes(&kit), [4, 4, 2]);
    let rows: Vec<_> = kit.batches().into_iter().flat_map(|batch| batch.bodies).collect();
    assert_eq!(rows, (0..10).map(|row| format!("{row}..{}", row + 1)).collect::<Vec<_>>());
    let timing = answer.timing;
    assert_eq!(timing.batches, [4, 4, 2]);
    assert_eq!((timing.batch_items, timing.reason), (2, DispatchReason::Idle));
    assert_eq!((timing.queue.as_millis(), timing.compute.as_millis()), (0, 15));
    let batches = kit.model.statistics().total();
    assert_eq!((batches.batches, batches.items, batches.answered_requests), (3, 10, 1));
    assert_eq!(ends(&kit), [1, 1, 0, 0, 0]);
    assert_eq!(kit.model.measures().latency_us.count(), 1);
    assert_empty(&kit).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fits_is_dispatched_whole_when_a_worker_is_free() {
    for settings in [eager(), settings()] {
        let kit = serving(settings, echo_after(5)).await;
        let answer = kit.model.call(of_rows(4)).await.unwrap();
        assert_eq!(sizes(&kit), [4]);
        assert!(answer.timing.batches.is_empty(), "one batch is told as ever");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_fill_the_room_that_others_leave() {
    let kit = serving(eager(), echo_after(5)).await;
    let calls: Vec<_> = (0..5).map(|_| kit.start(of_rows(3))).collect();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    // Whole they would have been five batches of three.
    assert_eq!(sizes(&kit), [3, 4, 4, 4]);
    assert_eq!(ends(&kit), [5, 5, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_ends_the_whole_once_and_takes_the_others_along() {
    let bad_row = |batch: &ScriptedBatch| match batch.bodies.iter().any(|row| row == "1..2") {
        true => Act::After(millis(5), Box::new(Act::Raise)),
        false => Act::After(millis(5), Box::new(Act::Echo)),
    };
    let kit = serving(eager(), bad_row).await;
    let answer = kit.model.call(of_rows(12)).await;
    assert!(matches!(answer, Err(CallError::Model(_))), "{answer:?}");
    settle().await;
    assert_eq!(kit.model.status().waiting, 0, "none of the others waits any more");
    advance(millis(50)).await;
    assert_empty(&kit).await;
    let ran = |row: &str| kit.batches().iter().any(|batch| batch.bodies.iter().any(|it| it == row));
    assert!(ran("3..4") && !ran("11..12"), "those who had not left do not leave any more");
    assert_eq!(ends(&kit), [1, 0, 0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_takes_all_its_parts_along() {
    let kit = serving(eager(), echo_after(5)).await;
    let leaving = kit.start(of_rows(20));
    settle().await;
    let other = kit.start(of_rows(2));
    settle().await;
    assert_eq!(kit.model.status().waiting, 2);
    leaving.abort();
    assert!(other.await.unwrap().is_ok());
    assert_eq!(sizes(&kit), [4, 2]);
    assert_eq!(ends(&kit), [2, 1, 0, 0, 1]);
    assert_empty(&kit).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_whole_where_its_last_part_cannot_run_any_more() {
    let kit = serving(eager(), echo_after(5)).await;
    let started = Instant::now();
    let deadline = Some(started + millis(8));
    let answer = kit.model.call(Call { deadline, ..of_rows(12) }).await;
    assert!(matches!(answer, Err(CallError::Rejected { reason: Rejection::Expired, .. })));
    assert_eq!((started.elapsed().as_millis(), sizes(&kit)), (8, vec![4, 4]));
    assert_eq!(ends(&kit), [1, 0, 1, 0, 0]);
    advance(millis(10)).await;
    assert_empty(&kit).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_wait_as_a_whole_does_not_wait_in_part() {
    let kit = serving(ModelSettings { queue_max: 2, ..eager() }, echo_after(5)).await;
    let running = kit.start(of_rows(4));
    settle().await;
    let waiting = kit.start(of_rows(6));
    settle().await;
    let full = kit.model.call(of_rows(3)).await;
    assert!(matches!(full, Err(CallError::Rejected { reason: Rejection::QueueFull, .. })));
    assert_eq!(kit.model.status().waiting, 1);
    assert!(kit.model.call(of_rows(2)).await.is_ok());
    assert!(running.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
    assert_eq!(sizes(&kit), [4, 4, 4]);
    assert_eq!(ends(&kit), [4, 3, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_the_queue_waits_outside_of_it() {
    let kit = serving(ModelSettings { queue_max: 2, ..eager() }, echo_after(5)).await;
    let large = kit.start(of_rows(50));
    settle().await;
    assert!(kit.model.call(of_rows(2)).await.is_ok(), "it leaves room for others");
    let answer = large.await.unwrap().expect("answered");
    assert!(answer.timing.batches.len() > 12);
    let items: usize = sizes(&kit).iter().sum();
    assert_eq!((items, ends(&kit)), (52, [2, 2, 0, 0, 0]));
    assert_empty(&kit).await;
}

#[tokio::test(start_paused = true)]
async fn a_large_request_whose_caller_goes_away_sends_nothing_more() {
    let kit = serving(ModelSettings { queue_max: 2, ..eager() }, echo_after(5)).await;
    let large = kit.start(of_rows(50));
    settle().await;
    large.abort();
    settle().await;
    advance(millis(100)).await;
    assert_empty(&kit).await;
    let items: usize = sizes(&kit).iter().sum();
    assert!(items <= 4, "{items}");
    assert_eq!(ends(&kit), [1, 0, 0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_requests_must_stay_whole_takes_none_larger_than_a_batch() {
    let kit = Kit::of_local(RowsModel { whole: true, padded: None }, eager(), echo_after(5)).await;
    assert!(kit.model.call(of_rows(4)).await.is_ok());
    let answer = kit.model.call(of_rows(5)).await;
    assert!(matches!(answer, Err(CallError::Rejected { reason: Rejection::TooLarge, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_closes_answers_every_part_that_it_admitted() {
    let kit = serving(eager(), echo_after(5)).await;
    let admitted = kit.start(of_rows(10));
    settle().await;
    kit.model.close(millis(100)).await;
    assert!(admitted.await.unwrap().is_ok());
    assert!(kit.model.call(of_rows(10)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_every_request_in_parts_ends_once() {
    for seed in 0..40 {
        weather(seed).await;
    }
}

/// Requests of all sizes, workers that raise and die, clients that leave; then calm.
async fn weather(seed: u64) {
    let calm = Arc::new(AtomicBool::new(false));
    let (seen, mut dice) = (Arc::clone(&calm), fastrand::Rng::with_seed(seed));
    let rolls = AtomicU32::new(0);
    let kit = serving(ModelSettings { queue_max: 5, ..eager() }, move |_| {
        let roll = fastrand::Rng::with_seed(
            seed * 1000 + u64::from(rolls.fetch_add(1, Ordering::Relaxed)),
        );
        let act = match roll.clone().u32(0..100) {
            _ if seen.load(Ordering::Relaxed) => Act::Echo,
            0..8 => Act::Die,
            8..20 => Act::Raise,
            _ => Act::Echo,
        };
        Act::After(millis(3), Box::new(act))
    })
    .await;
    let mut calls = Vec::new();
    for _ in 0..30 {
        let deadline = dice.bool().then(|| Instant::now() + millis(dice.u64(1..40)));
        let call = kit.start(Call { deadline, ..of_rows(dice.usize(1..14)) });
        settle().await;
        if dice.u32(0..5) == 0 {
            call.abort();
        }
        calls.push(call);
        advance(millis(dice.u64(0..6))).await;
    }
    calm.store(true, Ordering::Relaxed);
    for call in calls {
        drop(call.await);
    }
    tokio::time::sleep(millis(200)).await;
    let [requests, others @ ..] = ends(&kit);
    assert_eq!((requests, others.iter().sum::<u64>()), (30, 30), "seed {seed}");
    assert!(kit.model.call(of_rows(3)).await.is_ok(), "seed {seed}");
    assert!(sizes(&kit).into_iter().all(|items| items <= 4), "seed {seed}");
    assert_empty(&kit).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_in_parts_is_late_once() {
    let kit = serving(eager(), echo_after(5)).await;
    let within = |ms| Call { deadline: Some(Instant::now() + millis(ms)), ..of_rows(10) };
    assert!(kit.model.call(within(16)).await.is_ok());
    assert_eq!(kit.model.status().counters.late, 0);
    assert!(kit.model.call(within(14)).await.is_ok());
    assert_eq!((kit.model.status().counters.late, kit.model.status().counters.answered), (1, 2));
}
