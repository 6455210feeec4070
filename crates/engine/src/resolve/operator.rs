//! What the operator's `models={...}` of config.properties says about one version of a model.
//!
//! Apart from the rules of who wins because it is read from JSON that nobody has checked: what is
//! missing, of another type or zero counts as not said.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::settings::PolicyName;

/// What `models={...}` says about one version; only numbers above zero count.
#[derive(Default)]
pub(super) struct Operator<'a>(Option<&'a Map<String, Value>>);

impl<'a> Operator<'a> {
    pub(super) fn about(models: &'a Map<String, Value>, name: &str, version: &str) -> Self {
        Self(models.get(name).and_then(|versions| versions.get(version)).and_then(Value::as_object))
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        let value = self.0?.get(key)?;
        // A number in quotes counts too, as it does for TorchServe.
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.filter(|number| *number > 0)
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.0?.get(key)?.as_str()
    }

    /// `batching: {enabled, max_batch_size, max_latency_ms, policy}`, as everywhere else.
    fn batching(&self, key: &str) -> Option<&'a Value> {
        self.0?.get("batching")?.get(key)
    }

    pub(super) fn batch_size(&self) -> Option<u32> {
        if self.batching("enabled").and_then(Value::as_bool) == Some(false) {
            return Some(1);
        }
        let own = self.batching("max_batch_size").and_then(Value::as_u64);
        let own = own.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
        own.or(self.small("batchSize"))
    }

    pub(super) fn latency_max(&self) -> Option<Duration> {
        let ms = self.batching("max_latency_ms").and_then(Value::as_f64).filter(|ms| *ms > 0.0)?;
        Duration::try_from_secs_f64(ms / 1e3).ok()
    }

    pub(super) fn policy(&self) -> Option<PolicyName> {
        self.batching("policy").and_then(Value::as_str).and_then(|name| name.parse().ok())
    }

    pub(super) fn tenants(&self) -> Option<Vec<(String, u32)>> {
        let weight = |(name, weight): (&String, &Value)| {
            Some((name.clone(), u32::try_from(weight.as_u64()?).ok()?))
        };
        self.batching("tenants")?.as_object()?.iter().map(weight).collect()
    }

    pub(super) fn small(&self, key: &str) -> Option<u32> {
        u32::try_from(self.number(key)?).ok()
    }
}
