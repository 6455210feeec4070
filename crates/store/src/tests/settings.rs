//! What a model's YAML says, to us and to its handler.

use jitney_settings::Values;
use jitney_settings::model::*;
use serde_json::{Value, json};

use super::{
    super::{Package, StoreError},
    Bench,
    archives::{zip, zip_of},
};

fn open(yaml: &str) -> Result<Package, StoreError> {
    let bench = Bench::new();
    let manifest = json!({"model": {"configFile": "model-config.yaml"}}).to_string();
    let members = [("MAR-INF/MANIFEST.json", manifest.as_str()), ("model-config.yaml", yaml)];
    let members = members.map(|(name, content)| (name.to_owned(), content.to_owned()));
    bench.put("m.mar", zip(&members));
    bench.open("m.mar")
}

fn typed(yaml: &str) -> Values {
    open(yaml).unwrap().settings
}

#[test]
fn every_setting_has_its_type() {
    let yaml = "
minWorkers: 1
maxWorkers: 4
batchSize: 8
maxBatchDelay: 250
responseTimeout: 12
startupTimeout: 13
deviceType: GPU
deviceIds: [0, 2]
parallelType: pptp
torchrun: {nproc-per-node: 2}
maxRetryTimeoutInSec: 9
clientTimeoutInMills: 800
jobQueueSize: 3
useJobTicket: true
sequenceBatching: yes
sequenceMaxIdleMSec: 100
sequenceTimeoutMSec: 200
maxSequenceJobQueueSize: 5
maxNumSequence: 6
continuousBatching: false
asyncCommunication: True
useVenv: off
batching: {policy: adaptive, max_batch_size: 32, max_latency_ms: 2.5, max_batch_delay: 10,
           cost: tokens, max_cost: 4096, sample_cost: 128, tenants: {gold: 4, free: 1}, mix_origins: true, max_concurrent_batches: 3,
           sizes: [1, 4, 32], lengths: [64, 512]}
gpu_memory_fraction: 0.5
jitney: {gpu_turns: true, cache: {ttl: 5}, min_workers: 0, cpus: 0-3}
sequenceStartRequired: true
ray: {num_cpus: 0.5, num_gpus: 1, resources: {big: 2}, ship: false}
";
    let values = typed(yaml);
    for (setting, expected) in [
        (&WORKERS, "1"),
        (&MIN_WORKERS, "0"),
        (&MAX_WORKERS, "4"),
        (&MAX_BATCH_SIZE, "32"),
        (&MAX_BATCH_DELAY, "10"),
        (&RESPONSE_TIMEOUT, "12"),
        (&STARTUP_TIMEOUT, "13"),
        (&DEVICE_TYPE, "gpu"),
        (&DEVICE_IDS, "0,2"),
        (&CPUS, "0-3"),
        (&PARALLEL_TYPE, "pptp"),
        (&PARALLEL_LEVEL, "2"),
        (&MAX_RETRY_TIMEOUT, "9"),
        (&CLIENT_TIMEOUT, "800"),
        (&QUEUE, "3"),
        (&USE_JOB_TICKET, "true"),
        (&SEQUENCE_BATCHING, "true"),
        (&SEQUENCE_MAX_IDLE, "100"),
        (&SEQUENCE_TIMEOUT, "200"),
        (&MAX_SEQUENCE_QUEUE, "5"),
        (&MAX_SEQUENCES, "6"),
        (&CONTINUOUS_BATCHING, "false"),
        (&ASYNC_COMMUNICATION, "true"),
        (&USE_VENV, "false"),
        (&POLICY, "adaptive"),
        (&MAX_LATENCY_MS, "2.5"),
        (&COST, "tokens"),
        (&MAX_COST, "4096"),
        (&SAMPLE_COST, "128"),
        (&TENANTS, "gold:4,free:1"),
        (&MIX_ORIGINS, "true"),
        (&MAX_CONCURRENT_BATCHES, "3"),
        (&SIZES, "1,4,32"),
        (&LENGTHS, "64,512"),
        (&GPU_MEMORY_FRACTION, "0.5"),
        (&GPU_TURNS, "true"),
        (&CACHE, r#"{"ttl":5}"#),
        (&SEQUENCE_START_REQUIRED, "true"),
        (&NUM_CPUS, "0.5"),
        (&NUM_GPUS, "1"),
        (&RESOURCES, "big:2"),
        (&SHIP, "false"),
    ] {
        assert_eq!(values.show(setting).as_deref(), Some(expected), "{}", setting.name);
    }
    let unset: Vec<_> = SETTINGS.iter().filter(|it| !values.has(it)).map(|it| it.name).collect();
    let own = [
        "idle",
        "load",
        "keep",
        "traffic",
        "startup_wait",
        "isolation",
        "memory_limit",
        "max_requests_per_worker",
    ];
    let onnx = ["onnx_engine", "onnx_library", "onnx_threads", "onnx_providers"];
    let files = ["trust", "task"];
    assert_eq!(unset, [&own[..], &onnx, &files].concat(), "the operator's alone");
}

#[test]
fn the_handler_sees_every_key_in_its_order() {
    let package = open("zeta: 1\nhandler: {greeting: hi, layers: [1, 2]}\nalpha: null\n").unwrap();
    let expected =
        json!({"zeta": 1, "handler": {"greeting": "hi", "layers": [1, 2]}, "alpha": null});
    assert_eq!(package.yaml_json, expected);
    let keys = package.yaml_json.as_object().unwrap().keys().collect::<Vec<_>>();
    assert_eq!(keys, ["zeta", "handler", "alpha"]);
}

#[test]
fn yaml_is_read_as_python_reads_it() {
    for (yaml, expected) in [
        ("a: yes", json!({"a": true})),
        ("a: Off", json!({"a": false})),
        ("a: 010", json!({"a": 8})),
        ("a: 0x10", json!({"a": 16})),
        ("a: 1\na: 2", json!({"a": 2})),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}})),
        ("a: ~", json!({"a": null})),
        ("a: .inf", json!({"a": ".inf"})),
        ("1: one\ntrue: yes", json!({"1": "one", "true": true})),
        ("a: 2024-01-01", json!({"a": "2024-01-01"})),
        ("a: 1.0", json!({"a": 1.0})),
        ("a: \"1\"", json!({"a": "1"})),
        ("a: |\n  two\n  lines\n", json!({"a": "two\nlines\n"})),
    ] {
        assert_eq!(open(yaml).unwrap().yaml_json, expected, "{yaml}");
    }
    let comments = "# a licence of many lines\n".repeat(100) + "a: 1";
    assert_eq!(open(&comments).unwrap().yaml_json, json!({"a": 1}));
}

