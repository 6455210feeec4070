//! Reads the totals of all model versions, and remembers what is needed to compare them the next time.

use std::collections::HashMap;
use std::sync::Arc;

use jitney_engine::{Engine, FineCounts, Model, ModelTag};

use super::model_sample::{ModelSample, OverviewSample, version_key};
use super::quantile::Quantiles;
use super::timestamp::unix_millis;
use super::worker_usage::WorkerUsages;
use crate::metrics::Meter;

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
    ) -> (OverviewSample, WorkerUsages) {
        let (mut usages, mut latencies) = (WorkerUsages::default(), HashMap::new());
        let nothing = FineCounts::default();
        let versions = engine.listed_versions();
        let read = |(model, _): &(Arc<Model>, bool)| {
            let (tag, status, mut measures) = (model.tag(), model.status(), model.measures());
            let place = Arc::as_ptr(tag) as usize;
            let known = self.latencies.get(&place).map_or(&nothing, |known| &known.counts);
            let counts = measures.latency_us.fine.take().unwrap_or_default();
            let quantiles = Quantiles::between(known, &counts);
            let pids = status.workers.iter().filter_map(|worker| worker.pid);
            let memory = pids.filter_map(|pid| usages.look(pid, before, meter)).sum();
            let sample = ModelSample::new(&status, &measures, quantiles, memory);
            latencies.insert(place, LatencyCounts { _tag: Arc::clone(tag), counts });
            (version_key(&tag.name, &tag.version), sample)
        };
        let models = versions.iter().map(read).collect();
        self.latencies = latencies;
        (OverviewSample { time: unix_millis(), models }, usages)
    }
}
