//! Models of which no worker is loaded: nothing hangs, and everybody is told why.

use super::*;
use crate::error::{LoadingWait, WaitLimit};
use crate::model::Readiness;
use crate::outcome::WorkerExit;

fn broken() -> LaunchError {
    LaunchError::Load("Traceback ...\nImportError: No module named 'torch'".into())
}

/// A model whose first loads fail after so long, and further ones succeed.
fn failing(first: u32, after: Duration) -> Kit {
    let launch = move |life| (after, if life < first { Err(broken()) } else { Ok(()) });
    Kit::with_launches(settings(), |_| Act::Echo, launch)
}

fn start(kit: &Kit, workers: u32) -> tokio::task::JoinHandle<Result<(), ScaleError>> {
    let model = Arc::clone(&kit.model);
    tokio::spawn(async move { model.scale(workers, workers).await })
}

fn not_loaded(answer: &Result<impl Sized, CallError>) -> Option<(String, Option<Duration>)> {
    match answer {
        Err(CallError::NotLoaded(failure)) => Some((failure.to_string(), failure.retry_after())),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_rejected_with_the_first_failed_load_and_later_ones_at_once() {
    let kit = failing(u32::MAX, millis(700));
    let scaled = start(&kit, 1);
    settle().await;
    let began = Instant::now();
    let answers = kit.call_all(&["a", "b"]).await;
    assert_eq!(began.elapsed(), millis(700), "no later than the load failed");
    let why = "loading failed with ImportError: No module named 'torch'";
    for answer in &answers {
        assert_eq!(not_loaded(answer), Some((why.to_owned(), Some(Duration::ZERO))));
    }
    assert!(scaled.await.unwrap().is_err());
    // The next try runs now, and the one after that comes a second later.
    advance(millis(701)).await;
    settle().await;
    let began = Instant::now();
    let late = kit.call("c").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let retry_after = not_loaded(&late).and_then(|told| told.1);
    assert!(retry_after > Some(millis(900)) && retry_after <= Some(millis(1000)), "{late:?}");
    let report = kit.model.status().incidents;
    assert_eq!((report.load_failures, report.restarts), (2, 2));
    assert_eq!(report.last.map(|last| last.error.clone()), Some(why[20..].to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_loads_in_the_end_serves() {
    let kit = failing(2, millis(10));
    assert!(kit.model.scale(1, 1).await.is_err());
    assert!(not_loaded(&kit.call("a").await).is_some());
    assert!(!kit.model.readiness().is_ready());
    while !kit.model.readiness().is_ready() {
        advance(millis(100)).await;
        settle().await;
    }
    assert_eq!(text(&kit.call("b").await.unwrap()), "b");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_given_up_names_no_next_try() {
    let kit = failing(u32::MAX, millis(10));
    assert!(kit.model.scale(1, 1).await.is_err());
    advance(Duration::from_secs(60)).await;
    settle().await;
    for _ in 0..60 {
        advance(Duration::from_secs(1)).await;
        settle().await;
    }
    let told = not_loaded(&kit.call("a").await);
    assert_eq!(told.map(|told| told.1), Some(None));
    assert!(matches!(kit.model.readiness(), Readiness::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_hangs_fails_when_its_time_is_over() {
    let hangs = |_| (Duration::from_secs(3600), Ok(()));
    let kit = Kit::with_launches(settings(), |_| Act::Echo, hangs);
    drop(start(&kit, 1));
    settle().await;
    let began = Instant::now();
    let told = not_loaded(&kit.call("a").await).expect("not loaded");
    assert_eq!(told.0, "loading failed: did not load within 5 s");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

/// A wait for a load of which it is not known how long it takes.
fn never_loaded(wanted: u32, limit: WaitLimit) -> LoadingWait {
    LoadingWait { wanted, limit, ready_in: None, at_once: false }
}

fn slow(settings: ModelSettings) -> Kit {
    let settings = ModelSettings { startup_timeout: Duration::from_secs(600), ..settings };
    Kit::with_launches(settings, |_| Act::Echo, |_| (Duration::from_secs(100), Ok(())))
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_first_load_as_long_as_startup_wait() {
    let kit = slow(settings());
    drop(start(&kit, 2));
    settle().await;
    let began = Instant::now();
    let first = kit.start(call("a"));
    settle().await;
    advance(Duration::from_secs(10)).await;
    let second = kit.start(call("b"));
    settle().await;
    let limit = WaitLimit::StartupWait(Duration::from_secs(30));
    for (request, seconds) in [(first, 30), (second, 40)] {
        let told = request.await.unwrap();
        assert!(matches!(told, Err(CallError::Loading(wait)) if wait == never_loaded(2, limit)));
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    advance(Duration::from_secs(40)).await;
    let third = kit.start(call("c"));
    assert_eq!(text(&third.await.unwrap().unwrap()), "c", "it is in time for the worker");
    assert_eq!(kit.model.status().counters.rejected, 2);
}

#[tokio::test(start_paused = true)]
async fn an_objective_that_passes_while_the_model_loads_is_no_deadline_of_the_client() {
    let half = millis(500);
    for (own, client_timeout, latency_max, limit) in [
        (None, Duration::ZERO, Some(half), WaitLimit::MaxLatency(half)),
        (None, half, None, WaitLimit::ClientTimeout(half)),
        (Some(half), Duration::ZERO, None, WaitLimit::Deadline(half)),
    ] {
        let kit = slow(ModelSettings { latency_max, client_timeout, ..settings() });
        drop(start(&kit, 1));
        settle().await;
        let deadline = own.map(|time| Instant::now() + time);
        let told = kit.start(crate::call::Call { deadline, ..call("a") }).await.unwrap();
        let Err(CallError::Loading(wait)) = told else { panic!("{told:?}") };
        assert_eq!(wait, never_loaded(1, limit));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_while_a_worker_that_had_loaded_is_started_again() {
    let dies = |batch: &ScriptedBatch| if batch.life == 0 { Act::Die } else { Act::Echo };
    let launch = |life| (if life == 0 { Duration::ZERO } else { millis(900) }, Ok(()));
    let kit = Kit::with_launches(settings(), dies, launch);
    kit.model.scale(1, 1).await.unwrap();
    let first = kit.start(call("a"));
    while kit.model.readiness().is_ready() {
        advance(millis(1)).await;
        settle().await;
    }
    assert_eq!(kit.model.readiness(), Readiness::Loading { wanted: 1, progress: None });
    assert_eq!(text(&kit.call("b").await.unwrap()), "b");
    assert!(first.await.unwrap().is_ok());
    let report = kit.model.status().incidents;
    assert_eq!((report.exits[0], report.restarts, report.load_failures), (("exited", 1), 1, 0));
    let last = report.last.expect("the exit");
    assert_eq!(last.exit, Some(WorkerExit::UNEXPLAINED));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_before_the_start_of_the_workers_waits_for_them() {
    let kit = Kit::idle(settings(), echo_after(5));
    assert!(is_rejected(&kit.call("a").await.map(|it| text(&it)), Rejection::NoWorker));
    kit.model.set_worker_target(1, 1);
    let early = kit.start(call("b"));
    settle().await;
    kit.model.scale(1, 1).await.unwrap();
    assert!(early.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_model_is_ready_when_a_worker_serves_and_unstaffed_when_none_is_wanted() {
    let kit = slow(settings());
    assert_eq!(
        kit.model.readiness(),
        Readiness::Loading { wanted: 1, progress: None },
        "as it was registered"
    );
    drop(start(&kit, 1));
    settle().await;
    advance(Duration::from_secs(99)).await;
    settle().await;
    assert!(!kit.model.readiness().is_ready() && !kit.model.has_started());
    advance(Duration::from_secs(2)).await;
    settle().await;
    assert!(kit.model.readiness().is_ready());
    kit.model.scale(0, 0).await.unwrap();
    settle().await;
    assert_eq!(kit.model.readiness(), Readiness::Unstaffed);
    assert!(kit.model.has_started());
    assert!(is_rejected(&kit.call("a").await.map(|it| text(&it)), Rejection::NoWorker));
}

/// A model without workers whose loads take seven seconds and that was loaded once; its batches take a second.
async fn at_zero(settings: ModelSettings) -> Kit {
    let settings = ModelSettings { startup_timeout: Duration::from_secs(60), ..settings };
    let kit = Kit::with_launches(settings, echo_after(1000), |_| (Duration::from_secs(7), Ok(())));
    kit.model.scale(1, 1).await.unwrap();
    assert!(kit.call("a").await.is_ok());
    kit.model.scale(0, 0).await.unwrap();
    settle().await;
    kit.model.scale(0, 1).await.unwrap();
    // Nobody has asked for long, so that the next request is looked at when it comes.
    tokio::time::sleep(Duration::from_secs(120)).await;
    kit
}

fn due(seconds: u64) -> crate::call::Call {
    let deadline = Some(Instant::now() + Duration::from_secs(seconds));
    crate::call::Call { deadline, ..call("b") }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_end_of_a_measured_load_is_rejected_at_once_and_the_load_goes_on() {
    let kit = at_zero(settings()).await;
    let rejected = async |seconds, ready_in: u64| {
        let asked = Instant::now();
        let told = kit.start(due(seconds)).await.unwrap();
        let Err(CallError::Loading(wait)) = told else { panic!("{told:?}") };
        assert_eq!(asked.elapsed(), Duration::ZERO);
        let ready_in = Some(Duration::from_secs(ready_in));
        let limit = WaitLimit::Deadline(Duration::from_secs(seconds));
        assert_eq!(wait, LoadingWait { wanted: wait.wanted, limit, ready_in, at_once: true });
    };
    rejected(5, 7).await;
    settle().await;
    assert_eq!(kit.model.status().workers.len(), 1, "it loads for those who come back");
    advance(Duration::from_secs(4)).await;
    rejected(2, 3).await;
    // In time for the load, and not for its batch.
    rejected(3, 3).await;
    let in_time = kit.start(due(5));
    assert!(in_time.await.unwrap().is_ok());
    assert_eq!(kit.model.status().counters.rejected, 3);
}

#[tokio::test(start_paused = true)]
async fn the_objective_of_a_model_at_zero_is_looked_at_in_the_same_way() {
    let half = millis(500);
    let kit = at_zero(ModelSettings { client_timeout: half, ..settings() }).await;
    let told = kit.start(call("b")).await.unwrap();
    let Err(CallError::Loading(wait)) = told else { panic!("{told:?}") };
    assert_eq!((wait.limit, wait.at_once), (WaitLimit::ClientTimeout(half), true));
    settle().await;
    advance(Duration::from_secs(9)).await;
    settle().await;
    assert!(kit.model.readiness().is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_load_is_told_how_long_it_still_takes() {
    let kit = at_zero(ModelSettings { startup_wait: Duration::from_secs(2), ..settings() }).await;
    let told = kit.start(call("b")).await.unwrap();
    let Err(CallError::Loading(wait)) = told else { panic!("{told:?}") };
    let limit = WaitLimit::StartupWait(Duration::from_secs(2));
    let ready_in = Some(Duration::from_secs(5));
    assert_eq!(wait, LoadingWait { wanted: 1, limit, ready_in, at_once: false });
}
