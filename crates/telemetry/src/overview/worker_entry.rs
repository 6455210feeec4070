//! One worker of a model version in the overview.

use jitney_engine::WorkerView;
use serde::Serialize;
use serde_json::{Value, json};

use super::timestamp::rfc3339;
use super::worker_usage::WorkerUsages;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerOverview {
    id: u32,
    /// None for a worker that is a thread of the server.
    pid: Option<u32>,
    state: &'static str,
    started_at: String,
    /// None where it is not known, as for threads, and for the first two seconds.
    memory_bytes: Option<u64>,
    /// Percent of one processor.
    cpu_percent: Option<f64>,
    gpu: Option<u32>,
    gpu_memory_bytes: Option<u64>,
    /// How far it is with loading and warming up.
    progress: Option<Value>,
    restarts: u32,
}

impl WorkerOverview {
    pub(super) fn new(worker: &WorkerView, usages: &WorkerUsages) -> Self {
        let step = worker.progress.as_ref();
        let usage = worker.pid.and_then(|pid| usages.get(pid));
        Self {
            id: worker.id,
            pid: worker.pid,
            state: if worker.ready { "ready" } else { "loading" },
            started_at: rfc3339(worker.started),
            memory_bytes: usage.map(|usage| usage.memory),
            cpu_percent: usage.and_then(|usage| usage.cpu_percent),
            gpu: worker.gpu,
            gpu_memory_bytes: worker.gpu_memory,
            progress: step
                .map(|step| json!({ "done": step.done, "of": step.of, "what": step.what })),
            restarts: worker.restarts,
        }
    }
}
