//! One worker of a model version in the overview.

use jitney_engine::WorkerView;
use serde::Serialize;
use serde_json::{Value, json};

use super::timestamp::rfc3339;
use crate::metrics::Meter;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerOverview {
    id: u32,
    /// None for a worker that is a thread of the server.
    pid: Option<u32>,
    state: &'static str,
    started_at: String,
    /// None where it is not known, as for threads.
    memory_bytes: Option<u64>,
    cpu_percent: Option<f64>,
    gpu: Option<u32>,
    gpu_memory_bytes: Option<u64>,
    /// How far it is with loading and warming up.
    progress: Option<Value>,
    restarts: u32,
}

impl WorkerOverview {
    pub(super) fn new(worker: &WorkerView, meter: &Meter) -> Self {
        let step = worker.progress.as_ref();
        Self {
            id: worker.id,
            pid: worker.pid,
            state: if worker.ready { "ready" } else { "loading" },
            started_at: rfc3339(worker.started),
            memory_bytes: memory_of(worker, meter),
            cpu_percent: None,
            gpu: worker.gpu,
            gpu_memory_bytes: worker.gpu_memory,
            progress: step
                .map(|step| json!({ "done": step.done, "of": step.of, "what": step.what })),
            restarts: worker.restarts,
        }
    }
}

/// Bytes of memory that a worker's process uses.
pub(super) fn memory_of(worker: &WorkerView, meter: &Meter) -> Option<u64> {
    worker.pid.and_then(|pid| meter.memory(pid))
}
