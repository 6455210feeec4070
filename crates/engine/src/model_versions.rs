//! The versions of one model: which answers by default, how they share its requests, and which keeps a sequence.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use crate::error::LookupError;
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
    pub(crate) left: Option<LeftSequences>,
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
        let others = others.filter_map(|key| self.sharing(table, key));
        let left = self.left.clone().unwrap_or_default().with(others);
        self.left = Some(left).filter(|left| !left.is_empty());
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
        if split.is_none() && self.versions.len() < 2 && self.left.is_none() {
            return None;
        }
        let shares = split.iter().flat_map(|split| split.shares.keys());
        let others = shares.filter_map(|key| self.sharing(table, key));
        let mut all = self.versions.values().chain(others);
        let keeps = all.find(|model| model.keeps_sequence(id)).cloned();
        let keeps = keeps.or_else(|| self.left.as_ref()?.keeper(id));
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

/// Sequences of one model that began in another one, which had a share of its requests and has it no more: they stay
/// there until they end. Clients of the other model may use the same ids later, so that only those count that were
/// kept when the share went.
#[derive(Clone, Default)]
pub(crate) struct LeftSequences(Arc<Vec<LeftBehind>>);

/// What one model kept when its share went.
#[derive(Clone)]
struct LeftBehind {
    model: Weak<Model>,
    ids: HashSet<Arc<str>>,
}

impl LeftBehind {
    fn goes_on(&self) -> bool {
        let keeps = |model: Arc<Model>| self.ids.iter().any(|id| model.keeps_sequence(id));
        self.model.upgrade().is_some_and(keeps)
    }
}

impl LeftSequences {
    /// The model that keeps this sequence still.
    fn keeper(&self, id: &str) -> Option<Arc<Model>> {
        let mut found = self.0.iter().filter(|left| left.ids.contains(id));
        found.find_map(|left| left.model.upgrade().filter(|model| model.keeps_sequence(id)))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same and what these models keep now; what has ended goes.
    fn with<'a>(&self, models: impl Iterator<Item = &'a Arc<Model>>) -> Self {
        let now = models
            .filter_map(|model| Some((model, model.kept.as_ref()?.all())))
            .map(|(model, ids)| LeftBehind { model: Arc::downgrade(model), ids })
            .filter(|left| !left.ids.is_empty());
        Self(Arc::new(self.0.iter().filter(|left| left.goes_on()).cloned().chain(now).collect()))
    }
}
