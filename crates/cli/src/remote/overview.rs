//! The overview document of a running server, as `GET /overview` sends it. What a server leaves out is
//! empty here, so that this program can read older and newer servers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a document; what is null counts as left out.
pub fn read<T: DeserializeOwned>(mut document: Value) -> Result<T, serde_json::Error> {
    drop_nulls(&mut document);
    serde_json::from_value(document)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The document.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteOverview {
    /// Unix milliseconds.
    pub time: f64,
    /// The server itself.
    pub server: RemoteServer,
    /// The machine; none where it is not sampled.
    pub machine: Option<RemoteMachine>,
    /// Its GPUs.
    pub gpus: Vec<RemoteGpu>,
    /// Every version of every model.
    pub models: Vec<RemoteModel>,
    /// The shared list that models come from, if there is one.
    pub registrations: Option<RemoteRegistrations>,
    /// The newest sample.
    pub sample: RemoteSample,
}

/// The shared list that models come from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteRegistrations {
    /// Where it is.
    pub source: String,
    /// The content that is in force.
    pub revision: Option<String>,
    /// Why it could not be read, or what is wrong with it.
    pub error: Option<String>,
    /// Its models.
    pub models: Vec<RemoteListedModel>,
}

/// A model of the shared list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemoteListedModel {
    /// Its name.
    pub name: String,
    /// `loaded`, `loading` or `failed`.
    pub state: String,
    /// Why it could not be loaded.
    pub reason: Option<String>,
}

/// The server itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteServer {
    /// Of the program.
    pub version: String,
    /// `jitney` or `torchserve`.
    pub dialect: String,
    /// Since its start.
    pub uptime_seconds: f64,
    /// Its process.
    pub pid: u32,
    /// Its machine.
    pub hostname: String,
    /// `ready`, `loading`, `degraded` or `draining`.
    pub state: String,
    /// The state in a sentence.
    pub state_text: String,
    /// Held by requests.
    pub request_memory_bytes: u64,
    /// The most that requests may hold.
    pub request_memory_limit_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// Resident memory of the server without its workers.
    pub memory_bytes: u64,
    /// What it logs.
    pub log_level: String,
}

impl RemoteServer {
    /// Whether every model that was asked for answers.
    pub fn is_ready(&self) -> bool {
        self.state == "ready"
    }
}

/// The machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteMachine {
    /// Of all processors together.
    pub cpu_percent: f64,
    /// In use.
    pub memory_used_bytes: u64,
    /// All there is.
    pub memory_total_bytes: u64,
}

/// A GPU.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteGpu {
    /// Its number.
    pub id: u32,
    /// How busy it is.
    pub utilization_percent: Option<f64>,
    /// In use.
    pub memory_used_bytes: Option<f64>,
    /// All there is.
    pub memory_total_bytes: Option<f64>,
}

/// A version of a model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteModel {
    /// The model.
    pub name: String,
    /// The version.
    pub version: String,
    /// Whether requests that name no version get it.
    pub is_default: bool,
    /// `python`, `onnx`, `definition` or `workflow-function`.
    pub kind: String,
    /// `ready`, `loading`, `failed`, `degraded`, `noWorkers` or `ending`.
    pub state: String,
    /// The state in a sentence.
    pub state_text: String,
    /// The last error of a worker.
    pub last_error: Option<String>,
    /// When it was.
    pub last_error_time: Option<String>,
    /// How the last worker that exited did so.
    pub last_exit: Option<String>,
    /// When batches are sent.
    pub policy: String,
    /// Most items in a batch.
    pub max_batch_size: u64,
    /// The latency target.
    pub max_latency_ms: Option<f64>,
    /// The window.
    pub max_batch_delay_ms: Option<f64>,
    /// Settings that may change while it runs.
    pub live_settings: Vec<RemoteSetting>,
    /// Fewest workers.
    pub workers_min: u32,
    /// Most workers.
    pub workers_max: u32,
    /// Since the registration.
    pub restarts: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// Worker exits by reason.
    pub exits: BTreeMap<String, u64>,
    /// How long the last load took.
    pub load_seconds: Option<f64>,
    /// Its workers.
    pub workers: Vec<RemoteWorker>,
    /// Requests in the queue.
    pub waiting: u64,
    /// The most that may wait.
    pub queue_max: u64,
    /// Requests that workers have.
    pub running: u64,
    /// What it counted.
    pub totals: RemoteTotals,
    /// By reason.
    pub rejections: BTreeMap<String, u64>,
    /// Batches by reason.
    pub dispatches: BTreeMap<String, u64>,
    /// How many batches had which size.
    pub batch_sizes: Vec<RemoteBatchSize>,
    /// What batches of a size take.
    pub curve: Vec<RemoteCurvePoint>,
}

