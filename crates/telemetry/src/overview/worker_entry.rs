//! One worker of a model version in the overview, and what its process uses, as the sampler saw it last.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use jitney_engine::{CollectorPauses, WorkerView};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::timestamp::rfc3339;
use crate::metrics::{Meter, ProcessUsage};

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
    /// Percent of the time in which it was ready to run and others had the processors, its threads together.
    pub cpu_wait_percent: Option<f64>,
    /// The GPU it was given.
    pub gpu: Option<u32>,
    /// The processors that it is kept to, such as `0-3,8`.
    pub cpus: Option<String>,
    /// What it has of the GPU's memory.
    pub gpu_memory_bytes: Option<u64>,
    /// How far it is with loading and warming up.
    pub progress: Option<WorkerProgress>,
    /// How often it was started again.
    pub restarts: u32,
    /// What its garbage collector has done since the model was loaded; none before a worker of Python says so.
    pub garbage_collection: Option<CollectorOverview>,
}

/// The runs of a worker's garbage collector.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CollectorOverview {
    /// How many there were.
    pub runs: u64,
    /// How long all of them have paused the worker.
    pub seconds: f64,
    /// The longest of them.
    pub longest_seconds: f64,
}

impl From<CollectorPauses> for CollectorOverview {
    fn from(pauses: CollectorPauses) -> Self {
        let CollectorPauses { runs, total, longest } = pauses;
        Self { runs, seconds: total.as_secs_f64(), longest_seconds: longest.as_secs_f64() }
    }
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
            cpu_wait_percent: usage.and_then(|usage| usage.wait_percent),
            gpu: worker.gpu,
            cpus: worker.cpus.as_ref().map(ToString::to_string),
            gpu_memory_bytes: worker.gpu_memory,
            progress: worker.progress.as_ref().map(|step| WorkerProgress {
                done: step.done,
                of: step.of,
                what: step.what.clone(),
            }),
            restarts: worker.restarts,
            garbage_collection: worker.pauses.map(Into::into),
        }
    }
}

/// All workers that are processes, by their ids.
#[derive(Debug, Default)]
pub(super) struct WorkerUsages {
    by_pid: HashMap<u32, WorkerUsage>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct WorkerUsage {
    memory: u64,
    /// Percent of one processor since the look before, if there was one.
    cpu_percent: Option<f64>,
    /// The same for waiting.
    wait_percent: Option<f64>,
    cpu: Duration,
    waited: Option<Duration>,
    at: Instant,
}

impl WorkerUsages {
    /// Looks at a worker, and compares it with what was seen of it `before`; returns its memory.
    pub(super) fn look(&mut self, pid: u32, before: &Self, meter: &Meter) -> Option<u64> {
        let (used, waited) = (meter.process(pid)?, meter.process_waited(pid));
        let usage = WorkerUsage::new(used, waited, before.get(pid), Instant::now());
        self.by_pid.insert(pid, usage);
        Some(usage.memory)
    }

    /// Percent of one processor that a process used, if it was looked at twice.
    pub(super) fn cpu_percent(&self, pid: u32) -> Option<f64> {
        self.get(pid)?.cpu_percent
    }

    fn get(&self, pid: u32) -> Option<&WorkerUsage> {
        self.by_pid.get(&pid)
    }
}

impl WorkerUsage {
    fn new(
        now: ProcessUsage,
        waited: Option<Duration>,
        before: Option<&Self>,
        at: Instant,
    ) -> Self {
        let ProcessUsage { memory, cpu } = now;
        // A process that has another's id has used less.
        let percent = |now: Duration, then: Duration, since: Instant| {
            let took = (at - since).as_secs_f64().max(1e-3);
            let share = now.checked_sub(then)?.as_secs_f64() / took;
            Some((share * 1e3).round() / 10.0)
        };
        let cpu_percent = before.and_then(|before| percent(cpu, before.cpu, before.at));
        let wait_percent = before.and_then(|before| percent(waited?, before.waited?, before.at));
        Self { memory, cpu_percent, wait_percent, cpu, waited, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_time_between_two_looks() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let used = |cpu| ProcessUsage { memory: 7, cpu };
        let first = WorkerUsage::new(used(second), Some(second), None, start);
        assert_eq!((first.memory, first.cpu_percent), (7, None));
        let (waited, then) = (Some(second * 3), start + 2 * second);
        let next = WorkerUsage::new(used(second * 2), waited, Some(&first), then);
        assert_eq!((next.cpu_percent, next.wait_percent), (Some(50.0), Some(100.0)));
        let other = WorkerUsage::new(used(Duration::ZERO), None, Some(&next), start + 4 * second);
        assert_eq!((other.cpu_percent, other.wait_percent), (None, None));
    }
}
