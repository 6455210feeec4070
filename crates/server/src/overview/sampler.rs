//! Reads the totals of all model versions, and remembers what is needed to compare them the next time.

use std::collections::HashMap;
use std::sync::Arc;

use jitney_engine::{Engine, Model, ModelTag};

use super::model_sample::{ModelSample, OverviewSample};
use super::quantile::Quantiles;
use super::timestamp::unix_millis;
use super::worker_entry::memory_of;
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
    counts: Vec<u64>,
}

impl Sampler {
    pub(super) fn sample(&mut self, engine: &Engine, meter: &Meter) -> OverviewSample {
        let before = std::mem::take(&mut self.latencies);
        let versions = engine.listed_versions();
        let models = versions.iter().map(|(model, _)| self.read(model, &before, meter)).collect();
        OverviewSample::new(unix_millis(), models)
    }

    fn read(
        &mut self,
        model: &Model,
        before: &HashMap<usize, LatencyCounts>,
        meter: &Meter,
    ) -> (Arc<ModelTag>, ModelSample) {
        let (tag, status, measures) = (model.tag(), model.status(), model.measures());
        let place = Arc::as_ptr(tag) as usize;
        let known = before.get(&place).map_or(&[][..], |known| &known.counts);
        let quantiles = Quantiles::between(known, &measures.latency_us);
        let memory = status.workers.iter().filter_map(|worker| memory_of(worker, meter)).sum();
        let sample = ModelSample::new(&status, &measures, quantiles, memory);
        let counts = measures.latency_us.counts;
        self.latencies.insert(place, LatencyCounts { _tag: Arc::clone(tag), counts });
        (Arc::clone(tag), sample)
    }
}
