//! The values of one start-up model. Who wins is the engine's rule (`resolve` there); this says it
//! again, since only the cli knows who spoke.

use std::path::Path;
use std::time::Duration;

use jitney_engine::settings::{Defaults, PolicyName};
use jitney_engine::shares::Cost;
use jitney_engine::store::{Limits, ModelYaml, Store, StoreConfig};
use serde_json::Value;

use super::Row;
use crate::origin::Origin;
use crate::startup::Startup;

/// What is needed to explain a model.
pub struct About<'a> {
    /// The model and what was said about it.
    pub startup: &'a Startup,
    /// Who said it, by key.
    pub said_by: &'a dyn Fn(&str) -> Origin,
    /// Where archives are found by name.
    pub store: Option<&'a Path>,
    /// Where one may be unpacked.
    pub temp_dir: &'a Path,
    /// What applies to every model.
    pub defaults: &'a Defaults,
    /// Where `models={...}` stands.
    pub operator: Origin,
}

type Said = Option<(String, Origin)>;

/// The model's rows. An archive that cannot be opened says nothing.
pub fn rows(about: &About<'_>) -> Vec<Row> {
    let startup = about.startup;
    let (name, version, yaml) = open(about);
    let wishes = startup.wishes();
    let (said_by, defaults) = (about.said_by, about.defaults);
    let archive = Origin::Archive(startup.url.clone());
    let from = |value: Option<String>, origin: &Origin| value.map(|value| (value, origin.clone()));
    let own = |value: Option<String>| from(value, &archive);
    let wish = |key: &str, value: Option<String>| value.map(|value| (value, said_by(key)));
    let operator = |key: &str| {
        let number = defaults.models.get(&name)?.get(&version)?.get(key).and_then(Value::as_u64)?;
        (number > 0).then(|| (number.to_string(), about.operator.clone()))
    };
    let default = |value: Option<String>| value.map(|value| (value, Origin::Default));
    let batching = &yaml.batching;
    let restored = startup.workers.map(|(min, _)| min);
    let both = yaml.min_workers.zip(yaml.max_workers).filter(|(min, max)| *min > 0 && max >= min);
    let table: Vec<(&str, Vec<Said>)> = vec![
        (
            "workers",
            vec![
                wish("workers", text(restored)),
                own(both.map(|(min, _)| min.to_string())),
                wish("workers", text(wishes.initial_workers)),
                operator("minWorkers"),
                default(text(Some(defaults.startup_workers))),
            ],
        ),
        (
            "max_batch_size",
            vec![
                wish("max_batch_size", text(wishes.batch_size)),
                own(text(batching.max_batch_size.or(yaml.batch_size))),
                operator("batchSize"),
                default(text(Some(1))),
            ],
        ),
        (
            "max_batch_delay",
            vec![
                wish("max_batch_delay", text(wishes.max_batch_delay_ms)),
                own(millis(batching.max_batch_delay.or(yaml.max_batch_delay))),
                operator("maxBatchDelay"),
                default(text(Some(100))),
            ],
        ),
        (
            "max_latency_ms",
            vec![
                wish("max_latency_ms", text(wishes.max_latency_ms)),
                own(millis(batching.max_latency)),
            ],
        ),
        (
            "queue",
            vec![
                wish("queue", text(wishes.queue_max)),
                own(text(yaml.job_queue_size)),
                default(text(Some(defaults.queue_max))),
            ],
        ),
        (
            "response_timeout",
            vec![
                own(seconds(yaml.response_timeout)),
                operator("responseTimeout"),
                wish("response_timeout", text(wishes.response_timeout_s)),
                default(text(Some(defaults.response_timeout_s))),
            ],
        ),
        (
            "startup_timeout",
            vec![
                own(seconds(yaml.startup_timeout)),
                operator("startupTimeout"),
                wish("startup_timeout", text(wishes.startup_timeout_s)),
                default(text(Some(defaults.startup_timeout_s))),
            ],
        ),
    ];
    let mut rows: Vec<Row> = table.into_iter().map(|(key, said)| row(&name, key, said)).collect();
    let said = vec![
        wish("policy", text(wishes.policy.map(PolicyName::as_str))),
        own(batching.policy.map(|policy| format!("{policy:?}").to_lowercase())),
        default(text(defaults.policy.map(PolicyName::as_str))),
        default(text(Some(implied(&rows)))),
    ];
    rows.push(row(&name, "policy", said));
    let cost = |cost: Option<Cost>| text(cost.map(Cost::as_str));
    // Told only where somebody spoke of them: most models share in no other way than by turns.
    let shares = [
        ("tenants", weights(wishes.tenants.as_deref()), weights(batching.tenants.as_deref())),
        ("cost", cost(wishes.cost), cost(batching.cost)),
        ("max_cost", text(wishes.max_cost), text(batching.max_cost)),
    ];
    for (key, wished, owned) in shares {
        let said = vec![wish(key, wished), own(owned)];
        rows.extend(said.iter().any(Option::is_some).then(|| row(&name, key, said)));
    }
    rows
}

/// An explicit delay asks for TorchServe's window, an objective or silence for adaptive.
fn implied(rows: &[Row]) -> &'static str {
    let said = |key: &str| rows.iter().any(|row| row.key == key && row.origin != Origin::Default);
    if said("max_batch_delay") && !said("max_latency_ms") { "window" } else { "adaptive" }
}

fn row(model: &str, key: &str, said: Vec<Said>) -> Row {
    let first = said.into_iter().flatten().next();
    let (value, origin) = first.map_or((None, Origin::Default), |(value, by)| (Some(value), by));
    Row { model: Some(model.to_owned()), key: key.to_owned(), value, origin }
}

/// Name, version and settings, as far as the archive tells.
fn open(about: &About<'_>) -> (String, String, ModelYaml) {
    let startup = about.startup;
    let fallback = || startup.name.clone().unwrap_or_else(|| startup.url.clone());
    let opened = tempfile::tempdir_in(about.temp_dir).ok().and_then(|scratch| {
        let store = Store::new(StoreConfig {
            model_store: about.store.map(Path::to_owned),
            scratch: scratch.path().to_owned(),
            limits: Limits::default(),
            url_allowed: Box::new(|url| url.starts_with("file://")),
            remote: None,
        });
        if startup.url.ends_with(".onnx") {
            return None;
        }
        store.open(&startup.url, store.find(&startup.url, true).ok()?).ok()
    });
    let Some(package) = opened else { return (fallback(), String::new(), ModelYaml::default()) };
    let name = startup.name.clone().or_else(|| package.manifest.model_name.clone());
    let version = startup.version.clone();
    let version = version.unwrap_or_else(|| package.manifest.version().to_owned());
    (name.unwrap_or_else(fallback), version, package.yaml.clone())
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// Such as `gold=4 free=1`.
fn weights(tenants: Option<&[(String, u32)]>) -> Option<String> {
    let one = |(name, weight): &(String, u32)| format!("{name}={weight}");
    tenants.map(|tenants| tenants.iter().map(one).collect::<Vec<_>>().join(" "))
}

fn millis(value: Option<Duration>) -> Option<String> {
    value.map(|value| value.as_millis().to_string())
}

fn seconds(value: Option<Duration>) -> Option<String> {
    value.map(|value| value.as_secs().to_string())
}
