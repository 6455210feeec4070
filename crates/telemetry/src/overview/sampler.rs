//! Samples of all model versions: totals, of which clients make rates, and the quantiles of the latency since
//! the sample before. The sampler remembers what is needed to compare them the next time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jitney_engine::{Engine, FineCounts, Model, ModelTag, Status};
use serde::{Deserialize, Serialize};

use super::live_setting::LiveSetting;
use super::model_entry::{SizeCount, sizes, version_key};
use super::quantile::{Quantiles, classes};
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
    // In boxes: a map keeps room for eleven, most servers have one or two, and hundreds of samples are kept.
    pub models: BTreeMap<String, Box<ModelSample>>,
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
    /// The same for all but one in ten.
    pub p90_ms: Option<f64>,
    /// The same for all but one in a hundred.
    pub p99_ms: Option<f64>,
    /// The same for all but one in a thousand.
    pub p999_ms: Option<f64>,
    /// Since the sample before: how many answers took up to 1 ms, 2 ms, 4 ms and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<u64>>", optional))]
    pub latency_classes: Vec<u64>,
    /// Since the sample before: how many batches had up to 1, 2, 4 items and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<u64>>", optional))]
    pub size_classes: Vec<u64>,
    /// Resident memory of its workers now.
    pub memory_bytes: u64,
    /// Workers that were started again.
    pub restarts: u64,
    /// Workers that had loaded and ended.
    pub exits: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// How often its settings were seen to change.
    pub setting_changes: u64,
    /// Only those that there were.
    pub rejections: BTreeMap<String, u64>,
}

/// Takes one sample after another.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// What was seen of every version at the last sample, by where its tag lies.
    seen: HashMap<usize, SeenAtSample>,
}

#[derive(Debug)]
struct SeenAtSample {
    /// Keeps the place from being used again.
    _tag: Arc<ModelTag>,
    latency: FineCounts,
    sizes: Vec<SizeCount>,
    /// The values of the settings that may change, and how often they did.
    settings: (Vec<String>, u64),
}

impl Sampler {
    /// The versions and their workers as they are now; `before` is what was seen of workers last.
    pub(super) fn sample(
        &mut self,
        engine: &Engine,
        meter: &Meter,
        before: &WorkerUsages,
    ) -> (OverviewSample, HashMap<String, VersionLook>, WorkerUsages) {
        let (mut usages, mut seen) = (WorkerUsages::default(), HashMap::new());
        usages.look(std::process::id(), before, meter);
        let mut looks = HashMap::new();
        let read = |(model, _): &(Arc<Model>, bool)| {
            let (tag, status) = (model.tag(), model.status());
            let place = Arc::as_ptr(tag) as usize;
            let pids = status.workers.iter().filter_map(|worker| worker.pid);
            let memory: Vec<(u32, u64)> =
                pids.filter_map(|pid| Some((pid, usages.look(pid, before, meter)?))).collect();
            let (mut sample, now) = ModelSample::new(model, &status, self.seen.get(&place));
            sample.memory_bytes = memory.iter().map(|(_, bytes)| bytes).sum();
            let key = version_key(&tag.name, &tag.version);
            looks.insert(key.clone(), VersionLook { sizes: now.sizes.clone(), memory });
            seen.insert(place, now);
            (key, Box::new(sample))
        };
        // There may be thousands that are only known: nothing happens to them that could be drawn.
        let versions = engine.listed_versions();
        let models = versions.iter().filter(|(model, _)| model.was_asked()).map(read).collect();
        self.seen = seen;
        (OverviewSample { time: unix_millis(), models }, looks, usages)
    }
}

impl SeenAtSample {
    fn new(model: &Model, latency: FineCounts, before: Option<&Self>) -> Self {
        let live = LiveSetting::all(&model.settings().values);
        let values: Vec<String> = live.into_iter().map(|setting| setting.value).collect();
        let changes =
            before.map_or(0, |before| before.settings.1 + u64::from(before.settings.0 != values));
        let _tag = Arc::clone(model.tag());
        Self { _tag, latency, sizes: sizes(model), settings: (values, changes) }
    }

    /// Batches since `before`, by classes of sizes.
    fn size_classes(&self, before: Option<&Self>) -> Vec<u64> {
        let known = |size: u32| {
            let then = before.and_then(|it| it.sizes.iter().find(|then| then.size == size));
            then.map_or(0, |then| then.batches)
        };
        let grown = |it: &SizeCount| it.batches.saturating_sub(known(it.size));
        classes(self.sizes.iter().map(|it| (f64::from(it.size), grown(it))))
    }
}

impl ModelSample {
    /// The sample of a version, but for its memory, and what to compare the next one with.
    fn new(model: &Model, status: &Status, before: Option<&SeenAtSample>) -> (Self, SeenAtSample) {
        let mut measures = model.measures();
        let now = measures.latency_us.fine.take().unwrap_or_default();
        let nothing = FineCounts::default();
        let latency = Quantiles::between(before.map_or(&nothing, |before| &before.latency), &now);
        let seen = SeenAtSample::new(model, now, before);
        let (counters, incidents) = (&status.counters, &status.incidents);
        let seconds = |micros: u64| micros as f64 / 1e6;
        let sample = Self {
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
            p90_ms: latency.p90_ms,
            p99_ms: latency.p99_ms,
            p999_ms: latency.p999_ms,
            latency_classes: latency.classes,
            size_classes: seen.size_classes(before),
            memory_bytes: 0,
            restarts: incidents.restarts,
            exits: incidents.exits.iter().map(|(_, count)| count).sum(),
            load_failures: incidents.load_failures,
            setting_changes: seen.settings.1,
            rejections: counted(measures.rejections),
        };
        (sample, seen)
    }
}
