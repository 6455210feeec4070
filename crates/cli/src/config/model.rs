//! The values of one start-up model. Who wins is the engine's rule (`resolve` there); this says it
//! again, since only the cli knows who spoke.

use std::path::Path;
use std::time::Duration;

use jitney_engine::settings::{ModelDefaults, PolicyName, RegisterOptions};
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
    pub defaults: &'a ModelDefaults,
    /// Where `models={...}` stands.
    pub operator: Origin,
}

/// The model's rows. An archive that cannot be opened says nothing.
pub fn rows(about: &About<'_>) -> Vec<Row> {
    let voices = Voices::of(about);
    let mut rows: Vec<Row> =
        [voices.workers(), voices.batch_size(), voices.batch_delay(), voices.latency()]
            .into_iter()
            .chain([voices.queue(), voices.response_timeout(), voices.startup_timeout()])
            .collect();
    rows.push(voices.policy(implied(&rows)));
    rows.extend(voices.shares());
    rows
}

type Said = Option<(String, Origin)>;

/// Everybody who may say something about the model. Each key hears them in the order of their rank.
struct Voices<'a> {
    about: &'a About<'a>,
    name: String,
    version: String,
    options: RegisterOptions,
    yaml: ModelYaml,
}

impl<'a> Voices<'a> {
    fn of(about: &'a About<'a>) -> Self {
        let (name, version, yaml) = open(about);
        Self { about, name, version, options: about.startup.options(), yaml }
    }

    fn wish(&self, key: &str, value: Option<String>) -> Said {
        value.map(|value| (value, (self.about.said_by)(key)))
    }

    fn archive(&self, value: Option<String>) -> Said {
        value.map(|value| (value, Origin::Archive(self.about.startup.url.clone())))
    }

    fn operator(&self, key: &str) -> Said {
        let models = &self.about.defaults.models;
        let number =
            models.get(&self.name)?.get(&self.version)?.get(key).and_then(Value::as_u64)?;
        (number > 0).then(|| (number.to_string(), self.about.operator.clone()))
    }

    /// The value of whoever speaks first, or none.
    fn row(&self, key: &str, said: impl IntoIterator<Item = Said>) -> Row {
        let first = said.into_iter().flatten().next();
        let (value, origin) =
            first.map_or((None, Origin::Default), |(value, by)| (Some(value), by));
        Row { model: Some(self.name.clone()), key: key.to_owned(), value, origin }
    }

    fn workers(&self) -> Row {
        let restored = self.about.startup.workers.map(|(min, _)| min);
        let both = self.yaml.min_workers.zip(self.yaml.max_workers);
        let both = both.filter(|(min, max)| *min > 0 && max >= min);
        let said = [
            self.wish("workers", text(restored)),
            self.archive(text(both.map(|(min, _)| min))),
            self.wish("workers", text(self.options.initial_workers)),
            self.operator("minWorkers"),
            default(text(Some(self.about.defaults.startup_workers))),
        ];
        self.row("workers", said)
    }

    fn batch_size(&self) -> Row {
        let own = self.yaml.batching.max_batch_size.or(self.yaml.batch_size);
        let said = [
            self.wish("max_batch_size", text(self.options.batch_size)),
            self.archive(text(own)),
            self.operator("batchSize"),
            default(text(Some(1))),
        ];
        self.row("max_batch_size", said)
    }

    fn batch_delay(&self) -> Row {
        let own = self.yaml.batching.max_batch_delay.or(self.yaml.max_batch_delay);
        let said = [
            self.wish("max_batch_delay", text(self.options.max_batch_delay_ms)),
            self.archive(millis(own)),
            self.operator("maxBatchDelay"),
            default(text(Some(100))),
        ];
        self.row("max_batch_delay", said)
    }

    fn latency(&self) -> Row {
        let wish = self.wish("max_latency_ms", text(self.options.max_latency_ms));
        self.row("max_latency_ms", [wish, self.archive(millis(self.yaml.batching.max_latency))])
    }

    fn queue(&self) -> Row {
        let said = [
            self.wish("queue", text(self.options.queue_max)),
            self.archive(text(self.yaml.job_queue_size)),
            default(text(Some(self.about.defaults.queue_max))),
        ];
        self.row("queue", said)
    }

    /// The archive's word about its own times comes first.
    fn response_timeout(&self) -> Row {
        let said = [
            self.archive(seconds(self.yaml.response_timeout)),
            self.operator("responseTimeout"),
            self.wish("response_timeout", text(self.options.response_timeout_s)),
            default(text(Some(self.about.defaults.response_timeout_s))),
        ];
        self.row("response_timeout", said)
    }

    fn startup_timeout(&self) -> Row {
        let said = [
            self.archive(seconds(self.yaml.startup_timeout)),
            self.operator("startupTimeout"),
            self.wish("startup_timeout", text(self.options.startup_timeout_s)),
            default(text(Some(self.about.defaults.startup_timeout_s))),
        ];
        self.row("startup_timeout", said)
    }

    fn policy(&self, implied: &str) -> Row {
        let word = |policy: Option<PolicyName>| text(policy.map(PolicyName::as_str));
        let said = [
            self.wish("policy", word(self.options.policy)),
            self.archive(word(self.yaml.batching.policy)),
            default(word(self.about.defaults.policy)),
            default(text(Some(implied))),
        ];
        self.row("policy", said)
    }

    /// Told only where somebody spoke of them: most models share in no other way than by turns.
    fn shares(&self) -> Vec<Row> {
        let (options, own) = (&self.options, &self.yaml.batching);
        let cost = |cost: Option<Cost>| text(cost.map(Cost::as_str));
        let told = [
            ("tenants", weights(options.tenants.as_deref()), weights(own.tenants.as_deref())),
            ("cost", cost(options.cost), cost(own.cost)),
            ("max_cost", text(options.max_cost), text(own.max_cost)),
        ];
        let told = told.into_iter().filter(|(_, wish, own)| wish.is_some() || own.is_some());
        told.map(|(key, wish, own)| self.row(key, [self.wish(key, wish), self.archive(own)]))
            .collect()
    }
}

fn default(value: Option<String>) -> Said {
    value.map(|value| (value, Origin::Default))
}

/// An explicit delay asks for TorchServe's window, an objective or silence for adaptive.
fn implied(rows: &[Row]) -> &'static str {
    let said = |key: &str| rows.iter().any(|row| row.key == key && row.origin != Origin::Default);
    if said("max_batch_delay") && !said("max_latency_ms") { "window" } else { "adaptive" }
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
