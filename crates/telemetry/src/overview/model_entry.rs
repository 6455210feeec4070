//! One model version in the overview: how it is, what is set, what was counted and what was learned.

use std::collections::BTreeMap;

use jitney_engine::model::main_group;
use jitney_engine::{
    CurvePoint, Distribution, EndpointView, Measures, Model, Status, WorkerIncident,
};
use jitney_settings::model::MEMORY_LIMIT;
use serde::{Deserialize, Serialize};

use super::live_setting::LiveSetting;
use super::timestamp::rfc3339;
use super::version_state::VersionState;
use super::worker_entry::{WorkerOverview, WorkerUsages};
use crate::model_facts::{ModelLink, called_models, counted, millis, own_latency, policy_times};

const MICROS: f64 = 1e6;
const PERMILLE: f64 = 1e3;

/// Sizes of the learned curve that are told, to bound the length.
const CURVE_POINTS_MAX: usize = 128;

/// A version of a model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelOverview {
    /// The model.
    pub name: String,
    /// The version.
    pub version: String,
    /// Whether requests that name no version get it.
    pub is_default: bool,
    /// Its share of the requests that name no version, from 0 to 1; null where versions do not share them.
    pub share: Option<f64>,
    /// Why its share was taken away, where the server did that.
    pub returned: Option<String>,
    /// The share of requests of which it gets copies, from 0 to 1; null where it is no shadow.
    pub shadow_share: Option<f64>,
    /// Copies that it got as a shadow: `same`, `different`, `failed`, `dropped`, `uncompared`; absent where it got none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, ts(as = "Option<BTreeMap<String, u64>>", optional))]
    pub shadow_copies: BTreeMap<String, u64>,
    /// `python`, `onnx`, `definition` or `workflow-function`.
    pub kind: String,
    /// `ready`, `loading`, `failed`, `degraded`, `noWorkers`, `known`, `leaving` or `ending`.
    pub state: String,
    /// The same as a sentence.
    pub state_text: String,
    /// The last error of a worker or of a request.
    pub last_error: Option<String>,
    /// When it was.
    pub last_error_time: Option<String>,
    /// How the last worker's process that ended by itself did.
    pub last_exit: Option<String>,
    /// When that was.
    pub last_exit_time: Option<String>,
    /// When batches are sent.
    pub policy: String,
    /// Most items in a batch.
    pub max_batch_size: u32,
    /// The latency target.
    pub max_latency_ms: Option<f64>,
    /// How long a request waits for others at most.
    pub max_batch_delay_ms: Option<f64>,
    /// Of definitions.
    pub endpoints: BTreeMap<String, EndpointOverview>,
    /// The models that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<ModelLink>>", optional))]
    pub depends_on: Vec<ModelLink>,
    /// Settings that may change while it runs.
    pub live_settings: Vec<LiveSetting>,
    /// Fewest workers.
    pub workers_min: u32,
    /// Most workers.
    pub workers_max: u32,
    /// Why it has as many workers as it has, where their number follows the load.
    pub capacity: Option<String>,
    /// What one of them may use (`memory_limit`), where that is set.
    pub memory_limit_bytes: Option<u64>,
    /// Since the registration.
    pub restarts: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// Exits of workers that had loaded, by kind.
    pub exits: BTreeMap<String, u64>,
    /// How long the last load took.
    pub load_seconds: Option<f64>,
    /// Its workers.
    pub workers: Vec<WorkerOverview>,
    /// Requests in the queue.
    pub waiting: u32,
    /// The most that may wait.
    pub queue_max: u32,
    /// Requests that are with a worker.
    pub running: u64,
    /// What it counted.
    pub totals: VersionTotals,
    /// Rejected requests by reason.
    pub rejections: BTreeMap<String, u64>,
    /// Batches by reason.
    pub dispatches: BTreeMap<String, u64>,
    /// How many batches had which size.
    pub batch_sizes: Vec<SizeCount>,
    /// Time in the queue.
    pub queue_seconds: DistributionEntry,
    /// Time of batches in workers.
    pub compute_seconds: DistributionEntry,
    /// Time from arrival to answer.
    pub latency_seconds: DistributionEntry,
    /// Measured time over predicted time.
    pub prediction_ratio: DistributionEntry,
    /// What batches of a size take.
    pub curve: Vec<CurveEntry>,
}

