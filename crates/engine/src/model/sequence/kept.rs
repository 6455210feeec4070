//! The ids of the sequences that a model version keeps, for whoever looks for the version of a sequence. Apart from
//! the sequences themselves, which belong to the version's task.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by the task, which writes, and whoever asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptSequences(Arc<Mutex<HashSet<Arc<str>>>>);

impl KeptSequences {
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids().contains(id)
    }

    /// All of them, as they are now.
    pub(crate) fn all(&self) -> HashSet<Arc<str>> {
        self.ids().clone()
    }

    pub(super) fn insert(&self, id: &Arc<str>) {
        self.ids().insert(Arc::clone(id));
    }

    pub(super) fn remove(&self, id: &str) {
        self.ids().remove(id);
    }

    fn ids(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
