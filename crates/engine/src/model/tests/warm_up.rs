//! The start-up sweep: which sizes a new worker runs, what is learned of it, and when it is let be.

use tempfile::TempDir;

use super::*;
use crate::shares::{Cost, Shares};
use crate::testkit::RowsModel;

/// Ten bytes, as every body of a sweep.
const SAMPLE: &str = "a sample..";

fn adaptive(shares: Shares) -> ModelSettings {
    ModelSettings { batch_size: 8, policy: PolicyName::Adaptive, shares, ..settings() }
}

/// A model with a sample, no worker yet; a batch takes so many milliseconds and as many per item.
fn sampled(settings: ModelSettings, ms: u64) -> (TempDir, Kit) {
    let time = move |batch: &ScriptedBatch| millis(ms + ms * batch.bodies.len() as u64);
    scripted(settings, move |batch| Act::After(time(batch), Box::new(Act::Echo)))
}

fn scripted(
    settings: ModelSettings,
    script: impl Fn(&ScriptedBatch) -> Act + Send + Sync + 'static,
) -> (TempDir, Kit) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("jitney_sample.txt"), SAMPLE).unwrap();
    let kit = Kit::in_dir(dir.path(), settings, script);
    (dir, kit)
}

/// How many samples each batch of the sweep had, and whether a request is answered after it.
async fn swept(kit: &Kit) -> Vec<usize> {
    drop(kit.model.scale(1, 1).await);
    assert_eq!(text(&kit.call("user").await.unwrap()), "user");
    let samples =
        |batch: &ScriptedBatch| batch.bodies.iter().filter(|body| *body == SAMPLE).count();
    let sizes: Vec<_> = kit.batches().iter().map(samples).collect();
    assert_eq!(sizes.last(), Some(&0), "the user batches after the sweep: {sizes:?}");
    sizes[..sizes.len() - 1].to_vec()
}

