//! One worker of a model version in the overview.

use std::fmt;

use jitney_engine::WorkerView;
use serde::{Deserialize, Serialize};

use super::timestamp::rfc3339;
use super::worker_usage::WorkerUsages;

/// A worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct WorkerOverview {
    /// Its number.
    pub id: u32,
    /// None for a worker that is a thread of the server.
    pub pid: Option<u32>,
    /// `ready` or `loading`.
    pub state: String,
    /// When it was started.
    pub started_at: String,
    /// None where it is not known, as for threads, and for the first two seconds.
    pub memory_bytes: Option<u64>,
    /// Percent of one processor.
    pub cpu_percent: Option<f64>,
    /// The GPU it was given.
    pub gpu: Option<u32>,
    /// What it has of the GPU's memory.
    pub gpu_memory_bytes: Option<u64>,
    /// How far it is with loading and warming up.
    pub progress: Option<WorkerProgress>,
    /// How often it was started again.
    pub restarts: u32,
}

/// How far a worker is with loading and warming up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct WorkerProgress {
    /// Steps that are done.
    pub done: u32,
    /// All steps; 0 where that is unknown.
    pub of: u32,
    /// What is being done.
    pub what: String,
}

impl fmt::Display for WorkerProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.what, self.done, self.of)
    }
}

impl WorkerOverview {
    pub(super) fn new(worker: &WorkerView, usages: &WorkerUsages) -> Self {
        let usage = worker.pid.and_then(|pid| usages.get(pid));
        Self {
            id: worker.id,
            pid: worker.pid,
            state: if worker.ready { "ready" } else { "loading" }.to_owned(),
            started_at: rfc3339(worker.started),
            memory_bytes: usage.map(|usage| usage.memory),
            cpu_percent: usage.and_then(|usage| usage.cpu_percent),
            gpu: worker.gpu,
            gpu_memory_bytes: worker.gpu_memory,
            progress: worker.progress.as_ref().map(|step| WorkerProgress {
                done: step.done,
                of: step.of,
                what: step.what.clone(),
            }),
            restarts: worker.restarts,
        }
    }
}
