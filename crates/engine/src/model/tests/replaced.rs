//! Workers that are replaced although they work: the new one is ready first, and no request notices.

use jitney_settings::model::{MAX_REQUESTS_PER_WORKER, MEMORY_LIMIT};
use jitney_settings::{Setting, SettingSource};

use super::*;

/// A model whose first worker is there at once, and whose others load for a second.
async fn kit(limit: &'static Setting, most: u64, loads: Result<(), LaunchError>) -> Kit {
    let mut settings = settings();
    settings.values.set(limit, most, SettingSource::Registration);
    let launch = move |life| match life {
        0 => (Duration::ZERO, Ok(())),
        _ => (millis(1000), loads.clone()),
    };
    let kit = Kit::with_launches(settings, |_| Act::Echo, launch);
    kit.model.scale(1, 1).await.unwrap();
    kit
}

/// The start of the worker that ran the last batch.
fn last_life(kit: &Kit) -> Option<u32> {
    kit.batches().last().map(|batch| batch.life)
}

async fn load() {
    advance(millis(1001)).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_run_enough_requests_goes_on_until_the_new_one_is_ready() {
    let kit = kit(&MAX_REQUESTS_PER_WORKER, 2, Ok(())).await;
    for (body, workers) in [("a", 1), ("b", 2), ("c", 2)] {
        assert_eq!(text(&kit.call(body).await.unwrap()), body);
        settle().await;
        assert_eq!((last_life(&kit), kit.model.status().workers.len()), (Some(0), workers));
    }
    load().await;
    assert_eq!(kit.model.status().workers.len(), 1);
    assert_eq!(text(&kit.call("d").await.unwrap()), "d");
    assert_eq!(last_life(&kit), Some(1));
    assert_eq!(kit.model.status().incidents.restarts, 0, "nothing has failed");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_keeps_too_much_memory_is_replaced_after_its_batch() {
    for (limit, replaced) in [(1 << 30, true), (2 << 30, false)] {
        let kit = kit(&MEMORY_LIMIT, limit, Ok(())).await;
        kit.call("a").await.unwrap();
        settle().await;
        load().await;
        kit.call("b").await.unwrap();
        assert_eq!(last_life(&kit), Some(u32::from(replaced)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_replacement_does_not_load_goes_on() {
    let broken = LaunchError::Load("no".into());
    let kit = kit(&MAX_REQUESTS_PER_WORKER, 1, Err(broken)).await;
    for body in ["a", "b", "c"] {
        assert_eq!(text(&kit.call(body).await.unwrap()), body);
        settle().await;
        load().await;
    }
    assert_eq!(last_life(&kit), Some(0));
    assert!(kit.model.readiness().is_ready());
}

#[tokio::test(start_paused = true)]
async fn four_workers_that_wear_out_together_are_replaced_one_at_a_time() {
    let mut settings = ModelSettings { batch_size: 1, ..settings() };
    settings.values.set(&MAX_REQUESTS_PER_WORKER, 1_u64, SettingSource::Registration);
    let launch = |life| (if life < 4 { Duration::ZERO } else { millis(1000) }, Ok(()));
    let kit = Kit::with_launches(settings, echo_after(10), launch);
    kit.model.scale(4, 4).await.unwrap();
    let answers = kit.call_all(&["a", "b", "c", "d"]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    for replaced in 0..4 {
        settle().await;
        let workers = kit.model.status().workers;
        let young = workers.iter().filter(|it| it.pid.is_some_and(|life| life >= 4)).count();
        assert_eq!((workers.len(), young), (5, replaced), "one is being started");
        load().await;
    }
    settle().await;
    let workers = kit.model.status().workers;
    assert_eq!(workers.iter().filter(|it| it.ready).count(), 4);
    assert!(workers.len() == 4 && workers.iter().all(|it| it.pid >= Some(4)), "{workers:?}");
}
