//! What is remembered of each model of a repository: what it was loaded from, why it could not be, and what
//! the last look saw. Plain values under one lock that is never held across an await; a model's own loads
//! and unloads come one after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::model::Model;
use crate::settings::RegisterOptions;
use crate::store::FileStamp;

#[derive(Default)]
pub(super) struct ModelRecords(Mutex<BTreeMap<String, ModelRecord>>);

/// What is known of a name.
#[derive(Default)]
struct ModelRecord {
    /// How it is registered, if it was named by itself: once for every version.
    named: Vec<RegisterOptions>,
    /// What was loaded last, version by version.
    loaded: Vec<(Weak<Model>, Option<FileStamp>)>,
    /// The files of the last attempt, or of the moment at which it was unloaded: as long as they are the
    /// same there is nothing to do.
    settled: Option<FileStamp>,
    /// What the last look saw.
    seen: Option<FileStamp>,
    /// Looks in a row that did not see it.
    missing: u32,
    /// Why it is not loaded, if that is known.
    reason: Option<String>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What a look at the directories asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FollowStep {
    Load(String),
    Remove(String),
}

/// Looks in a row that must not see a model before it is gone: a copy may replace it in two steps.
const MISSING_MAX: u32 = 2;

impl ModelRecords {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ModelRecord>> {
        // Every change is a single assignment, so a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of the next change of a model that is known, here or in a directory.
    pub(super) fn turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().entry(name.to_owned()).or_default().turn)
    }

    pub(super) fn remember(&self, name: &str, options: RegisterOptions) {
        self.lock().entry(name.to_owned()).or_default().named.push(options);
    }

    pub(super) fn named(&self, name: &str) -> Vec<RegisterOptions> {
        self.lock().get(name).map(|record| record.named.clone()).unwrap_or_default()
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Why a model is not loaded.
    pub(super) fn reason(&self, name: &str) -> Option<String> {
        self.lock().get(name)?.reason.clone()
    }

    /// The version that was loaded from these files, if it is still there.
    pub(super) fn loaded_from(&self, name: &str, stamp: FileStamp) -> Option<Arc<Model>> {
        let records = self.lock();
        let loaded = &records.get(name)?.loaded;
        loaded.iter().find(|(_, from)| *from == Some(stamp))?.0.upgrade()
    }

    pub(super) fn loaded(
        &self,
        name: &str,
        stamp: Option<FileStamp>,
        versions: Vec<(Arc<Model>, Option<FileStamp>)>,
    ) {
        let mut records = self.lock();
        let record = records.entry(name.to_owned()).or_default();
        record.loaded =
            versions.iter().map(|(model, stamp)| (Arc::downgrade(model), *stamp)).collect();
        (record.settled, record.reason) = (stamp, None);
    }

    pub(super) fn failed(&self, name: &str, stamp: Option<FileStamp>, reason: String) {
        let mut records = self.lock();
        let record = records.entry(name.to_owned()).or_default();
        (record.settled, record.reason) = (stamp, Some(reason));
    }

    pub(super) fn unloaded(&self, name: &str, stamp: Option<FileStamp>) {
        self.failed(name, stamp, "unloaded".to_owned());
    }

    /// Forgets what came from a directory; what was named by itself stays known.
    pub(super) fn forget(&self, name: &str) {
        let mut records = self.lock();
        if records.get(name).is_some_and(|record| record.named.is_empty()) {
            records.remove(name);
        }
    }

    /// What a look asks for. Files that are not as the last look saw them may still be written to. Where
    /// not all could be `complete`ly seen nothing is missing.
    pub(super) fn follow(&self, found: &[(String, FileStamp)], complete: bool) -> Vec<FollowStep> {
        let (mut records, mut steps) = (self.lock(), Vec::new());
        for (name, stamp) in found {
            let record = records.entry(name.clone()).or_default();
            let stable = record.seen.replace(*stamp) == Some(*stamp);
            record.missing = 0;
            if stable && record.settled != Some(*stamp) {
                steps.push(FollowStep::Load(name.clone()));
            }
        }
        for (name, record) in records.iter_mut().filter(|_| complete) {
            let from_directory = record.seen.is_some() || record.settled.is_some();
            if !from_directory || found.iter().any(|(found, _)| found == name) {
                continue;
            }
            record.missing += 1;
            if record.missing == MISSING_MAX {
                (record.seen, record.settled) = (None, None);
                steps.push(FollowStep::Remove(name.clone()));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::models_of;

    /// Two stamps that differ.
    fn stamps() -> [FileStamp; 2] {
        let directory = tempfile::tempdir().unwrap();
        ["a", "longer"].map(|text| {
            std::fs::write(directory.path().join("m.onnx"), text).unwrap();
            models_of(directory.path()).unwrap()[0].stamp
        })
    }

    fn load() -> Vec<FollowStep> {
        vec![FollowStep::Load("m".to_owned())]
    }

    #[test]
    fn files_are_loaded_once_they_stand_still() {
        let ([one, other], records) = (stamps(), ModelRecords::default());
        let look = |stamp| records.follow(&[("m".to_owned(), stamp)], true);
        assert_eq!(look(one), [], "seen for the first time");
        assert_eq!(look(other), [], "still being written");
        assert_eq!(look(other), load());
        records.loaded("m", Some(other), Vec::new());
        assert_eq!(look(other), [], "nothing changed");
        assert_eq!(look(one), []);
        assert_eq!(look(one), load(), "a change is loaded");
        records.failed("m", Some(one), "broken".to_owned());
        assert_eq!(look(one), [], "what failed is not tried again until it changes");
    }

    #[test]
    fn what_was_unloaded_stays_so_until_its_files_change() {
        let ([one, other], records) = (stamps(), ModelRecords::default());
        records.loaded("m", Some(one), Vec::new());
        records.unloaded("m", Some(one));
        let look = |stamp| records.follow(&[("m".to_owned(), stamp)], true);
        assert_eq!((look(one), look(one)), (vec![], vec![]));
        assert_eq!(records.reason("m").as_deref(), Some("unloaded"));
        assert_eq!((look(other), look(other)), (vec![], load()));
    }

    #[test]
    fn what_is_gone_twice_is_removed() {
        let ([one, _], records) = (stamps(), ModelRecords::default());
        records.loaded("m", Some(one), Vec::new());
        records.remember("named", RegisterOptions::default());
        assert_eq!(
            records.follow(&[], false),
            [],
            "a directory that cannot be read removes nothing"
        );
        assert_eq!(records.follow(&[], true), []);
        assert_eq!(records.follow(&[], true), [FollowStep::Remove("m".to_owned())]);
        records.forget("m");
        assert_eq!(records.follow(&[], true), []);
        assert!(!records.knows("m") && records.knows("named"));
    }
}
