//! The versions of one model: which answers by default, how they share its requests, and which keeps a sequence.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::LookupError;
use crate::left_sequences::LeftSequences;
use crate::model::{Model, Traffic};
use crate::traffic_split::{TrafficSplit, hash};

/// All models by their names.
pub(crate) type ModelTable = HashMap<String, ModelVersions>;

#[derive(Clone, Default)]
pub(crate) struct ModelVersions {
    pub(crate) default: String,
    pub(crate) versions: BTreeMap<String, Arc<Model>>,
    /// Calls that name no version. They are the name's: neither another default nor the end of a version makes them
    /// start anew.
    pub(crate) unnamed: Arc<Traffic>,
    /// How its versions share the calls that name none; else the default answers them.
    pub(crate) split: Option<Arc<TrafficSplit>>,
    /// Sequences that began in other models, which have no share any more.
    pub(crate) left: LeftSequences,
}

impl ModelVersions {
    pub(crate) fn find(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Arc<Model>, LookupError> {
        let version = version.unwrap_or(&self.default);
        self.versions.get(version).cloned().ok_or_else(|| LookupError::UnknownVersion {
            model: name.to_owned(),
            version: version.to_owned(),
        })
    }

    /// The shares that a new version brings, unless they are known: one of the versions that are there, or that it
    /// takes the place of, brought the same. What became of those since, by hand or by itself, stays.
    pub(crate) fn brought_by(&self, new: &Model) -> Option<Arc<TrafficSplit>> {
        let settings = new.settings();
        let split = settings.traffic.as_ref()?;
        let known = |old: &Arc<Model>| old.settings().traffic.as_deref() == Some(&**split);
        (!self.versions.values().any(known)).then(|| Arc::clone(split))
    }

    /// Lets its versions share the requests like this.
    pub(crate) fn set_split(&mut self, table: &ModelTable, split: Option<Arc<TrafficSplit>>) {
        let before = self.split.as_ref();
        let others = before.iter().flat_map(|split| split.shares.keys());
        let others = others.filter(|key| !self.versions.contains_key(*key));
        self.left = self.left.with(others.filter_map(|key| self.sharing(table, key)));
        self.split = split;
    }

    /// The version that its share gives to this hash, of those that take requests.
    pub(crate) fn chosen(
        &self,
        table: &ModelTable,
        split: &TrafficSplit,
        hash: u64,
    ) -> Option<Arc<Model>> {
        let able = |key: &str| self.sharing(table, key).filter(|it| it.can_be_asked());
        split.choose(hash, able).cloned()
    }

    /// What a share names: a version of this model, else another model, by `NAME` its default version or by
    /// `NAME/VERSION` a certain one. The shares of that one do not count.
    pub(crate) fn sharing<'a>(
        &'a self,
        table: &'a ModelTable,
        key: &str,
    ) -> Option<&'a Arc<Model>> {
        self.versions.get(key).or_else(|| {
            let (name, version) = key.split_once('/').unzip();
            let other = table.get(name.unwrap_or(key))?;
            other.versions.get(version.unwrap_or(&other.default))
        })
    }

    /// The version that keeps this sequence, or that its share gives it. Whatever the shares and the default are by
    /// now, it stays where it began.
    pub(crate) fn of_sequence(&self, table: &ModelTable, id: &str) -> Option<Arc<Model>> {
        let split = self.split.as_ref();
        if split.is_none() && self.versions.len() < 2 && self.left.is_empty() {
            return None;
        }
        let shares = split.iter().flat_map(|split| split.shares.keys());
        let others = shares.filter_map(|key| self.sharing(table, key));
        let mut all = self.versions.values().chain(others);
        let keeps = all.find(|model| model.keeps_sequence(id)).cloned();
        let keeps = keeps.or_else(|| self.left.keeper(id));
        keeps.or_else(|| self.chosen(table, split?, hash(id.as_bytes())))
    }

    /// Whether the rules that go with shares can be kept.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn check_rules(
        &self,
        table: &ModelTable,
        split: &TrafficSplit,
    ) -> Result<(), String> {
        // Versions are compared with the default one of their model, and other models have none in common.
        if split.returns.is_some()
            && let Some(other) = self.share_of_another(table, split)
        {
            return Err(format!(
                "traffic: return and promote compare versions of one model, and {other} is another model; leave them out, or serve it as a version"
            ));
        }
        Ok(())
    }

    /// A share of another model, if there is one.
    pub(crate) fn share_of_another<'a>(
        &self,
        table: &ModelTable,
        split: &'a TrafficSplit,
    ) -> Option<&'a str> {
        let mut keys = split.shares.keys().map(String::as_str);
        keys.find(|key| !self.versions.contains_key(*key) && self.sharing(table, key).is_some())
    }
}
