//! What can be changed of a server, by name, and what differs between two moments.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields as they were and as they are, by the names of what they belong to.
pub type FieldChanges = (Map<String, Value>, Map<String, Value>);

/// What can be changed, by name: versions of models as `model/version`, workflows, keys.
#[derive(Default)]
pub struct Changeable(BTreeMap<String, ChangeableEntry>);

/// One of them.
#[derive(Default, PartialEq)]
pub(crate) struct ChangeableEntry {
    /// Tells it from another one of the same name and fields.
    pub(crate) identity: usize,
    /// What is known of it.
    pub(crate) fields: Map<String, Value>,
}

impl FromIterator<(String, ChangeableEntry)> for Changeable {
    fn from_iter<I: IntoIterator<Item = (String, ChangeableEntry)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl Changeable {
    /// What differs from what is now, as it was and as it is: the fields that differ, or all where there is nothing
    /// on the other side. Where a model is named, others that change at the same time are left out.
    pub(crate) fn changed(&self, now: &Self, model: Option<&str>) -> FieldChanges {
        let about = |name: &str| match (model, name.rsplit_once('/')) {
            (Some(model), Some((found, _))) => found == model,
            (Some(_), None) | (None, _) => true,
        };
        let names = self.0.keys().chain(now.0.keys().filter(|name| !self.0.contains_key(*name)));
        let names = names.filter(|name| self.0.get(*name) != now.0.get(*name) && about(name));
        let side = |own: &Self, other: &Self, name: &String| {
            let Some(own) = own.0.get(name) else { return Value::Null };
            let other = other.0.get(name);
            let differ = own.fields.iter().filter(|(field, it)| {
                other.is_none_or(|other| other.fields.get(*field) != Some(*it))
            });
            Value::Object(differ.map(|(field, it)| (field.clone(), it.clone())).collect())
        };
        names
            .map(|name| {
                ((name.clone(), side(self, now, name)), (name.clone(), side(now, self, name)))
            })
            .unzip()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(identity: usize, versions: &Value) -> Changeable {
        let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let entry = |fields| ChangeableEntry { identity, fields: object(fields) };
        object(versions).iter().map(|(name, it)| (name.clone(), entry(it))).collect()
    }

    #[test]
    fn only_what_differs_is_told() {
        let before =
            state(0, &json!({ "a/1": { "min": 1, "max": 2 }, "b/1": { "min": 1 }, "c/1": {} }));
        let now =
            state(0, &json!({ "a/1": { "min": 2, "max": 2 }, "c/1": {}, "d/2": { "min": 3 } }));
        let (was, is) = before.changed(&now, None);
        assert_eq!(json!(was), json!({ "a/1": { "min": 1 }, "b/1": { "min": 1 }, "d/2": null }));
        assert_eq!(json!(is), json!({ "a/1": { "min": 2 }, "b/1": null, "d/2": { "min": 3 } }));
        let (was, is) = before.changed(&now, Some("a"));
        assert_eq!((was.len(), is.len()), (1, 1), "of one model only");
    }

    #[test]
    fn another_one_of_the_same_fields_is_told() {
        let of = |identity| state(identity, &json!({ "a/1": { "min": 1 } }));
        let (was, is) = of(1).changed(&of(2), None);
        assert_eq!((json!(was), json!(is)), (json!({ "a/1": {} }), json!({ "a/1": {} })));
        assert!(of(1).changed(&of(1), None).0.is_empty());
    }
}
