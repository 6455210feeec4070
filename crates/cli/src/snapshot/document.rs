//! `model_snapshot`: every model with its versions, as JSON in TorchServe's form. What Jitney adds
//! (`policy`, `maxLatencyMs`, `jobQueueSize`, `endpoints`, `tenants`, `sha256`) TorchServe does not
//! read.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jitney_engine::traffic_split::TrafficSplit;
use jitney_engine::{EndpointView, Engine, Model, Objective};
use jitney_settings::model::{MAX_WORKERS, TRAFFIC, WORKERS};
use jitney_settings::{SettingSource, to_record};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Models by name, versions by name.
pub type Models = BTreeMap<String, BTreeMap<String, SnapshotVersion>>;

/// The whole value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDocument<'a> {
    name: &'a str,
    model_count: usize,
    created: u64,
    models: &'a Models,
}

impl<'a> SnapshotDocument<'a> {
    /// The models as they were when the file of this name was written.
    pub fn new(name: &'a str, created: u64, models: &'a Models) -> Self {
        let model_count = models.values().map(BTreeMap::len).sum();
        Self { name, model_count, created, models }
    }

    /// The text, over several lines.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// One version of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotVersion {
    pub default_version: bool,
    pub mar_name: String,
    /// Its settings under the keys of their declarations. Older files lack some.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
    pub runtime_type: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub parallel_level: i64,
    /// Endpoints of a definition that differ from the model or from what they were defined as.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, SnapshotEndpoint>,
    /// The sum that its file must have; else it would not be compared again after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// One endpoint of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotEndpoint {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_batch_size: Option<u32>,
    /// Zero for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_latency_ms: Option<u64>,
}

impl SnapshotEndpoint {
    /// What is to be said about it; nothing about nearly all. Where the sizes are not as they were
    /// defined, each is said: a restart cannot tell those that follow the model's from the others.
    fn of(tuned: &EndpointView, resized: bool) -> Option<Self> {
        let max_latency_ms = match tuned.objective {
            Objective::Models => None,
            Objective::Own(latency) => Some(whole(latency)),
            Objective::Free => Some(0),
        };
        let max_batch_size = tuned.batch_size.filter(|_| resized);
        let said = max_batch_size.is_some() || max_latency_ms.is_some();
        said.then_some(Self { max_batch_size, max_latency_ms })
    }
}

/// Whole milliseconds; only no latency becomes 0.
fn whole(latency: Duration) -> u64 {
    (latency.as_millis() as u64).max(1)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The models of a running engine.
pub fn models(engine: &Engine, store: &Path) -> Models {
    let mut models = Models::new();
    // A workflow brings its nodes itself, and is not in snapshots.
    for default in engine.models().into_iter().filter(|model| model.identity().workflow.is_none()) {
        let versions = engine.versions(default.name()).unwrap_or_default();
        let split = engine.traffic(default.name()).unwrap_or_default();
        let described = versions.iter().map(|model| {
            let is_default = model.version() == default.version();
            let split = split.as_deref().filter(|_| is_default);
            (model.version().to_owned(), SnapshotVersion::of(model, is_default, split, store))
        });
        models.insert(default.name().to_owned(), described.collect());
    }
    models
}

impl SnapshotVersion {
    /// The shares of all versions stand with the default one.
    fn of(
        model: &Model,
        default_version: bool,
        split: Option<&TrafficSplit>,
        store: &Path,
    ) -> Self {
        let settings = model.settings();
        let (min, max) = model.worker_target();
        let mut values = settings.values.clone();
        values.set(&WORKERS, min, SettingSource::Live);
        values.set(&MAX_WORKERS, max, SettingSource::Live);
        match split {
            Some(split) => values.set(&TRAFFIC, split.text(), SettingSource::Live),
            None => values.remove(&TRAFFIC),
        }
        Self {
            default_version,
            mar_name: mar_name(&model.identity().url, store),
            settings: to_record(&values),
            runtime_type: settings.runtime.clone(),
            parallel_level: settings.declared.parallel_level.into(),
            endpoints: endpoints(model),
            sha256: model.identity().sha256.map(|sum| sum.to_string()),
        }
    }
}

fn endpoints(model: &Model) -> BTreeMap<String, SnapshotEndpoint> {
    let tuned = model.endpoints();
    let resized = tuned.values().any(|endpoint| !endpoint.as_defined);
    let said = |(name, tuned)| Some((name, SnapshotEndpoint::of(&tuned, resized)?));
    tuned.into_iter().filter_map(said).collect()
}

/// A model of the store by its file name; any other by what it was asked for as.
fn mar_name(url: &str, store: &Path) -> String {
    let name = last_element(url);
    let is_remote = url.starts_with("http://") || url.starts_with("https://");
    let in_store = !name.is_empty() && store.join(name).exists();
    if is_remote || in_store { name.to_owned() } else { url.to_owned() }
}

/// The last element of a path or of a url without its query.
pub fn last_element(url: &str) -> &str {
    let path = if url.contains("://") { url.split(['?', '#']).next().unwrap_or(url) } else { url };
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}
