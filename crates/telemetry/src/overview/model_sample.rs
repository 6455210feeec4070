//! All model versions at one moment, in few numbers: totals, of which clients make rates, and the quantiles
//! of the latency since the sample before.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitney_engine::{Measures, ModelTag, Status};
use serde::{Serialize, Serializer};

use super::quantile::Quantiles;

/// One sample.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OverviewSample {
    /// Milliseconds of Unix time.
    time: u64,
    #[serde(serialize_with = "by_version")]
    models: Vec<(Arc<ModelTag>, ModelSample)>,
}

/// One model version in it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModelSample {
    requests: u64,
    answered: u64,
    late: u64,
    rejected: u64,
    failed: u64,
    cancelled: u64,
    batches: u64,
    items: u64,
    waiting: u32,
    workers_ready: u32,
    queue_seconds_sum: f64,
    compute_seconds_sum: f64,
    #[serde(flatten)]
    latency: Quantiles,
    memory_bytes: u64,
    restarts: u64,
    exits: u64,
    load_failures: u64,
    /// Only those that there were.
    #[serde(serialize_with = "by_reason")]
    rejections: Box<[(&'static str, u64)]>,
}

impl OverviewSample {
    pub(super) fn new(time: u64, models: Vec<(Arc<ModelTag>, ModelSample)>) -> Self {
        Self { time, models }
    }

    /// How many model versions are in it.
    pub(super) fn len(&self) -> usize {
        self.models.len()
    }

    #[cfg(test)]
    pub(super) fn empty(time: u64) -> Self {
        Self::new(time, Vec::new())
    }
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
            latency,
            memory_bytes,
            restarts: incidents.restarts,
            exits: incidents.exits.iter().map(|(_, count)| count).sum(),
            load_failures: incidents.load_failures,
            rejections: measures.rejections.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// As an object with keys such as `m/1.0`.
fn by_version<S: Serializer>(
    models: &[(Arc<ModelTag>, ModelSample)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let key = |tag: &ModelTag| format!("{}/{}", tag.name, tag.version);
    serializer.collect_map(models.iter().map(|(tag, sample)| (key(tag), sample)))
}

fn by_reason<S: Serializer>(
    counts: &[(&'static str, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    counts.iter().copied().collect::<BTreeMap<_, _>>().serialize(serializer)
}
