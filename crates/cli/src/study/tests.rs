//! Workloads and plans as users write them, without files or time.

use super::*;
use crate::env::Env;
use crate::flags::study::Workload;
use crate::units::{Millis, Span};
use workload::{Study, StudyLoad};

fn quick(options: Workload) -> SimulateFlags {
    let options = Workload { requests: Some(500), ..options };
    SimulateFlags { options, ..SimulateFlags::default() }
}

fn rejected(options: Workload, said: &str) {
    let failure = simulate::run(quick(options)).expect_err(said);
    assert_eq!(failure.code, crate::failure::USAGE);
    assert!(failure.to_string().contains(said), "{failure}");
}

#[test]
fn every_policy_gets_a_row() {
    let found = simulate::run(quick(Workload { rate: vec![500.0], ..Workload::default() }));
    let text = found.expect("it runs").text;
    for name in ["adaptive", "opportunistic", "window 5 ms"] {
        assert!(text.contains(name), "{name}\n{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_words() {
    let words = || {
        let options = Workload { clients: vec![1, 4], jitter: Some(0.1), ..Workload::default() };
        simulate::run(quick(options)).expect("it runs").text
    };
    assert_eq!(words(), words());
}

#[test]
fn requests_may_come_over_connections_that_are_used_again() {
    let options = Workload {
        rate: vec![300.0],
        pool: Some(64),
        pool_order: Some("random".into()),
        ..Workload::default()
    };
    let flags = SimulateFlags { json: true, policy: vec!["adaptive".into()], ..quick(options) };
    let text = simulate::run(flags).expect("it runs").text;
    for key in ["mean_ms", "p50_ms", "p99_ms", "mean_batch"] {
        assert!(text.contains(key), "{key}\n{text}");
    }
    let clients = Workload {
        clients: vec![4],
        think_kind: Some("heavy".into()),
        pool_order: Some("shared".into()),
        ..Workload::default()
    };
    assert!(simulate::run(quick(clients)).is_ok());
}

#[test]
fn workers_may_prepare_one_batch_while_they_run_another_at_certain_sizes() {
    let options = Workload {
        curve: Some("3+0.1b".into()),
        prepare: Some("0.5+0.06b".into()),
        contention: Some(1.2),
        sizes: vec![8, 1, 4],
        max_batch: Some(8),
        clients: vec![24],
        ..Workload::default()
    };
    let world = Study::new(options.clone(), None).expect("a workload").world;
    let stages = world.stages.expect("stages");
    assert_eq!((world.sizes, stages.slots, stages.contention), (vec![1, 4, 8], 3, 1.2));
    assert!(simulate::run(quick(options.clone())).is_ok());
    rejected(Workload { contention: Some(0.5), ..options.clone() }, "between 1 and 4");
    rejected(Workload { sizes: vec![0], ..options }, "--sizes must be between 1");
    rejected(Workload { slots: Some(2), ..Workload::default() }, "need --prepare");
}

#[test]
fn without_a_rate_the_load_is_swept() {
    let study = Study::new(Workload::default(), None).expect("defaults are a workload");
    assert!(matches!(study.load, StudyLoad::Open { rates, .. } if rates.len() > 10));
}

#[test]
fn nonsense_is_rejected_with_what_to_do() {
    let of = Workload::default;
    rejected(Workload { curve: Some("fast".into()), ..of() }, "5+0.2b");
    rejected(
        Workload { curve: Some("nowhere.csv".into()), ..of() },
        "there is no file nowhere.csv",
    );
    rejected(Workload { workers: Some(0), ..of() }, "--workers must be between 1");
    rejected(Workload { rate: vec![-1.0], ..of() }, "--rate must be above 0");
    rejected(Workload { arrivals: Some("poison".into()), ..of() }, "did you mean `poisson`?");
    rejected(Workload { slow_down: Some("2".into()), ..of() }, "1.5@10s");
    rejected(Workload { pools: Some(4), ..of() }, "need --pool SIZE");
    rejected(Workload { pool: Some(0), ..of() }, "--pool must be between 1");
    let order = Workload { pool: Some(8), pool_order: Some("lifo".into()), ..of() };
    rejected(order, "longest-free");
    let kind = Workload { clients: vec![2], think_kind: Some("long".into()), ..of() };
    rejected(kind, "fixed, exponential, heavy");
    rejected(Workload { lose_worker: Some("5s".into()), ..of() }, "add when it is back");
    rejected(Workload { lose_worker: Some("8s..5s".into()), ..of() }, "5s..8s");
    rejected(Workload { jitter: Some(2.0), ..of() }, "between 0 and 1");
    let policy = SimulateFlags { policy: vec!["torch".into()], ..quick(of()) };
    assert!(simulate::run(policy).expect_err("no policy").to_string().contains("window:MS"));
}

#[test]
fn a_curve_may_be_a_table_or_json() {
    let csv = curve_file::parse("size,ms\n1,5\n2,6\n").expect("csv");
    let json = curve_file::parse(
        r#"{"curve": [{"size": 2, "ms": 6, "samples": 9}, {"size": 1, "ms": 5}]}"#,
    );
    assert_eq!(csv, json.expect("json"));
    assert!(curve_file::parse(r#"{"curve": [{"size": 2}]}"#).expect_err("no ms").contains("no ms"));
}

fn plan_flags(curve: &str, rate: f64, p99: u64) -> PlanFlags {
    PlanFlags {
        curve: Some(curve.to_owned()),
        rate: Some(rate),
        p99: Millis(std::time::Duration::from_millis(p99)),
        share: 0.99,
        arrivals: "poisson".to_owned(),
        max_workers: 4,
        max_batch: None,
        sizes: Vec::new(),
        prepare: None,
        contention: None,
        trace: None,
        jitter: 0.0,
        requests: 1000,
        json: false,
        url: None,
        write: None,
        report: None,
        body: None,
        body_file: Vec::new(),
        header: Vec::new(),
        step: Span(std::time::Duration::from_secs(1)),
        management: None,
    }
}

fn planned(curve: &str, rate: f64, p99: u64) -> StudyReport {
    capacity::run(&plan_flags(curve, rate, p99), &Env::default()).expect("an answer")
}

#[test]
fn a_proposal_is_a_configuration_and_a_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let [write, report] = ["jitney.yaml", "plan.html"].map(|name| Some(dir.path().join(name)));
    let flags = PlanFlags { write, report, ..plan_flags("5+0.2b", 500.0, 100) };
    assert!(capacity::run(&flags, &Env::default()).expect("an answer").possible);
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("a file");
    let proposed = "workers: 1\nbatching:\n  max_batch_size: 8\n  max_latency_ms: 100\n";
    assert!(read("jitney.yaml").ends_with(proposed), "{}", read("jitney.yaml"));
    let page = read("plan.html");
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("p99, predicted") && page.contains(proposed), "{page}");
}

#[test]
fn a_plan_is_an_answer_in_words() {
    let found = planned("5+0.2b", 500.0, 100);
    assert!(found.possible);
    assert!(found.text.starts_with("1 worker with max_batch_size"), "{}", found.text);
}

#[test]
fn what_is_impossible_is_said_with_its_reason() {
    let slow = planned("200", 10.0, 100);
    assert!(!slow.possible && slow.text.contains("alone already takes 200.0 ms"), "{}", slow.text);
    let much = planned("20+20b", 10_000.0, 100);
    assert!(!much.possible && much.text.contains("at least"), "{}", much.text);
}
