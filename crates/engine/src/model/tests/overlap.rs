//! Workers that prepare the next batches while one is in the model, and say how long each took.

use super::*;
use crate::testkit::{Kind, PREPARE};

/// Full batches go to every slot, whatever the policy.
fn window() -> ModelSettings {
    ModelSettings { batch_delay: millis(1000), ..settings() }
}

fn takes(ms: u64, act: Act) -> Act {
    Act::After(millis(ms), Box::new(act))
}

/// Sends batches of four equal bodies at once; what became of each request.
async fn ask(kit: &Kit, bodies: &[&'static str]) -> Vec<Result<String, CallError>> {
    let all: Vec<_> = bodies.iter().flat_map(|body| [*body; 4]).collect();
    kit.call_all(&all).await
}

/// The first bodies of the batches, in the order in which they were given, with when that was.
fn given(kit: &Kit, since: Instant) -> Vec<(String, u64)> {
    let batches = kit.batches().into_iter();
    let one = |batch: ScriptedBatch| {
        (batch.bodies[0].clone(), batch.at.duration_since(since).as_millis() as u64)
    };
    batches.map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_batches_are_prepared_while_one_is_in_the_model() {
    let kit = Kit::of(Kind::Overlapping(3), 1, window(), echo_after(10)).await;
    let since = Instant::now();
    let answers = ask(&kit, &["a", "b", "c"]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(since.elapsed(), PREPARE + millis(30), "one preparation and three runs");
    let at: Vec<_> = given(&kit, since).into_iter().map(|(_, at)| at).collect();
    assert_eq!(at, [0, 0, 0], "one worker held all three");
    kit.model.scale(0, 0).await.expect("all its slots go");
    assert!(kit.call("late").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn stages_are_measured_apart_and_clients_are_told_the_whole() {
    let kit = Kit::of(Kind::Overlapping(2), 1, window(), echo_after(10)).await;
    let calls: Vec<_> = (0..8).map(|_| kit.start(call("a"))).collect();
    let mut computed = Vec::new();
    for call in calls {
        computed.push(call.await.unwrap().unwrap().timing.compute);
    }
    let [first, second] = [computed[0], computed[4]];
    assert_eq!([first, second], [millis(14), millis(24)], "from when the worker was given it");
    let measures = kit.model.measures();
    assert_eq!((measures.prepare_us.count(), measures.prepare_us.sum), (2, 4_000 + 4_000));
    assert_eq!((measures.model_us.count(), measures.model_us.sum), (2, 20_000));
    let worker = &kit.model.status().workers[0];
    assert_eq!((worker.gpu_memory, worker.graphs), (Some(1 << 30), None));
    assert_eq!(worker.pauses.map(|it| it.runs), Some(3));
}

#[tokio::test(start_paused = true)]
async fn what_is_learned_is_the_time_in_the_model() {
    let adaptive = ModelSettings { policy: PolicyName::Adaptive, ..settings() };
    let kit = Kit::of(Kind::Overlapping(2), 1, adaptive, echo_after(10)).await;
    for _ in 0..20 {
        kit.call("a").await.expect("an answer");
    }
    let curve = kit.model.batcher_report().await.expect("a report").curve;
    let millis: Vec<_> = curve.iter().map(|point| point.mean / 1_000_000).collect();
    assert_eq!(millis, [10], "without the preparation: {curve:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_to_answer_begins_when_a_batch_could_run() {
    let patience = ModelSettings { response_timeout: millis(25), ..window() };
    let kit = Kit::of(Kind::Overlapping(3), 1, patience, echo_after(20)).await;
    let answers = ask(&kit, &["a", "b", "c"]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(kit.model.status().incidents.exits.iter().all(|(_, count)| *count == 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_never_ends_costs_those_behind_it_nothing() {
    let script = |batch: &ScriptedBatch| match (batch.life, batch.bodies[0].as_str()) {
        (0, "hangs") => Act::Silence,
        _ => takes(10, Act::Echo),
    };
    let patience = ModelSettings { response_timeout: millis(50), ..window() };
    let kit = Kit::of(Kind::Overlapping(3), 1, patience, script).await;
    let calls: Vec<_> = ["hangs", "b"]
        .iter()
        .flat_map(|body| [body; 4])
        .map(|body| kit.start(call(body)))
        .collect();
    let mut attempts = Vec::new();
    for call in calls {
        attempts.push(call.await.unwrap().expect("an answer").timing.attempt);
    }
    assert_eq!(attempts, [2, 2, 2, 2, 1, 1, 1, 1], "only the first was to blame");
}

#[tokio::test(start_paused = true)]
async fn any_batch_of_a_worker_that_exits_may_be_to_blame() {
    let script = |batch: &ScriptedBatch| match batch.bodies.iter().any(|body| body == "deadly") {
        true => Act::Die,
        false => takes(10, Act::Echo),
    };
    let kit = Kit::of(Kind::Overlapping(3), 1, window(), script).await;
    // The second one dies while the first is in the model, as a decoder can.
    let bodies = ["a", "a", "a", "a", "b", "b", "b", "deadly"];
    let answers = kit.call_all(&bodies).await;
    let told: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(told, [true, true, true, true, true, true, true, false], "{answers:?}");
    let after = Instant::now();
    assert!(ask(&kit, &["c", "d"]).await.iter().all(Result::is_ok));
    let at: Vec<_> =
        kit.batches().into_iter().filter(|it| it.at >= after).map(|it| it.bodies.len()).collect();
    assert_eq!(at, [4, 4], "batches again, once the second tries are over");
}
