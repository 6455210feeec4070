//! Names, versions, which version answers a request that names none, and the paths that definitions answer beside
//! those of their names.
//!
//! Readers are on the hot path and take no lock: they see one immutable table at a time. Writers
//! are rare, take turns, and publish a new table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::changes::Changes;
use crate::dependencies;
use crate::error::{LookupError, RegisterError, TrafficError, UnregisterError};
use crate::model::Model;
use crate::model_versions::{ModelTable, ModelVersions};
use crate::path_table::PathTable;
use crate::store::HttpPaths;
use crate::traffic_split::{Sticky, TrafficSplit};

/// All registered models.
#[derive(Default)]
pub(crate) struct Registry {
    table: ArcSwap<ModelTable>,
    /// The paths that default versions answer beside those of their names.
    paths: ArcSwap<PathTable>,
    /// Whether there are any, so that servers without them do not look.
    has_paths: AtomicBool,
    writers: Mutex<()>,
    /// Who is told of every change.
    pub(crate) changes: Changes,
}

impl Registry {
    /// The model that answers to this name, and version if one is asked for.
    pub(crate) fn find(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Arc<Model>, LookupError> {
        let table = self.table.load();
        let entry = table.get(name).ok_or_else(|| unknown_model(name))?;
        entry.find(name, version)
    }

    /// The model that answers a request: the version it names, else the one of its share, else the default.
    /// `key` is the hash of what the request is known by.
    #[inline]
    pub(crate) fn choose(
        &self,
        name: &str,
        version: Option<&str>,
        key: impl FnOnce(&Sticky) -> u64,
    ) -> Result<Arc<Model>, LookupError> {
        let table = self.table.load();
        let entry = table.get(name).ok_or_else(|| unknown_model(name))?;
        if let (None, Some(split)) = (version, &entry.split)
            && let Some(model) = entry.chosen(&table, split, key(&split.sticky))
        {
            return Ok(model);
        }
        entry.find(name, version)
    }

    /// The version that keeps this sequence, or that its share gives it, where several may.
    pub(crate) fn of_sequence(&self, name: &str, id: &str) -> Option<Arc<Model>> {
        let table = self.table.load();
        table.get(name)?.of_sequence(&table, id)
    }

    /// How the versions of a model share its traffic.
    pub(crate) fn split(&self, name: &str) -> Result<Option<Arc<TrafficSplit>>, LookupError> {
        let table = self.table.load();
        Ok(table.get(name).ok_or_else(|| unknown_model(name))?.split.clone())
    }

    /// Lets the versions of a model share its traffic, or the default have it all.
    pub(crate) fn set_split(
        &self,
        name: &str,
        split: Option<Arc<TrafficSplit>>,
    ) -> Result<(), TrafficError> {
        let _lock = self.lock();
        if let Some(split) = split.as_deref() {
            self.check_names(name, split)?;
        }
        self.put_split(name, split)
    }

    /// The same from a list of models: versions that it names may still be to come.
    pub(crate) fn bring_split(
        &self,
        name: &str,
        split: Arc<TrafficSplit>,
    ) -> Result<(), TrafficError> {
        let _lock = self.lock();
        self.put_split(name, Some(split))
    }

    fn put_split(&self, name: &str, split: Option<Arc<TrafficSplit>>) -> Result<(), TrafficError> {
        let table = self.table.load();
        let mut entry = table.get(name).ok_or_else(|| unknown_model(name))?.clone();
        if let Some(split) = split.as_deref() {
            entry.check_rules(&table, split).map_err(TrafficError::BadRules)?;
            let shadow = split.shadow.as_ref().and_then(|it| entry.versions.get(&it.version));
            shadow.iter().for_each(|version| version.shadow().forget());
        }
        entry.set_split(&table, split);
        self.change(|table| drop(table.insert(name.to_owned(), entry)));
        Ok(())
    }

    /// Whether everything is there that shares name.
    fn check_names(&self, name: &str, split: &TrafficSplit) -> Result<(), LookupError> {
        let table = self.table.load();
        let entry = table.get(name).ok_or_else(|| unknown_model(name))?;
        for key in split.shares.keys() {
            if entry.sharing(&table, key).is_none() {
                let other = key.split_once('/');
                other.map_or_else(
                    || self.find(name, Some(key)),
                    |(model, version)| self.find(model, Some(version)),
                )?;
            }
        }
        if let Some(rule) = &split.shadow {
            rule.same.model().map(|judge| self.find(judge, None)).transpose()?;
            self.find(name, Some(&rule.version))?;
        }
        Ok(())
    }

    /// The same, unless somebody else has changed the shares since they were `before`.
    pub(crate) fn replace_split(
        &self,
        name: &str,
        before: &Arc<TrafficSplit>,
        split: Option<Arc<TrafficSplit>>,
    ) {
        let now = self.split(name).ok().flatten();
        if now.is_some_and(|now| Arc::ptr_eq(&now, before)) {
            // Its versions were found when the shares were set, and one that went since counts for nothing.
            let _ = self.set_split(name, split);
        }
    }

    /// Another model that has a share of this one.
    pub(crate) fn share_of_another(&self, name: &str) -> Option<String> {
        let table = self.table.load();
        let entry = table.get(name)?;
        Some(entry.share_of_another(&table, entry.split.as_ref()?)?.to_owned())
    }

    /// The shares that have rules, by the names of their models.
    pub(crate) fn watched_splits(&self) -> Vec<(String, Arc<TrafficSplit>)> {
        let table = self.table.load();
        let watched = table.iter().filter_map(|(name, entry)| {
            let split = entry.split.as_ref().filter(|split| split.returns.is_some())?;
            Some((name.clone(), Arc::clone(split)))
        });
        watched.collect()
    }

    /// Every version of a model, the oldest first as far as their names show.
    pub(crate) fn versions(&self, name: &str) -> Result<Vec<Arc<Model>>, LookupError> {
        let table = self.table.load();
        let entry = table.get(name).ok_or_else(|| unknown_model(name))?;
        let mut versions: Vec<_> = entry.versions.values().cloned().collect();
        versions.sort_by(|a, b| age(a.version()).cmp(age(b.version())));
        Ok(versions)
    }

    /// The default version of every model, sorted by name.
    pub(crate) fn defaults(&self) -> Vec<Arc<Model>> {
        let table = self.table.load();
        let mut models: Vec<_> = table
            .values()
            .filter_map(|entry| entry.versions.get(&entry.default))
            .cloned()
            .collect();
        models.sort_by(|a, b| a.name().cmp(b.name()));
        models
    }

    /// Every version of every model, by name and age, and whether it is its model's default.
    pub(crate) fn listed(&self) -> Vec<(Arc<Model>, bool)> {
        let table = self.table.load();
        let mut listed: Vec<_> = table
            .values()
            .flat_map(|entry| {
                let is_default = |model: &Arc<Model>| model.version() == entry.default;
                entry.versions.values().map(move |model| (Arc::clone(model), is_default(model)))
            })
            .collect();
        listed.sort_by(|(a, _), (b, _)| {
            a.name().cmp(b.name()).then_with(|| age(a.version()).cmp(age(b.version())))
        });
        listed
    }

    /// Every version of every model, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Model>> {
        self.table.load().values().flat_map(|entry| entry.versions.values().cloned()).collect()
    }

