//! All model versions at one moment, in few numbers: totals, of which clients make rates, and the quantiles
//! of the latency since the sample before.

use std::collections::BTreeMap;

use jitney_engine::{Measures, Status};
use serde::{Deserialize, Serialize};

use super::quantile::Quantiles;
use crate::model_facts::counted;

/// One sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct OverviewSample {
    /// Milliseconds of Unix time.
    pub time: u64,
    /// By `name/version`.
    pub models: BTreeMap<String, ModelSample>,
}

/// One model version in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelSample {
    /// All requests.
    pub requests: u64,
    /// Answered.
    pub answered: u64,
    /// Answered after its objective or deadline.
    pub late: u64,
    /// Rejected.
    pub rejected: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled by the client.
    pub cancelled: u64,
    /// Batches.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Requests in the queue now.
    pub waiting: u32,
    /// Workers that answer now.
    pub workers_ready: u32,
    /// Time in the queue, all requests together.
    pub queue_seconds_sum: f64,
    /// Time of all batches in workers.
    pub compute_seconds_sum: f64,
    /// Since the sample before: half of the requests took no longer.
    pub p50_ms: Option<f64>,
    /// The same for all but one in a hundred.
    pub p99_ms: Option<f64>,
    /// Resident memory of its workers now.
    pub memory_bytes: u64,
    /// Workers that were started again.
    pub restarts: u64,
    /// Workers that had loaded and ended.
    pub exits: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// Only those that there were.
    pub rejections: BTreeMap<String, u64>,
}

impl ModelSample {
    pub(super) fn new(
        status: &Status,
        measures: &Measures,
        latency: Quantiles,
        memory_bytes: u64,
    ) -> Self {
        let (counters, incidents) = (&status.counters, &status.incidents);
        let seconds = |micros: u64| micros as f64 / 1e6;
        Self {
            requests: counters.requests,
            answered: counters.answered,
            late: counters.late,
            rejected: counters.rejected,
            failed: counters.failed,
            cancelled: counters.abandoned,
            batches: measures.batches.batches,
            items: measures.batches.items,
            waiting: status.waiting,
            workers_ready: status.workers.iter().filter(|worker| worker.ready).count() as u32,
            queue_seconds_sum: seconds(measures.queue_us.sum),
            compute_seconds_sum: seconds(measures.compute_us.sum),
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
            memory_bytes,
            restarts: incidents.restarts,
            exits: incidents.exits.iter().map(|(_, count)| count).sum(),
            load_failures: incidents.load_failures,
            rejections: counted(measures.rejections),
        }
    }
}

/// The key of a version in samples.
pub(super) fn version_key(model: &str, version: &str) -> String {
    format!("{model}/{version}")
}
