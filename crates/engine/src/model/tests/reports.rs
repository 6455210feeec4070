//! What workers say while they load and when they have: progress, sizes, what they measured.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::pool::{GraphMemory, LoadProgress, LoadedReport, MeasuredRun};
use crate::testkit::{Kind, ScriptedLoading};

fn step(done: u32, of: u32) -> LoadProgress {
    LoadProgress { done, of, what: format!("captured batch size {done}") }
}

fn run(items: u32, prepare_ms: u64, model_ms: u64) -> MeasuredRun {
    let (prepare, model) = (millis(prepare_ms), millis(model_ms));
    MeasuredRun { items, prepare, model, length: None }
}

fn adaptive() -> ModelSettings {
    ModelSettings { batch_size: 8, policy: PolicyName::Adaptive, ..settings() }
}

fn kit(kind: Kind, report: LoadedReport, settings: ModelSettings) -> Kit {
    let loading = ScriptedLoading { report, ..ScriptedLoading::default() };
    Kit::loading(None, kind, loading, settings, echo_after(5))
}

#[tokio::test(start_paused = true)]
async fn each_step_starts_the_time_to_load_anew_and_is_shown() {
    let steps = (1..=5).map(|done| (millis(800), step(done, 5))).collect();
    let loading = ScriptedLoading { steps, ..ScriptedLoading::default() };
    let patience = ModelSettings { startup_timeout: millis(1000), ..settings() };
    let kit = Kit::loading(None, Kind::Plain, loading, patience, echo_after(5));
    let model = Arc::clone(&kit.model);
    let scaled = tokio::spawn(async move { model.scale(1, 1).await });
    tokio::time::sleep(millis(1700)).await;
    let state = kit.model.readiness().to_string();
    assert_eq!(state, "loading (0 of 1 workers ready; captured batch size 2, 2 of 5)");
    assert_eq!(kit.model.status().workers[0].progress, Some(step(2, 5)));
    scaled.await.unwrap().expect("it loads in four seconds");
    assert_eq!(kit.model.status().workers[0].progress, None, "that is over");
    assert!(kit.call("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_nothing_more_is_given_up_in_time() {
    let steps = vec![(millis(800), step(1, 5)), (millis(3000), step(2, 5))];
    let loading = ScriptedLoading { steps, ..ScriptedLoading::default() };
    let patience = ModelSettings { startup_timeout: millis(1000), ..settings() };
    let kit = Kit::loading(None, Kind::Plain, loading, patience, echo_after(5));
    let began = Instant::now();
    assert!(kit.model.scale(1, 1).await.is_err());
    assert_eq!(began.elapsed(), millis(1800));
    assert_eq!(kit.model.status().workers[0].progress, None, "of the next start");
}

#[tokio::test(start_paused = true)]
async fn the_sizes_of_the_workers_are_the_policys_where_the_operator_set_none() {
    let report = LoadedReport { sizes: vec![1, 2, 6, 64], ..LoadedReport::default() };
    for (set, sizes) in [(vec![], vec![1, 2, 6]), (vec![4, 8], vec![4, 8])] {
        let kit = kit(Kind::Plain, report.clone(), ModelSettings { sizes: set, ..adaptive() });
        drop(kit.model.scale(1, 1).await);
        assert_eq!(kit.model.batcher_report().await.unwrap().config.sizes, sizes);
        assert_eq!(*kit.model.allowed_sizes(), sizes);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_measured_itself_is_learned_and_not_measured_again() {
    let graphs = Some(GraphMemory { count: 3, bytes: 77 });
    let report = LoadedReport {
        measured: vec![run(1, 2, 10), run(8, 4, 30)],
        graphs,
        gpu_memory: Some(99),
        ..LoadedReport::default()
    };
    for (kind, times) in [(Kind::Overlapping(2), [10, 30]), (Kind::Plain, [12, 34])] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("jitney_sample.txt"), "a sample").unwrap();
        let loading = ScriptedLoading { report: report.clone(), ..ScriptedLoading::default() };
        let kit = Kit::loading(Some(dir.path()), kind, loading, adaptive(), echo_after(5));
        drop(kit.model.scale(1, 1).await);
        assert_eq!(kit.batches(), [], "no sweep");
        let curve = kit.model.batcher_report().await.unwrap().curve;
        let points: Vec<_> = curve.iter().map(|it| (it.size, it.mean / 1_000_000)).collect();
        let near = |((size, ms), want): (&(u64, u64), (u64, u64))| {
            *size == want.0 && ms.abs_diff(want.1) <= 1
        };
        let wanted = [(1, times[0]), (8, times[1])];
        assert!(points.len() == 2 && points.iter().zip(wanted).all(near), "{kind:?}: {points:?}");
        let worker = &kit.model.status().workers[0];
        assert_eq!((worker.graphs, worker.gpu_memory), (graphs, Some(99)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_model_answers_on_a_gpu_is_counted_for_those_who_share_it() {
    let all = Arc::new(AtomicU64::new(7));
    let gpu_answers = Some(Arc::clone(&all));
    let loading = ScriptedLoading { gpu_answers, ..ScriptedLoading::default() };
    let kit = Kit::loading(None, Kind::Overlapping(2), loading, adaptive(), echo_after(5));
    drop(kit.model.scale(1, 1).await);
    for _ in 0..3 {
        assert!(kit.call("a").await.is_ok());
    }
    assert_eq!(all.load(Ordering::Relaxed), 10);
}

#[tokio::test(start_paused = true)]
async fn the_sweep_runs_exactly_the_sizes_that_the_worker_says_under_every_policy() {
    for policy in [PolicyName::Adaptive, PolicyName::Window] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("jitney_sample.txt"), "a sample").unwrap();
        let report = LoadedReport { sizes: vec![3, 5, 8], ..LoadedReport::default() };
        let loading = ScriptedLoading { report, ..ScriptedLoading::default() };
        let of = ModelSettings { policy, ..adaptive() };
        let slow = echo_after(1500);
        let kit = Kit::loading(Some(dir.path()), Kind::Plain, loading, of, slow);
        let model = Arc::clone(&kit.model);
        let scaled = tokio::spawn(async move { model.scale(1, 1).await });
        tokio::time::sleep(millis(3100)).await;
        let state = kit.model.readiness().to_string();
        assert_eq!(state, "loading (0 of 1 workers ready; ran batch size 3, 1 of 3)");
        scaled.await.unwrap().expect("it gets ready");
        let sizes: Vec<_> = kit.batches().iter().map(|batch| batch.bodies.len()).collect();
        assert_eq!(sizes, [3, 3, 5, 8], "{policy:?}");
    }
}
