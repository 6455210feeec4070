//! Samples of all model versions: totals, of which clients make rates, and the quantiles of the latency since
//! the sample before. The sampler remembers what is needed to compare them the next time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jitney_engine::{Engine, FineCounts, Measures, Model, ModelTag, Status};
use serde::{Deserialize, Serialize};

use super::model_entry::{sizes, version_key};
use super::quantile::Quantiles;
use super::timestamp::unix_millis;
use super::version_record::VersionLook;
use super::worker_entry::WorkerUsages;
use crate::metrics::Meter;
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

/// Takes one sample after another.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// The counts of every version's latency at the last sample, by where its tag lies.
    latencies: HashMap<usize, LatencyCounts>,
}

#[derive(Debug)]
struct LatencyCounts {
    /// Keeps the place from being used again.
    _tag: Arc<ModelTag>,
    counts: FineCounts,
}

impl Sampler {
    /// The versions and their workers as they are now; `before` is what was seen of workers last.
    pub(super) fn sample(
        &mut self,
        engine: &Engine,
        meter: &Meter,
        before: &WorkerUsages,
    ) -> (OverviewSample, HashMap<String, VersionLook>, WorkerUsages) {
        let (mut usages, mut latencies) = (WorkerUsages::default(), HashMap::new());
        usages.look(std::process::id(), before, meter);
        let mut looks = HashMap::new();
        let nothing = FineCounts::default();
        let versions = engine.listed_versions();
        let read = |(model, _): &(Arc<Model>, bool)| {
            let (tag, status, mut measures) = (model.tag(), model.status(), model.measures());
            let place = Arc::as_ptr(tag) as usize;
            let known = self.latencies.get(&place).map_or(&nothing, |known| &known.counts);
            let counts = measures.latency_us.fine.take().unwrap_or_default();
            let quantiles = Quantiles::between(known, &counts);
            let pids = status.workers.iter().filter_map(|worker| worker.pid);
            let memory: Vec<(u32, u64)> =
                pids.filter_map(|pid| Some((pid, usages.look(pid, before, meter)?))).collect();
            let all = memory.iter().map(|(_, bytes)| bytes).sum();
            let sample = ModelSample::new(&status, &measures, quantiles, all);
            latencies.insert(place, LatencyCounts { _tag: Arc::clone(tag), counts });
            let key = version_key(&tag.name, &tag.version);
            looks.insert(key.clone(), VersionLook { sizes: sizes(model), memory });
            (key, sample)
        };
        let models = versions.iter().map(read).collect();
        self.latencies = latencies;
        (OverviewSample { time: unix_millis(), models }, looks, usages)
    }
}

impl ModelSample {
    fn new(status: &Status, measures: &Measures, latency: Quantiles, memory_bytes: u64) -> Self {
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
