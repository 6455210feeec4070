//! What a model's YAML says, to us and to its handler.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    super::{
        BatchingYaml, Cost, DeviceType, ModelYaml, Package, ParallelType, PolicyName, StoreError,
    },
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

fn typed(yaml: &str) -> ModelYaml {
    open(yaml).unwrap().yaml
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
           cost: tokens, max_cost: 4096, sample_cost: 128, tenants: {gold: 4, free: 1}, mix_origins: true, max_concurrent_batches: 3}
";
    let expected = ModelYaml {
        min_workers: Some(1),
        max_workers: Some(4),
        batch_size: Some(8),
        max_batch_delay: Some(Duration::from_millis(250)),
        response_timeout: Some(Duration::from_secs(12)),
        startup_timeout: Some(Duration::from_secs(13)),
        device_type: Some(DeviceType::Gpu),
        device_ids: Some(vec![0, 2]),
        parallel_type: Some(ParallelType::PipelineTensor),
        parallel_level: Some(2),
        max_retry_timeout: Some(Duration::from_secs(9)),
        client_timeout: Some(Duration::from_millis(800)),
        job_queue_size: Some(3),
        use_job_ticket: Some(true),
        sequence_batching: Some(true),
        sequence_max_idle: Some(Duration::from_millis(100)),
        sequence_timeout: Some(Duration::from_millis(200)),
        max_sequence_job_queue_size: Some(5),
        max_num_sequence: Some(6),
        continuous_batching: Some(false),
        async_communication: Some(true),
        use_venv: Some(false),
        batching: BatchingYaml {
            policy: Some(PolicyName::Adaptive),
            max_batch_size: Some(32),
            max_latency: Some(Duration::from_micros(2500)),
            max_batch_delay: Some(Duration::from_millis(10)),
            cost: Some(Cost::Tokens),
            max_cost: Some(4096),
            sample_cost: Some(128),
            tenants: Some(vec![("gold".to_owned(), 4), ("free".to_owned(), 1)]),
            mix_origins: Some(true),
            max_concurrent_batches: Some(3),
        },
    };
    assert_eq!(typed(yaml), expected);
}

#[test]
fn wrong_types_are_as_good_as_absent() {
    for yaml in [
        "batchSize: many",
        "batchSize: '5'",
        "batchSize: 5.0",
        "batchSize: 99999999999",
        "batchSize: [5]",
        "batchSize:",
        "useJobTicket: 1",
        "deviceType: tpu",
        "deviceIds: [0, -1]",
        "deviceIds: 0",
        "parallelType: 3",
        "responseTimeout: 0",
        "startupTimeout: -1",
        "clientTimeoutInMills: -1",
        "jobQueueSize: 0",
        "maxBatchDelay: 0",
        "maxBatchDelay: -5",
        "torchrun: 4",
        "batching: fast",
        "batching: {policy: eager, max_batch_size: lots, max_latency_ms: 0, colour: red}",
        "batching: {cost: love, max_cost: 0, tenants: [gold]}",
        "batching: {max_latency_ms: 1e300, cost: 3, mix_origins: maybe}",
    ] {
        assert_eq!(typed(yaml), ModelYaml::default(), "{yaml}");
    }
}

#[test]
fn some_settings_are_raised_to_their_bounds() {
    let yaml = typed("{minWorkers: 0, maxWorkers: -2, batchSize: -1, maxNumSequence: 0}");
    assert_eq!((yaml.min_workers, yaml.max_workers), (Some(1), Some(0)));
    assert_eq!((yaml.batch_size, yaml.max_num_sequence), (Some(1), Some(1)));
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
            (package.yaml, package.yaml_json),
            (ModelYaml::default(), json!({})),
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
