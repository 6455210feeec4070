//! Runs that several wait for, on a virtual clock.

use std::time::Duration;

use futures_util::FutureExt as _;
use jitney_batcher::DispatchReason;
use tokio::sync::oneshot;

use super::*;
use crate::admission::AdmissionLimits;

const KEY: (AnswerKey, Priority) = (AnswerKey([7; 32]), Priority::Interactive);

fn answer(text: &'static str) -> Answer {
    let timing = Timing {
        queue: Duration::from_millis(1),
        compute: Duration::from_millis(2),
        batch_items: 1,
        batch_items_max: 1,
        position: 0,
        reason: DispatchReason::Idle,
        attempt: 1,
        batch: 1,
        batches: Vec::new(),
        padding: None,
    };
    let output = Output { body: Bytes::from_static(text.as_bytes()), ..Output::default() };
    Answer { output, timing, stream: None }
}

fn cache(rule: &str) -> (Arc<AnswerCache>, Arc<Admission>) {
    let account = Admission::new(AdmissionLimits::default());
    let rule: CacheRule = rule.parse().unwrap();
    (Arc::new(AnswerCache::new(Some(&rule), Arc::clone(&account))), account)
}

type RunResult = Result<Answer, OwnAnswer>;

/// What a request finds whose run would end when the sender says so.
fn find(cache: &Arc<AnswerCache>, fresh: bool) -> (CacheFind<()>, oneshot::Sender<RunResult>) {
    let (sender, end) = oneshot::channel::<RunResult>();
    let run = async { end.await.unwrap_or(Err(Err(CallError::Gone))) };
    (cache.find(KEY, fresh, Instant::now(), (), |()| run), sender)
}

fn begun(found: CacheFind<()>) -> CommonRun {
    let CacheFind::Miss(run) = found else { panic!("it must begin a run") };
    run
}

fn joined(cache: &Arc<AnswerCache>) -> CommonRun {
    let (CacheFind::Shared(run, ()), _) = find(cache, false) else { panic!("it must wait") };
    run
}

fn text(end: RunEnd) -> Bytes {
    let RunEnd::Common(common) = end else { panic!("it is for all") };
    common.of_run().output.body
}

#[tokio::test(start_paused = true)]
async fn equal_requests_share_a_run_and_later_ones_its_answer() {
    let (cache, account) = cache("{}");
    let (first, end) = find(&cache, false);
    let (first, second) = (begun(first), joined(&cache));
    end.send(Ok(answer("one"))).unwrap();
    assert_eq!((text(second.await), text(first.await)), ("one".into(), "one".into()));
    assert_eq!((cache.bytes(), account.bytes()), (3 + 256, 3 + 256));
    tokio::time::advance(Duration::from_secs(59)).await;
    let (CacheFind::Hit(hit, ()), _) = find(&cache, false) else { panic!("it must be there") };
    let hit = hit.of_shelf();
    assert_eq!((&hit.output.body[..], hit.timing.compute), (&b"one"[..], Duration::ZERO));
    let fresh = begun(find(&cache, true).0);
    tokio::time::advance(Duration::from_secs(1)).await;
    let (_, _) = (fresh, joined(&cache));
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_while_anybody_waits_and_ends_with_the_last() {
    let (cache, _) = cache("{}");
    let (first, end) = find(&cache, false);
    let (first, second) = (begun(first), joined(&cache));
    let mut first = Box::pin(first);
    // The first one drives the run, and leaves.
    assert!(first.as_mut().now_or_never().is_none());
    drop(first);
    end.send(Ok(answer("one"))).unwrap();
    assert_eq!(text(second.await), "one");
    cache.change(Some(&"{}".parse().unwrap()));
    let (alone, end) = find(&cache, false);
    drop(begun(alone));
    assert!(end.is_closed(), "nobody waits: the run is cancelled");
    assert!(cache.books().runs.is_empty());
    drop(begun(find(&cache, false).0));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_only_for_who_began_the_run() {
    let (cache, account) = cache("{}");
    let (first, end) = find(&cache, false);
    let (first, second) = (begun(first), joined(&cache));
    end.send(Err(Err(CallError::Poisonous))).unwrap();
    assert!(matches!(second.await, RunEnd::Own(_)));
    let RunEnd::Own(own) = first.await else { panic!("it failed") };
    assert!(matches!(own.lock().unwrap().take(), Some(Err(CallError::Poisonous))));
    assert_eq!(account.bytes(), 0);
    drop(begun(find(&cache, false).0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_beyond_the_bytes_is_shared_and_not_kept() {
    let (cache, account) = cache(r#"{"bytes": 258}"#);
    let (first, end) = find(&cache, false);
    let (first, second) = (begun(first), joined(&cache));
    end.send(Ok(answer("one"))).unwrap();
    assert_eq!((text(second.await), text(first.await)), ("one".into(), "one".into()));
    assert_eq!((cache.bytes(), account.bytes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_rule_empties_it() {
    let (cache, account) = cache("{}");
    let (first, end) = find(&cache, false);
    end.send(Ok(answer("one"))).unwrap();
    text(begun(first).await);
    assert!(cache.is_on() && account.bytes() > 0);
    cache.change(None);
    assert!(!cache.is_on());
    assert_eq!((cache.bytes(), account.bytes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn urgent_requests_do_not_wait_for_bulk_runs() {
    let (cache, _) = cache("{}");
    let bulk = cache.find((KEY.0, Priority::Bulk), false, Instant::now(), (), |()| async {
        std::future::pending::<RunResult>().await
    });
    let _bulk = begun(bulk);
    drop(begun(find(&cache, false).0));
}
