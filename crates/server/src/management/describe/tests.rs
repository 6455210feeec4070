//! A description, field by field.

use std::time::{Duration, SystemTime};

use jitney_engine::Counters;
use jitney_engine::settings::PolicyName;

use super::*;

fn settings() -> ModelSettings {
    ModelSettings {
        batch_size: 1,
        batch_delay: Duration::from_millis(100),
        policy: PolicyName::Opportunistic,
        queue_max: 100,
        isolate: true,
        slots: 1,
        workers_min: 1,
        workers_max: 1,
        response_timeout: Duration::from_secs(120),
        startup_timeout: Duration::from_secs(120),
        retry_window: Duration::from_secs(300),
        runtime: "python".to_owned(),
        handler: "handler.py".to_owned(),
        ..ModelSettings::default()
    }
}

fn status() -> Status {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_600);
    let worker = WorkerView {
        id: 9000,
        started,
        ready: true,
        pid: Some(4242),
        memory: 0,
        gpu: None,
        cpus: None,
        progress: None,
        graphs: None,
        gpu_memory: None,
        pauses: None,
        restarts: 0,
    };
    let counters = Counters::default();
    Status {
        workers: vec![worker],
        workers_min: 1,
        workers_max: 1,
        capacity: None,
        waiting: 3,
        queue_max: 100,
        counters,
        incidents: IncidentReport::default(),
    }
}

const NAME: DescribedModel<'_> =
    DescribedModel { model: "noop", version: "1.11", url: "noop.mar", at_startup: false };

#[test]
fn a_description_has_torchserves_fields_in_torchserves_order() {
    let description = Description::from_parts(&NAME, &settings(), &status());
    let expected = concat!(
        r#"{"modelName":"noop","modelVersion":"1.11","modelUrl":"noop.mar","runtime":"python","#,
        r#""minWorkers":1,"maxWorkers":1,"batchSize":1,"maxBatchDelay":100,"#,
        r#""responseTimeout":120,"startupTimeout":120,"maxRetryTimeoutInSec":300,"#,
        r#""clientTimeoutInMills":0,"parallelType":"","parallelLevel":0,"deviceType":"cpu","#,
        r#""continuousBatching":false,"useJobTicket":false,"useVenv":false,"stateful":false,"#,
        r#""sequenceMaxIdleMSec":0,"sequenceTimeoutMSec":0,"maxNumSequence":0,"#,
        r#""maxSequenceJobQueueSize":0,"loadedAtStartup":false,"#,
        r#""workers":[{"id":"9000","startTime":"2025-01-01T00:00:00.000Z","status":"READY","#,
        r#""memoryUsage":0,"pid":4242,"gpu":false,"gpuUsage":"N/A"}],"#,
        r#""jobQueueStatus":{"remainingCapacity":97,"pendingRequests":3}}"#,
    );
    assert_eq!(serde_json::to_string(&description).unwrap(), expected);
}

#[test]
fn absent_values_are_left_out_and_present_ones_shown() {
    let mut settings = settings();
    settings.declared.device_ids = Some(vec![0, 2]);
    let mut description = Description::from_parts(&NAME, &settings, &status());
    description.customized_metadata = serde_json::from_str(r#"{"purpose": "exam"}"#).ok();
    let json = serde_json::to_value(&description).unwrap();
    assert_eq!(json["deviceIds"], serde_json::json!([0, 2]));
    assert_eq!(json["customizedMetadata"]["purpose"], "exam");
}