    /// Whether this name and version are taken.
    pub(crate) fn taken(&self, name: &str, version: &str) -> bool {
        self.table.load().get(name).is_some_and(|entry| entry.versions.contains_key(version))
    }

    /// The paths that models answer beside those of their names, if there are any.
    #[inline]
    pub(crate) fn paths(&self) -> Option<Arc<PathTable>> {
        self.has_paths.load(Ordering::Relaxed).then(|| self.paths.load_full())
    }

    /// Lets another version answer by default.
    pub(crate) fn set_default(&self, name: &str, version: &str) -> Result<(), LookupError> {
        let _lock = self.lock();
        self.find(name, Some(version))?;
        self.change(|table| {
            if let Some(entry) = table.get_mut(name) {
                entry.default = version.to_owned();
            }
        });
        Ok(())
    }

    /// Takes a version out (the default one if none is named) and returns it.
    pub(crate) fn remove(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Arc<Model>, UnregisterError> {
        let _lock = self.lock();
        let model = self.find(name, version)?;
        let is_default = Arc::ptr_eq(&model, &self.find(name, None)?);
        if is_default && self.versions(name)?.len() > 1 {
            return Err(UnregisterError::DefaultVersion { model: name.to_owned() });
        }
        self.check_unneeded(&model)?;
        self.take_out(&model);
        Ok(model)
    }

    /// A model stays while another calls it, unless that can call another version as well.
    fn check_unneeded(&self, model: &Arc<Model>) -> Result<(), UnregisterError> {
        let is_last = self.versions(model.name())?.len() == 1;
        let needs = |caller: &&Arc<Model>| {
            let mut needed = caller.depends_on().iter();
            needed
                .any(|it| it.is(model.name(), model.version()) && (is_last || it.version.is_some()))
        };
        let models = self.all();
        match dependencies::callers(&models, model).find(needs) {
            None => Ok(()),
            Some(caller) => Err(UnregisterError::Needed {
                model: model.name().to_owned(),
                version: model.version().to_owned(),
                caller: caller.name().to_owned(),
            }),
        }
    }

    /// Lets exactly these versions of a name be found, the last of them by default, and returns those that
    /// no longer are. Nobody sees a moment between.
    pub(crate) fn replace(&self, name: &str, models: &[Arc<Model>]) -> Vec<Arc<Model>> {
        let _lock = self.lock();
        let before = self.versions(name).unwrap_or_default();
        self.change(|table| match models.last() {
            None => drop(table.remove(name)),
            Some(last) => {
                let named = |model: &Arc<Model>| (model.version().to_owned(), Arc::clone(model));
                let versions = models.iter().map(named).collect();
                let entry = table.entry(name.to_owned()).or_default();
                let brought = entry.brought_by(last);
                (entry.default, entry.versions) = (last.version().to_owned(), versions);
                if let Some(split) = brought {
                    entry.split = Some(split);
                }
            }
        });
        let stays = |model: &Arc<Model>| models.iter().any(|other| Arc::ptr_eq(model, other));
        before.into_iter().filter(|model| !stays(model)).collect()
    }

    /// Lets a version be found, in the place of `old` if that is found still. Where `old` answered by default,
    /// or nothing did, the new one does; all other versions stay. Nobody sees a moment between.
    pub(crate) fn exchange(
        &self,
        old: Option<&Arc<Model>>,
        new: &Arc<Model>,
    ) -> Result<(), RegisterError> {
        let _lock = self.lock();
        let (name, version) = (new.name(), new.version());
        let old = old.filter(|old| self.holds(old));
        let in_the_way = self.find(name, Some(version)).ok();
        if in_the_way.is_some_and(|other| !old.is_some_and(|old| Arc::ptr_eq(old, &other))) {
            let (model, version) = (name.to_owned(), version.to_owned());
            return Err(RegisterError::Conflict { model, version });
        }
        self.check_paths(new)?;
        let table = self.table.load();
        let mut entry = table.get(name).cloned().unwrap_or_else(|| ModelVersions {
            default: version.to_owned(),
            ..ModelVersions::default()
        });
        let brought = entry.brought_by(new);
        if let Some(old) = old {
            entry.versions.remove(old.version());
            if entry.default == old.version() {
                entry.default = version.to_owned();
            }
        }
        entry.versions.insert(version.to_owned(), Arc::clone(new));
        if let Some(split) = brought {
            entry.check_rules(&table, &split).map_err(RegisterError::BadSettings)?;
            entry.set_split(&table, Some(split));
        }
        self.change(|table| drop(table.insert(name.to_owned(), entry)));
        Ok(())
    }

    /// Takes exactly this model out, whether it answers by default or not: then the newest of the others
    /// does. False if it is not found.
    pub(crate) fn withdraw(&self, model: &Arc<Model>) -> bool {
        let _lock = self.lock();
        let found = self.holds(model);
        if found {
            self.take_out(model);
        }
        found
    }

    fn take_out(&self, model: &Arc<Model>) {
        let others = self.versions(model.name()).unwrap_or_default();
        let mut others = others.iter().rev().filter(|other| !Arc::ptr_eq(other, model));
        let newest = others.next().map(|other| other.version().to_owned());
        self.change(|table| {
            if let Some(entry) = table.get_mut(model.name()) {
                entry.versions.remove(model.version());
                if let Some(newest) = newest.filter(|_| entry.default == model.version()) {
                    entry.default = newest;
                }
            }
            table.retain(|_, entry| !entry.versions.is_empty());
        });
    }

    /// Whether this very model is found.
    pub(crate) fn holds(&self, model: &Arc<Model>) -> bool {
        let found = self.find(model.name(), Some(model.version()));
        found.is_ok_and(|found| Arc::ptr_eq(&found, model))
    }

    /// Whether no other model, in any version, answers a path that this one wants.
    fn check_paths(&self, model: &Model) -> Result<(), RegisterError> {
        let Some(api) = model.api().filter(|api| api.http != HttpPaths::default()) else {
            return Ok(());
        };
        let wanted = PathTable::of([(model.name(), api)]);
        for other in self.all().iter().filter(|other| other.name() != model.name()) {
            let Some(api) = other.api() else { continue };
            if let Some(path) = wanted.shared_with(&PathTable::of([(other.name(), api)])) {
                let (model, owner) = (model.name().to_owned(), other.name().to_owned());
                return Err(RegisterError::PathTaken { model, path: path.to_owned(), owner });
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data, so a panic of another writer leaves nothing half done.
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, edit: impl FnOnce(&mut ModelTable)) {
        let mut table = ModelTable::clone(&self.table.load());
        edit(&mut table);
        for entry in table.values() {
            let new = entry.versions.values().filter(|model| model.unnamed.get().is_none());
            new.for_each(|model| drop(model.unnamed.set(Arc::clone(&entry.unnamed))));
            for (version, model) in &entry.versions {
                model.set_split(version, entry.split.as_ref());
            }
        }
        let defaults = table.values().filter_map(|entry| entry.versions.get(&entry.default));
        let described = defaults.filter_map(|model| Some((model.name(), model.api()?)));
        let paths = PathTable::of(described);
        self.has_paths.store(!paths.is_empty(), Ordering::Relaxed);
        self.paths.store(Arc::new(paths));
        self.table.store(Arc::new(table));
        self.changes.note();
    }
}

/// The parts of a version: numbers by their size, before text by its letters.
fn age(version: &str) -> impl Iterator<Item = (bool, u64, &str)> {
    version.split(['.', '-']).map(|part| match part.parse() {
        Ok(number) => (false, number, ""),
        Err(_) => (true, 0, part),
    })
}

fn unknown_model(name: &str) -> LookupError {
    LookupError::UnknownModel { model: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut versions = ["2.0", "1.11", "1.2.1", "1.2", "1.2-beta", "a", "10"];
        versions.sort_by(|a, b| age(a).cmp(age(b)));
        assert_eq!(versions, ["1.2", "1.2.1", "1.2-beta", "1.11", "2.0", "10", "a"]);
    }
}
