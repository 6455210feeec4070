//! Workers that run one batch after another and are handed the next one just before the last ends.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::call::{Answer, Call};
use crate::testkit::Kind;

/// What a batch takes in these stories, unless its body says otherwise.
const TAKES: u64 = 10;

fn adaptive() -> ModelSettings {
    ModelSettings { policy: PolicyName::Adaptive, ..settings() }
}

fn takes(ms: u64, act: Act) -> Act {
    Act::After(millis(ms), Box::new(act))
}

/// A worker that has shown how long a full batch takes.
async fn practised(
    settings: ModelSettings,
    script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
) -> Kit {
    let kit = Kit::of(Kind::Queueing, 1, settings, script).await;
    for _ in 0..4 {
        practise(&kit).await;
    }
    kit
}

async fn practise(kit: &Kit) {
    for _ in 0..10 {
        for call in (0..8).map(|_| ask(kit, "x")).collect::<Vec<_>>() {
            assert!(call.await.expect("no client leaves").is_ok());
        }
    }
    // So quiet that no request waits for others.
    tokio::time::sleep(millis(200)).await;
}

/// A request of a client that never comes back, so that no batch waits for it.
fn ask(kit: &Kit, body: &str) -> tokio::task::JoinHandle<Result<Answer, CallError>> {
    static PEERS: AtomicU64 = AtomicU64::new(1);
    let peer = PEERS.fetch_add(1, Ordering::Relaxed);
    kit.start(Call { origin: Origin { kind: OriginKind::Http, peer }, ..call(body) })
}

/// Sends one request, and a full batch while it runs.
async fn two_batches(kit: &Kit, first: &str, second: &str) -> [Vec<Told>; 2] {
    let first = vec![ask(kit, first)];
    tokio::time::sleep(millis(3)).await;
    let second = (0..4).map(|_| ask(kit, second)).collect();
    let mut told = [Vec::new(), Vec::new()];
    for (told, calls) in told.iter_mut().zip([first, second]) {
        for call in calls {
            let answer = call.await.expect("no client leaves");
            told.push(answer.map(|it| (text(&it), it.timing.attempt, it.timing.compute)));
        }
    }
    told
}

type Told = Result<(String, u8, Duration), CallError>;

/// When each batch with this body was given, in microseconds.
fn given(kit: &Kit, since: Instant, body: &str) -> Vec<u128> {
    let batches = kit.batches().into_iter();
    let with =
        batches.filter(|batch| batch.at >= since && batch.bodies.iter().any(|it| it == body));
    with.map(|batch| batch.at.duration_since(since).as_micros()).collect()
}

/// How long the batch of these answers ran, in microseconds.
fn ran(told: &[Told]) -> u128 {
    told[0].as_ref().expect("an answer").2.as_micros()
}

/// Takes a little longer than expected where it is told so: nothing takes time on the way to a
/// worker of these stories, so that otherwise a batch would come in the moment the last one ends.
fn slow_at_times(batch: &ScriptedBatch) -> Act {
    let slow = batch.bodies[0] == "slow";
    takes(TAKES + if slow { 2 } else { 0 }, Act::Echo)
}