/// An endpoint of a definition: what is its own, where its model's does not hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct EndpointOverview {
    /// Its largest batch; null if it takes one item at a time.
    pub max_batch_size: Option<u32>,
    /// The latency it keeps; null for none.
    pub max_latency_ms: Option<f64>,
}

/// What was counted since the version was registered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct VersionTotals {
    /// All requests.
    pub requests: u64,
    /// Answered.
    pub answered: u64,
    /// Rejected.
    pub rejected: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled by the client.
    pub cancelled: u64,
    /// Run again after a failure.
    pub retried: u64,
    /// Answered after its objective or deadline.
    pub late: u64,
    /// Batches.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Batches that failed.
    pub failed_batches: u64,
}

/// How many batches had this size; the largest of several sizes that are counted together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SizeCount {
    /// In items.
    pub size: u32,
    /// Batches.
    pub batches: u64,
    /// Those that were answered.
    pub answered: u64,
    /// How long those ran, all together.
    pub compute_seconds: f64,
}

/// A histogram: as many counts as bounds, and one for what is above the last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DistributionEntry {
    /// Ascending.
    pub bounds: Vec<f64>,
    /// How many were up to each bound.
    pub counts: Vec<u64>,
    /// Of all values.
    pub sum: f64,
}

/// One size of the learned curve, and the band in which batches are expected.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CurveEntry {
    /// In items.
    pub size: u64,
    /// Usually.
    pub ms: f64,
    /// What deadlines are planned with: a safe quantile.
    pub planned_ms: f64,
    /// As far below the mean as the planned time is above it.
    pub low_ms: f64,
    /// How often it was measured.
    pub samples: u32,
}

impl ModelOverview {
    pub(super) fn read(
        model: &Model,
        is_default: bool,
        draining: bool,
        usages: &WorkerUsages,
    ) -> (VersionState, Self) {
        let (settings, status, measures) = (model.settings(), model.status(), model.measures());
        let (state, state_text) = VersionState::of(model, &status, draining);
        let (_, delay) = policy_times(&settings.batcher().policy);
        let max_latency_ms = settings.latency_max.map(|time| time.as_secs_f64() * 1e3);
        let endpoints = model.endpoints();
        let endpoint = |(name, view)| (name, EndpointOverview::new(&view, max_latency_ms));
        let incidents = &status.incidents;
        let (last, exit) = (incidents.last.as_deref(), incidents.last_exit.as_deref());
        let time = |incident: &WorkerIncident| rfc3339(incident.at);
        // Of a version that cannot load, the reason for that.
        let request = model.last_failed().filter(|_| state != VersionState::Failed);
        let errors = [last.map(|last| (last.at, last.error.clone())), request];
        let (error_time, last_error) = errors.into_iter().flatten().max().unzip();
        let entry = Self {
            name: model.name().to_owned(),
            version: model.version().to_owned(),
            is_default,
            share: model.share().map(|it| f64::from(it) / 1e6),
            returned: model.why_returned().map(|why| String::clone(&why)),
            shadow_share: model.shadow_share(),
            shadow_copies: counted(model.shadow_counts()),
            kind: kind(model).to_owned(),
            state: state.as_str().to_owned(),
            state_text,
            last_error,
            last_error_time: error_time.map(rfc3339),
            last_exit: exit.and_then(|last| Some(last.exit?.to_string())),
            last_exit_time: exit.map(time),
            policy: settings.policy.as_str().to_owned(),
            max_batch_size: settings.items_max(),
            max_latency_ms,
            max_batch_delay_ms: delay.map(millis),
            endpoints: endpoints.into_iter().map(endpoint).collect(),
            depends_on: called_models(model),
            live_settings: LiveSetting::all(&settings.values),
            workers_min: status.workers_min,
            workers_max: status.workers_max,
            capacity: status.capacity.map(|it| it.to_string()),
            memory_limit_bytes: settings.values.read(&MEMORY_LIMIT),
            restarts: incidents.restarts,
            load_failures: incidents.load_failures,
            exits: counted(incidents.exits),
            load_seconds: measures.load_last_us.map(|micros| micros as f64 / MICROS),
            workers: status.workers.iter().map(|it| WorkerOverview::new(it, usages)).collect(),
            waiting: status.waiting,
            queue_max: status.queue_max,
            running: running(&status),
            totals: VersionTotals::new(&status, &measures),
            rejections: counted(measures.rejections),
            dispatches: counted(measures.batches.dispatches()),
            batch_sizes: sizes(model),
            queue_seconds: DistributionEntry::new(&measures.queue_us, MICROS),
            compute_seconds: DistributionEntry::new(&measures.compute_us, MICROS),
            latency_seconds: DistributionEntry::new(&measures.latency_us, MICROS),
            prediction_ratio: DistributionEntry::new(&measures.prediction_permille, PERMILLE),
            curve: curve(model),
        };
        (state, entry)
    }

