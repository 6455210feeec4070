//! Reads typed values out of a YAML mapping, and never fails: a value of the wrong type is said in
//! the log and then as good as absent, because that is what TorchServe's users know.

use std::time::Duration;

use serde_json::{Map, Value};

/// A mapping whose values are asked for by key and type.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// What stands in front of a key in the log: nothing, or `batching.`.
    prefix: &'static str,
}

impl<'a> Fields<'a> {
    /// The top of a document.
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, prefix: "" }
    }

    /// A mapping inside.
    pub(super) fn section(&self, key: &str, prefix: &'static str) -> Option<Self> {
        let map = self.typed(key, "a mapping", Value::as_object)?;
        Some(Self { map, prefix })
    }

    /// The keys, in their order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// A whole number; less than `floor` is raised to it.
    pub(super) fn raised(&self, key: &str, floor: u32) -> Option<u32> {
        let whole = self.typed(key, "a whole number", whole)?;
        Some(u32::try_from(whole).unwrap_or(0).max(floor))
    }

    /// A whole number; less than `least` counts as the wrong type.
    pub(super) fn at_least(&self, key: &str, least: u32) -> Option<u32> {
        let enough = |value: &Value| u32::try_from(whole(value)?).ok().filter(|n| *n >= least);
        let wanted = if least == 0 { "a whole number" } else { "a whole number above zero" };
        self.typed(key, wanted, enough)
    }

    /// Milliseconds; zero, and what is raised to zero, means that the key is not set.
    pub(super) fn batch_delay(&self, key: &str) -> Option<Duration> {
        let millis = self.raised(key, 0).filter(|millis| *millis > 0)?;
        Some(Duration::from_millis(millis.into()))
    }

    /// A number above zero, whole or not.
    pub(super) fn positive(&self, key: &str) -> Option<f64> {
        let positive = |value: &Value| value.as_f64().filter(|number| *number > 0.0);
        self.typed(key, "a number above zero", positive)
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// One of a few words, in any case.
    pub(super) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let wanted = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let chosen = |value: &Value| {
            let text = value.as_str()?;
            words
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(text))
                .map(|(_, choice)| *choice)
        };
        self.typed(key, &wanted, chosen)
    }

    /// A list of numbers from zero up; one wrong element spoils the list.
    pub(super) fn indices(&self, key: &str) -> Option<Vec<u32>> {
        let index = |value: &Value| u32::try_from(whole(value)?).ok();
        let indices = |value: &Value| value.as_array()?.iter().map(index).collect();
        self.typed(key, "a list of whole numbers", indices)
    }

    /// The one place that tells an absent value from a wrong one.
    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        let converted = convert(value);
        if converted.is_none() {
            let prefix = self.prefix;
            tracing::warn!(%value, "model config: {prefix}{key} should be {wanted}, ignored");
        }
        converted
    }
}

/// TorchServe's integers have 32 bits; anything else is not one.
fn whole(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok()
}
