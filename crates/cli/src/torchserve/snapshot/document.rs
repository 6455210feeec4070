//! `model_snapshot`: every model with its versions, as JSON in TorchServe's form. What Jitney adds
//! (`policy`, `maxLatencyMs`, `tenants`, `sha256`) TorchServe does not read.

use std::collections::BTreeMap;
use std::path::Path;

use jitney_engine::{Engine, Model};
use serde::{Deserialize, Serialize};

/// Models by name, versions by name.
pub type Models = BTreeMap<String, BTreeMap<String, Version>>;

/// The whole value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    name: &'a str,
    model_count: usize,
    created: u64,
    models: &'a Models,
}

impl<'a> Document<'a> {
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

/// One version of a model. Older files lack some fields; numbers that are not above zero count as not
/// set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    pub default_version: bool,
    pub mar_name: String,
    pub min_workers: i64,
    pub max_workers: i64,
    pub batch_size: i64,
    pub max_batch_delay: i64,
    pub response_timeout: i64,
    pub startup_timeout: i64,
    pub runtime_type: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub parallel_level: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_latency_ms: Option<u64>,
    /// Weights of tenants; none if it has none, so that its archive's hold then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<BTreeMap<String, u32>>,
    /// The sum that its file must have; else nobody would compare it again after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The models of a running engine.
pub fn models(engine: &Engine, store: &Path) -> Models {
    let mut models = Models::new();
    // A workflow brings its nodes itself, and is not in snapshots.
    for default in engine.models().into_iter().filter(|model| model.workflow().is_none()) {
        let versions = engine.versions(default.name()).unwrap_or_default();
        let described = versions.iter().map(|model| {
            let is_default = model.version() == default.version();
            (model.version().to_owned(), Version::of(model, is_default, store))
        });
        models.insert(default.name().to_owned(), described.collect());
    }
    models
}

impl Version {
    fn of(model: &Model, default_version: bool, store: &Path) -> Self {
        let settings = model.settings();
        let (min_workers, max_workers) = model.wanted();
        Self {
            default_version,
            mar_name: mar_name(model.url(), store),
            min_workers: min_workers.into(),
            max_workers: max_workers.into(),
            batch_size: settings.batch_size.into(),
            max_batch_delay: settings.batch_delay.as_millis() as i64,
            response_timeout: settings.response_timeout.as_secs() as i64,
            startup_timeout: settings.startup_timeout.as_secs() as i64,
            runtime_type: settings.runtime.clone(),
            parallel_level: settings.declared.parallel_level.into(),
            policy: Some(settings.policy.as_str().to_owned()),
            max_latency_ms: settings.latency_max.map(|latency| latency.as_millis() as u64),
            tenants: Some(settings.shares.tenants.iter().cloned().collect())
                .filter(|tenants: &BTreeMap<_, _>| !tenants.is_empty()),
            sha256: model.sha256().map(|sum| sum.to_string()),
        }
    }
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