/// The sizes that something was learned of.
async fn learned(kit: &Kit) -> Vec<u64> {
    kit.model.batcher_report().await.unwrap().curve.iter().map(|point| point.size).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_worker_runs_every_size_before_it_serves() {
    let (_dir, kit) = sampled(adaptive(Shares::default()), 1);
    let started = Instant::now();
    drop(kit.model.scale(1, 1).await);
    let user = kit.start(call("user"));
    assert!(user.await.unwrap().is_ok());
    assert!(started.elapsed() >= millis(2 + 2 + 3 + 5 + 9), "no request is served before");
    let sizes: Vec<_> = kit.batches().iter().map(|batch| batch.bodies.len()).collect();
    assert_eq!(sizes, [1, 1, 2, 4, 8, 1], "the first batch of all is run once more");
    assert!(kit.batches()[..5].iter().all(|batch| batch.bodies.iter().all(|body| body == SAMPLE)));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_teaches_the_curve_and_is_counted_nowhere() {
    let (_dir, kit) = sampled(adaptive(Shares::default()), 1);
    drop(kit.model.scale(1, 1).await);
    tokio::time::sleep(millis(1000)).await;
    let curve = kit.model.batcher_report().await.unwrap().curve;
    let points: Vec<_> = curve.iter().map(|it| (it.size, it.mean.div_ceil(1_000_000))).collect();
    assert_eq!(points.len(), 4, "{points:?}");
    for ((size, ms), want) in points.iter().zip([1, 2, 4, 8]) {
        assert_eq!(*size, want);
        assert!(ms.abs_diff(1 + want) <= 1, "{points:?}");
    }
    let counters = kit.model.status().counters;
    assert_eq!((counters.requests, counters.answered), (0, 0));
    assert_eq!(kit.model.statistics().sizes, []);
    assert_eq!((kit.admission.requests(), kit.model.measures().batch_items.count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_begins_no_batch_that_would_end_after_two_seconds() {
    let (_dir, kit) = sampled(adaptive(Shares::default()), 150);
    // 300, 300, 450 and 750 ms are over at 1.8 s; eight items would probably take twice the last.
    assert_eq!(swept(&kit).await, [1, 1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn every_policy_sweeps_and_every_start_of_a_worker() {
    for policy in [PolicyName::Window, PolicyName::Opportunistic] {
        let (_dir, kit) = sampled(ModelSettings { batch_size: 4, policy, ..settings() }, 1);
        assert_eq!(swept(&kit).await, [1, 1, 2, 4], "{policy:?}");
    }
    let (_dir, kit) =
        scripted(adaptive(Shares::default()), |batch| match batch.bodies[0].as_str() {
            "deadly" => Act::Die,
            _ => Act::Echo,
        });
    swept(&kit).await;
    assert!(kit.call("deadly").await.is_err());
    let again =
        |batch: &ScriptedBatch| batch.life > 0 && batch.bodies.iter().all(|it| it == SAMPLE);
    assert!(kit.call("user").await.is_ok());
    let sizes: Vec<_> =
        kit.batches().iter().filter(|it| again(it)).map(|it| it.bodies.len()).collect();
    assert_eq!(sizes[..5], [1, 1, 2, 4, 8]);
    let first_dies = |batch: &ScriptedBatch| match (batch.life, batch.bodies.len()) {
        (0, 4) => Act::Die,
        _ => Act::Echo,
    };
    let (_dir, kit) = scripted(adaptive(Shares::default()), first_dies);
    assert_eq!(swept(&kit).await, [1, 1, 2, 4], "the worker that died comes back and serves");
}

#[tokio::test(start_paused = true)]
async fn a_sample_on_which_the_model_fails_is_tried_once() {
    let on_sample = |batch: &ScriptedBatch| match batch.bodies[0] == SAMPLE {
        true => Act::Raise,
        false => Act::Echo,
    };
    let (_dir, kit) = scripted(adaptive(Shares::default()), on_sample);
    assert_eq!(swept(&kit).await, [1]);
    drop(kit.model.scale(2, 2).await);
    settle().await;
    assert_eq!(kit.batches().len(), 2, "the second worker serves at once");
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_sample_are_learned_by_and_limited() {
    let shares = Shares { cost: Cost::Bytes, cost_max: Some(45), ..Shares::default() };
    let (_dir, kit) = sampled(adaptive(shares), 1);
    drop(kit.model.scale(1, 1).await);
    tokio::time::sleep(millis(1000)).await;
    assert_eq!(learned(&kit).await, [10, 20, 40]);
}

#[tokio::test(start_paused = true)]
async fn a_sample_weighs_what_its_model_says_or_teaches_nothing() {
    for (cost, weight, first) in [(Cost::Tokens, 30, 30), (Cost::Length, 30, 32)] {
        let shares = Shares { cost, sample_cost: Some(weight), ..Shares::default() };
        let (_dir, kit) = sampled(adaptive(shares), 1);
        drop(kit.model.scale(1, 1).await);
        tokio::time::sleep(millis(1000)).await;
        let learned = learned(&kit).await;
        assert_eq!((learned.len(), learned[0]), (4, first), "{cost:?}: {learned:?}");
    }
    let unknown = Shares { cost: Cost::Tokens, ..Shares::default() };
    let (_dir, kit) = sampled(adaptive(unknown.clone()), 1);
    drop(kit.model.scale(1, 1).await);
    tokio::time::sleep(millis(1000)).await;
    assert_eq!(
        (kit.batches().len(), learned(&kit).await.len()),
        (5, 0),
        "warm, and nothing learned"
    );
    let (_dir, kit) = sampled(adaptive(Shares { cost_max: Some(100), ..unknown }), 1);
    assert_eq!(swept(&kit).await.len(), 0, "it is unknown how many fit");
}

#[tokio::test(start_paused = true)]
async fn a_local_model_is_swept_with_the_sample_that_it_makes_up() {
    for (padded, sizes, first) in [(Some(32), vec![1, 1, 2, 4, 8], Some(&32)), (None, vec![], None)]
    {
        let model = RowsModel { whole: false, padded };
        let shares = Shares { cost: Cost::Length, ..Shares::default() };
        let kit = Kit::of_local(model, adaptive(shares), echo_after(1)).await;
        tokio::time::sleep(millis(1000)).await;
        let swept: Vec<_> = kit.batches().iter().map(|batch| batch.bodies.len()).collect();
        assert_eq!((swept, learned(&kit).await.first()), (sizes, first));
    }
}
