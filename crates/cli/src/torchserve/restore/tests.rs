//! Snapshots out and back in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitney_settings::model::*;
use serde_json::json;

use super::*;
use crate::env::Env;
use crate::flags::torchserve::TorchserveFlags;
use crate::snapshot::{Moment, Snapshots, newest};
use crate::torchserve::{VERSION, properties, sources};

const FAST: SnapshotEndpoint =
    SnapshotEndpoint { max_batch_size: Some(2), max_latency_ms: Some(0) };

const SOURCE: SettingSource = SettingSource::Snapshot(String::new());

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_735_689_600_123)
}

fn values(text: &str) -> Values {
    let flags = TorchserveFlags { disable_token_auth: true, ..Default::default() };
    let read = properties::parse(text.as_bytes(), &Env::default()).expect("reads");
    sources::read(read, &flags, &Env::default()).expect("resolves").0
}

fn kept() -> Models {
    let settings = json!({
        "minWorkers": 2, "maxWorkers": 4, "batchSize": 3, "maxBatchDelay": 70, "responseTimeout": 55,
        "startupTimeout": 66, "policy": "adaptive", "maxLatencyMs": 40, "jobQueueSize": 9,
        "tenants": {"gold": 4}, "sizes": [1, 3],
    });
    let version = SnapshotVersion {
        default_version: true,
        mar_name: "kept.mar".to_owned(),
        settings: settings.as_object().expect("an object").clone(),
        runtime_type: "python".to_owned(),
        endpoints: [("fast".to_owned(), FAST)].into(),
        sha256: Some("ab".repeat(32)),
        ..SnapshotVersion::default()
    };
    Models::from([("kept".to_owned(), [("1.0".to_owned(), version)].into())])
}

#[test]
fn a_snapshot_is_read_back_as_it_was_written() {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("kept.mar"), "").expect("file");
    let values = values("job_queue_size=7\ncors_allowed_origin=https\\://x\n");
    let more = [
        ("inference_address", "http://127.0.0.1:8080".to_owned()),
        ("version", VERSION.to_owned()),
    ];
    let snapshots = Snapshots::new(dir.path(), dir.path(), &values, &more);
    let path = snapshots.write(&kept(), Moment::Change, now()).expect("writes");
    assert!(path.ends_with("config/20250101000000123-snapshot.cfg"), "{}", path.display());

    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.contains("\ncors_allowed_origin=https\\://x\n"), "{text}");
    assert!(text.contains("\\n  \"modelCount\"\\: 1,\\n"), "{text}");
    let read = properties::read(&path, &Env::default()).expect("reads");
    let value = |key: &str| read.iter().find(|one| one.key == key).map(|one| one.value.as_str());
    assert_eq!(value("inference_address"), Some("http://127.0.0.1:8080"));
    assert_eq!((value("job_queue_size"), value("version")), (Some("7"), Some("0.12.0")));
    assert_eq!(value("disable_token_authorization"), None, "a flag is given each time anew");

    let found = startups(value(KEY).expect("models"), dir.path(), &SOURCE).expect("restores");
    let [model] = &found[..] else { panic!("{found:?}") };
    let options = model.options();
    assert_eq!((options.url.as_str(), options.model_name.as_deref()), ("kept.mar", Some("kept")));
    let shown = |setting| model.settings.show(setting).unwrap_or_default();
    assert_eq!([shown(&WORKERS), shown(&MAX_WORKERS)], ["2", "4"]);
    assert_eq!([shown(&MAX_BATCH_SIZE), shown(&MAX_BATCH_DELAY)], ["3", "70"]);
    assert_eq!([shown(&RESPONSE_TIMEOUT), shown(&STARTUP_TIMEOUT)], ["55", "66"]);
    assert_eq!([shown(&MAX_LATENCY_MS), shown(&QUEUE)], ["40", "9"]);
    assert_eq!([shown(&POLICY), shown(&TENANTS), shown(&SIZES)], ["adaptive", "gold:4", "1,3"]);
    let fast = options.endpoints["fast"];
    assert_eq!((fast.batch_size, fast.max_latency_ms), (Some(2), Some(0)));
    assert_eq!(options.sha256.map(|sum| sum.to_string()), Some("ab".repeat(32)));
    assert!(model.restored && model.default);
    assert_eq!(options.runtime.as_deref(), Some("python"));
}

#[test]
fn files_of_torchserve_and_of_older_versions_are_understood() {
    let store = tempfile::tempdir().expect("directory");
    std::fs::write(store.path().join("m.mar"), "").expect("file");
    let text = r#"{"name":"x.cfg","modelCount":1,"created":1,"models":{"m":{"2.0":
        {"defaultVersion":false,"marName":"m.mar","minWorkers":1,"batchSize":-1,"added":"later"}}}}"#;
    let found = startups(text, store.path(), &SOURCE).expect("restores");
    assert_eq!(found[0].version.as_deref(), Some("2.0"));
    let one = Values::default().with(&WORKERS, 1_u32, SOURCE);
    assert_eq!(found[0].settings, one, "nothing else is set");
    let at_once = text.replace("\"batchSize\":-1", "\"maxBatchDelay\":0");
    let found = startups(&at_once, store.path(), &SOURCE).expect("restores");
    let delay = found[0].settings.read(&MAX_BATCH_DELAY);
    assert_eq!((delay, found[0].default), (Some(Duration::ZERO), false), "zero is a delay");
}

#[test]
fn an_archive_that_is_gone_stops_the_start() {
    let store = tempfile::tempdir().expect("directory");
    let text = r#"{"models":{"m":{"1.0":{"marName":"m.mar"}}}}"#;
    let failure = startups(text, store.path(), &SOURCE).expect_err("refused");
    assert!(failure.message.contains("m.mar of model m is not in the model store"), "{failure}");
    assert!(startups("{\"models\": 7}", store.path(), &SOURCE).is_err());
}

#[test]
fn the_newest_file_counts_and_others_are_left_alone() {
    let logs = tempfile::tempdir().expect("directory");
    assert_eq!(newest(logs.path()), None);
    let config = logs.path().join("config");
    std::fs::create_dir(&config).expect("directory");
    for (name, age) in [("b.cfg", 20), ("a.cfg", 10), ("c.txt", 0), (".d.cfg", 0)] {
        let file = std::fs::File::create(config.join(name)).expect("file");
        file.set_modified(now() - Duration::from_secs(age)).expect("time");
    }
    assert_eq!(newest(logs.path()), Some(config.join("a.cfg")));
}
