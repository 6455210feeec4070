//! Workers that follow the load.

use jitney_settings::SettingSource;
use jitney_settings::model::MAX_REQUESTS_PER_WORKER;
use tokio::sync::oneshot;

use super::*;
use crate::model::Readiness;
use crate::model::messages::ControlMessage;

fn live() -> ModelSettings {
    ModelSettings {
        policy: PolicyName::Adaptive,
        batch_size: 1,
        latency_max: Some(millis(400)),
        queue_max: 1000,
        idle: Duration::from_secs(900),
        ..settings()
    }
}

/// A model with a batch of 100 ms whose workers load for two seconds.
fn kit(settings: ModelSettings) -> Kit {
    Kit::with_launches(settings, echo_after(100), |_| (Duration::from_secs(2), Ok(())))
}

/// So many requests, evenly.
async fn ask(kit: &Kit, per_second: u32, seconds: u32) {
    for _ in 0..per_second * seconds {
        drop(kit.start(call("a")));
        tokio::time::sleep(Duration::from_secs(1) / per_second).await;
    }
}

fn workers(kit: &Kit) -> usize {
    kit.model.status().workers.len()
}

fn reason(kit: &Kit) -> String {
    kit.model.status().capacity.map(|it| it.to_string()).unwrap_or_default()
}

/// Waits for a number of workers; the clock is virtual.
async fn until(kit: &Kit, count: usize) {
    let waited = async {
        while workers(kit) != count {
            tokio::time::sleep(millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(3600), waited).await;
    assert!(waited.is_ok(), "{} workers: {}", workers(kit), reason(kit));
}

#[tokio::test(start_paused = true)]
async fn more_workers_come_with_the_load_and_leave_after_it() {
    let kit = kit(live());
    kit.model.scale(1, 4).await.unwrap();
    assert_eq!((workers(&kit), kit.model.worker_target()), (1, (1, 4)));
    ask(&kit, 25, 20).await;
    assert!((3..=4).contains(&workers(&kit)), "{}", reason(&kit));
    assert!(reason(&kit).contains(" of 1 to 4 workers: 2"), "{}", reason(&kit));
    until(&kit, 1).await;
    assert_eq!(kit.model.worker_target(), (1, 4), "the bounds are the operator's");
}

#[tokio::test(start_paused = true)]
async fn with_no_worker_at_all_the_first_request_starts_one_and_the_last_one_leaves() {
    let kit = kit(ModelSettings { latency_max: None, idle: Duration::from_secs(60), ..live() });
    kit.model.scale(0, 2).await.unwrap();
    assert_eq!(workers(&kit), 0);
    assert!(kit.model.readiness().is_as_wanted());
    for _ in 0..2 {
        let started = Instant::now();
        assert_eq!(text(&kit.call("a").await.unwrap()), "a");
        assert!(started.elapsed() >= Duration::from_secs(2), "it was loaded first");
        assert_eq!(workers(&kit), 1);
        until(&kit, 0).await;
        assert!(started.elapsed() >= Duration::from_secs(60));
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_pinned_stays() {
    let kit = kit(live());
    kit.model.scale(2, 2).await.unwrap();
    ask(&kit, 40, 20).await;
    assert_eq!((workers(&kit), reason(&kit)), (2, String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_new_bound_pins_and_unpins() {
    let kit = kit(live());
    kit.model.scale(1, 4).await.unwrap();
    ask(&kit, 25, 10).await;
    kit.model.scale(1, 1).await.unwrap();
    until(&kit, 1).await;
    ask(&kit, 25, 10).await;
    assert_eq!(workers(&kit), 1);
    kit.model.scale(1, 4).await.unwrap();
    ask(&kit, 25, 10).await;
    assert!(workers(&kit) >= 3, "{}", reason(&kit));
}

#[tokio::test(start_paused = true)]
async fn those_that_do_not_serve_yet_leave_first() {
    let launched = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&launched);
    let launch = move |_| match count.fetch_add(1, Ordering::Relaxed) {
        1 => (Duration::from_secs(600), Ok(())),
        _ => (Duration::from_secs(2), Ok(())),
    };
    let kit = Kit::with_launches(live(), echo_after(100), launch);
    let model = Arc::clone(&kit.model);
    tokio::spawn(async move { model.scale(3, 3).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let known = kit.model.status().workers;
    assert_eq!(known.iter().map(|it| it.ready).collect::<Vec<_>>(), [true, false, true]);
    kit.model.scale(2, 2).await.unwrap();
    until(&kit, 2).await;
    let left = kit.model.status().workers;
    let ids = left.iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(ids, [known[0].id, known[2].id], "the one that loads leaves");
}

#[tokio::test(start_paused = true)]
async fn while_a_load_fails_no_more_are_started() {
    let launched = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&launched);
    let launch = move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => (Duration::ZERO, Ok(())),
        _ => (Duration::from_secs(1), Err(LaunchError::Spawn("no".to_owned()))),
    };
    let kit = Kit::with_launches(live(), echo_after(100), launch);
    kit.model.scale(1, 8).await.unwrap();
    ask(&kit, 60, 30).await;
    assert_eq!(kit.model.status().workers.iter().filter(|it| it.ready).count(), 1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(text(&kit.call("a").await.unwrap()), "a", "the one that loaded serves on");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_to_take_the_place_of_another_is_not_one_too_many() {
    let mut settings = live();
    settings.values.set(&MAX_REQUESTS_PER_WORKER, 2_u64, SettingSource::Registration);
    let kit = kit(settings);
    kit.model.scale(1, 4).await.unwrap();
    ask(&kit, 2, 10).await;
    let lives: Vec<u32> = kit.batches().iter().map(|batch| batch.life).collect();
    assert!(lives.last() > lives.first(), "{lives:?}");
    kit.model.scale(0, 0).await.unwrap();
    until(&kit, 0).await;
}

/// Whether the model leaves when it is asked to.
async fn leaves(kit: &Kit) -> bool {
    let (reply, answer) = oneshot::channel();
    kit.model.gate.task.control.send(ControlMessage::Leave { reply }).await.unwrap();
    answer.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_leaves_when_nobody_waits_for_it_and_the_next_request_loads_it_again() {
    let kit = kit(ModelSettings { latency_max: None, ..live() });
    kit.model.scale(0, 2).await.unwrap();
    assert_eq!(kit.model.readiness(), Readiness::Known);
    for _ in 0..2 {
        let answer = kit.start(call("a"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(matches!(kit.model.readiness(), Readiness::Loading { wanted: 1, .. }));
        assert!(kit.model.is_as_wanted() && kit.model.can_be_asked());
        assert!(!leaves(&kit).await, "somebody waits");
        assert_eq!(text(&answer.await.unwrap().unwrap()), "a");
        assert!(leaves(&kit).await);
        until(&kit, 0).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(kit.model.readiness(), Readiness::Known, "nothing brings it back by itself");
    }
    kit.model.scale(1, 1).await.unwrap();
    assert!(!leaves(&kit).await, "its operator wants a worker");
}