impl RemoteModel {
    /// `name/version`, which is also its key in samples.
    pub fn key(&self) -> String {
        format!("{}/{}", self.name, self.version)
    }

    /// Workers that answer.
    pub fn workers_ready(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state == "ready").count()
    }

    /// Resident memory of all its workers.
    pub fn memory_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.memory_bytes.unwrap_or(0)).sum()
    }
}

/// A setting with its value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemoteSetting {
    /// The setting.
    pub name: String,
    /// As it would be typed.
    pub value: Option<String>,
    /// What it does.
    pub about: String,
}

/// A worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteWorker {
    /// Its number.
    pub id: u64,
    /// Its process.
    pub pid: Option<u32>,
    /// `ready` or `loading`.
    pub state: String,
    /// When it was started.
    pub started_at: Option<String>,
    /// Resident memory.
    pub memory_bytes: Option<u64>,
    /// Of one processor.
    pub cpu_percent: Option<f64>,
    /// The GPU it was given.
    pub gpu: Option<u32>,
    /// What it has of the GPU's memory.
    pub gpu_memory_bytes: Option<u64>,
    /// How far it is with loading.
    pub progress: Option<RemoteProgress>,
    /// How often it was started again.
    pub restarts: u64,
}

/// How far a worker is with loading and warming up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemoteProgress {
    /// Steps that are done.
    pub done: u64,
    /// All steps.
    pub of: u64,
    /// What is being done.
    pub what: String,
}

impl std::fmt::Display for RemoteProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.what, self.done, self.of)
    }
}

/// Counts since the registration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteTotals {
    /// All requests.
    pub requests: u64,
    /// Answered.
    pub answered: u64,
    /// Rejected.
    pub rejected: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled by the client.
    pub cancelled: u64,
    /// Run again after a failure.
    pub retried: u64,
    /// Answered after the objective or the deadline.
    pub late: u64,
    /// Batches.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Batches that failed.
    pub failed_batches: u64,
}

/// How many batches had a size.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemoteBatchSize {
    /// In items.
    pub size: u64,
    /// How many.
    pub batches: u64,
}

/// What a batch of a size takes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteCurvePoint {
    /// In items.
    pub size: u64,
    /// Usually.
    pub ms: f64,
    /// What is planned with.
    pub planned_ms: f64,
    /// How often it was measured.
    pub samples: u64,
}

/// Totals of all models at one time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemoteSample {
    /// Unix milliseconds.
    pub time: f64,
    /// By `name/version`.
    pub models: BTreeMap<String, RemoteModelSample>,
}

/// Totals of one version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteModelSample {
    /// All requests.
    pub requests: u64,
    /// Answered.
    pub answered: u64,
    /// Answered too late.
    pub late: u64,
    /// Rejected.
    pub rejected: u64,
    /// Failed.
    pub failed: u64,
    /// Batches.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Seconds in the queue, all requests together.
    pub queue_seconds_sum: f64,
    /// Of the last interval.
    pub p50_ms: Option<f64>,
    /// Of the last interval.
    pub p99_ms: Option<f64>,
}

/// The samples that a stream begins with.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteHistory {
    /// Oldest first.
    pub samples: Vec<RemoteSample>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_null_or_unknown_or_left_out_is_no_error() {
        let document = json!({
            "server": {"state": "ready", "logLevel": null, "memoryBytes": null, "news": [1]},
            "machine": {"cpuPercent": null, "memoryUsedBytes": 1, "memoryTotalBytes": 2},
            "sample": null,
            "models": [{"name": "m", "version": "1", "workers": [
                {"id": 9000, "state": "loading", "progress": {"done": 1, "of": 4, "what": "warming up"}},
            ]}],
        });
        let overview: RemoteOverview = read(document).expect("reads");
        assert!(overview.server.is_ready());
        let worker = &overview.models[0].workers[0];
        assert_eq!(
            worker.progress.as_ref().map(ToString::to_string).as_deref(),
            Some("warming up 1/4")
        );
        assert!(read::<RemoteOverview>(json!("text")).is_err());
    }
}
