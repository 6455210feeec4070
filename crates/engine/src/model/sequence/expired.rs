//! The ids of sequences whose time was over: a client that goes on with one is told, instead of being
//! answered by a worker that remembers nothing. The oldest are forgotten, so that there is a bound.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Ids that are remembered.
const IDS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct ExpiredIds {
    ids: HashSet<Arc<str>>,
    /// Oldest first; one that was taken out again may still stand here.
    order: VecDeque<Arc<str>>,
}

impl ExpiredIds {
    pub(super) fn insert(&mut self, id: Arc<str>) {
        if self.order.len() >= IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.order.push_back(Arc::clone(&id));
        self.ids.insert(id);
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// A client begins a new sequence of this id.
    pub(super) fn remove(&mut self, id: &str) {
        self.ids.remove(id);
    }
}