#[test]
fn an_empty_document_says_nothing() {
    for yaml in ["", "# nothing\n", "---\n", "{}", "\u{feff}"] {
        let package = open(yaml).unwrap();
        assert_eq!(
            (package.settings, package.yaml_json),
            (Values::default(), json!({})),
            "{yaml:?}"
        );
    }
}

#[test]
fn broken_documents_are_rejected_with_their_line() {
    let error = open("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
    assert!(matches!(error, StoreError::InvalidConfig { .. }), "{error:?}");
    assert!(error.to_string().contains("line"), "{error}");
    for yaml in ["[1, 2]", "just text", "a: b: c", "a: *missing"] {
        let error = open(yaml).map(|package| package.yaml_json);
        assert!(matches!(error, Err(StoreError::InvalidConfig { .. })), "{yaml}: {error:?}");
    }
}

#[test]
fn a_document_that_grows_without_end_is_rejected() {
    let mut yaml = "a0: &a0 [x, x]\n".to_owned();
    for level in 1..40 {
        yaml += &format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1);
    }
    assert!(matches!(open(&yaml), Err(StoreError::InvalidConfig { .. })));
}

#[test]
fn a_config_file_that_is_named_must_be_there() {
    let bench = Bench::new();
    let manifest = r#"{"model": {"configFile": "model-config.yaml"}}"#;
    let error = bench.rejects("m.mar", zip_of("MAR-INF/MANIFEST.json", manifest));
    assert!(error.to_string().starts_with("Invalid model config: cannot read model-config.yaml"));
    bench.put("n.mar", zip_of("model-config.yaml", "batchSize: 3"));
    assert_eq!(bench.open("n.mar").unwrap().yaml_json, Value::Object(serde_json::Map::new()));
}