    /// `name/version`, which is also its key in samples.
    pub fn key(&self) -> String {
        version_key(&self.name, &self.version)
    }

    /// Workers that answer.
    pub fn workers_ready(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state == "ready").count()
    }

    /// Resident memory of all its workers.
    pub fn memory_bytes(&self) -> u64 {
        self.workers.iter().filter_map(|worker| worker.memory_bytes).sum()
    }
}

/// The key of a version in samples.
pub(super) fn version_key(model: &str, version: &str) -> String {
    format!("{model}/{version}")
}

fn kind(model: &Model) -> &'static str {
    if model.identity().is_function() {
        "workflow-function"
    } else if !model.tag().python {
        "onnx"
    } else if model.api().is_some() {
        "definition"
    } else {
        "python"
    }
}

/// What has come, has not ended and does not wait.
fn running(status: &Status) -> u64 {
    let counters = &status.counters;
    let ended = counters.answered + counters.rejected + counters.failed + counters.abandoned;
    counters.requests.saturating_sub(ended).saturating_sub(status.waiting.into())
}

/// The batches of a version by size.
pub(super) fn sizes(model: &Model) -> Vec<SizeCount> {
    let sizes = model.statistics().sizes.into_iter();
    let sizes = sizes.map(|size| SizeCount {
        size: size.largest,
        batches: size.totals.batches,
        answered: size.totals.answered_batches,
        compute_seconds: size.totals.compute_ns as f64 / 1e9,
    });
    sizes.filter(|count| count.batches > 0).collect()
}

/// The learned curve of the group with the most batches.
fn curve(model: &Model) -> Vec<CurveEntry> {
    let curve = model.curve();
    let main = main_group(&curve);
    let points = curve.iter().filter(|point| Some(point.group) == main);
    points.take(CURVE_POINTS_MAX).map(CurveEntry::new).collect()
}

impl EndpointOverview {
    /// `latency` is its model's.
    fn new(view: &EndpointView, latency: Option<f64>) -> Self {
        Self {
            max_batch_size: view.batch_size,
            max_latency_ms: own_latency(view.objective).unwrap_or(latency),
        }
    }
}

impl VersionTotals {
    fn new(status: &Status, measures: &Measures) -> Self {
        let (counters, batches) = (&status.counters, &measures.batches);
        Self {
            requests: counters.requests,
            answered: counters.answered,
            rejected: counters.rejected,
            failed: counters.failed,
            cancelled: counters.abandoned,
            retried: counters.retried,
            late: counters.late,
            batches: batches.batches,
            items: batches.items,
            failed_batches: batches.failed_batches,
        }
    }
}

impl DistributionEntry {
    fn new(distribution: &Distribution, scale: f64) -> Self {
        let Distribution { bounds, counts, sum, fine: _ } = distribution;
        Self {
            bounds: bounds.iter().map(|bound| *bound as f64 / scale).collect(),
            counts: counts.clone(),
            sum: *sum as f64 / scale,
        }
    }
}

impl CurveEntry {
    fn new(point: &CurvePoint) -> Self {
        let CurvePoint { size, mean, planned, samples, .. } = *point;
        let low = mean.saturating_sub(planned.saturating_sub(mean));
        let (ms, planned_ms, low_ms) = (millis(mean), millis(planned), millis(low));
        Self { size, ms, planned_ms, low_ms, samples }
    }
}