/// When the second of two batches was given, and when the first one ended.
async fn handed_over(kit: &Kit, second: &str) -> (u128, u128) {
    let since = Instant::now();
    let [first, then] = two_batches(kit, "slow", second).await;
    let [at] = given(kit, since, second)[..] else { panic!("given once") };
    let (end, elapsed) = (given(kit, since, "slow")[0] + ran(&first), since.elapsed().as_micros());
    assert!(ran(&then) <= u128::from(TAKES + 1) * 1000, "its time begins when the first is over");
    assert!(elapsed <= end + ran(&then) + 1000, "no pause between them: {elapsed}");
    (at, end)
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_lies_before_the_worker_as_the_last_one_ends() {
    let kit = practised(adaptive(), slow_at_times).await;
    let (at, end) = handed_over(&kit, "b").await;
    assert!(at < end && end <= at + 3000, "neither late nor early: {at} of {end}");
}

#[tokio::test(start_paused = true)]
async fn other_policies_hand_over_nothing_early_not_even_after_a_change() {
    let opportunistic = ModelSettings { policy: PolicyName::Opportunistic, ..settings() };
    let kit = practised(opportunistic, slow_at_times).await;
    let (at, end) = handed_over(&kit, "b").await;
    assert!(at >= end, "{at} of {end}");
    for policy in [PolicyName::Adaptive, PolicyName::Opportunistic] {
        let change = Reconfigure::of(&jitney_settings::model::POLICY, policy.as_str());
        kit.model.reconfigure(change).await.expect("a change");
        practise(&kit).await;
        let (at, end) = handed_over(&kit, policy.as_str()).await;
        assert_eq!(at < end, policy == PolicyName::Adaptive, "{policy:?}: {at} of {end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waited_behind_a_deadly_one_is_innocent_and_runs_again_as_it_was() {
    let script = |batch: &ScriptedBatch| match batch.bodies[0].as_str() {
        "deadly" => takes(TAKES + 2, Act::Die),
        _ => takes(TAKES, Act::Echo),
    };
    let kit = practised(adaptive(), script).await;
    let since = Instant::now();
    let [deadly, innocent] = two_batches(&kit, "deadly", "b").await;
    assert!(deadly.iter().all(|told| matches!(told, Err(CallError::WorkerExited { .. }))));
    let attempts: Vec<_> = innocent.iter().flatten().map(|told| told.1).collect();
    assert_eq!(attempts, [1; 4], "{innocent:?}");
    let together =
        kit.batches().into_iter().filter(|batch| batch.at >= since && batch.bodies == ["b"; 4]);
    let lives: Vec<_> = together.map(|batch| batch.life).collect();
    assert!(lives.len() >= 2 && lives[0] == 0, "on the dead one, then on another: {lives:?}");
    assert_eq!(kit.model.status().counters.retried, 1, "only the one who did it");
}

#[tokio::test(start_paused = true)]
async fn the_time_to_answer_begins_when_the_batch_before_is_over() {
    let script = |batch: &ScriptedBatch| match batch.bodies[0].as_str() {
        "slow" => takes(14, Act::Echo),
        "next" => takes(13, Act::Echo),
        _ => takes(TAKES, Act::Echo),
    };
    let patience = ModelSettings { response_timeout: millis(15), ..adaptive() };
    let kit = practised(patience, script).await;
    let since = Instant::now();
    let told = two_batches(&kit, "slow", "next").await;
    assert!(told.iter().flatten().all(Result::is_ok), "{told:?}");
    assert!(given(&kit, since, "next")[0] <= 11_000, "it was there before");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_never_ends_costs_the_one_behind_it_nothing() {
    let script = |batch: &ScriptedBatch| match batch.bodies[0].as_str() {
        "hangs" => Act::Silence,
        _ => takes(TAKES, Act::Echo),
    };
    let kit = practised(ModelSettings { response_timeout: millis(50), ..adaptive() }, script).await;
    let [_, innocent] = two_batches(&kit, "hangs", "b").await;
    let attempts: Vec<_> = innocent.iter().flatten().map(|told| told.1).collect();
    assert_eq!(attempts, [1; 4], "{innocent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_is_kept_back_until_the_worker_reads_again() {
    let kit = practised(adaptive(), slow_at_times).await;
    let (at, end) = handed_over(&kit, "large").await;
    assert!(at >= end, "{at} of {end}");
}

#[tokio::test(start_paused = true)]
async fn closing_answers_the_batch_ahead_too() {
    let kit = practised(adaptive(), echo_after(TAKES)).await;
    let closer = async {
        tokio::time::sleep(Duration::from_micros(9_700)).await;
        kit.model.close(millis(1000)).await;
    };
    let (told, ()) = tokio::join!(two_batches(&kit, "a", "b"), closer);
    assert!(told.iter().flatten().all(Result::is_ok), "{told:?}");
}
