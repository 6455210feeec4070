//! Sequences of one model that began in another one, which had a share of its requests and has it no more: they stay
//! there until they end. Clients of the other model may use the same ids later, so that only those count that were
//! kept when the share went.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use crate::model::Model;

/// What began elsewhere, by the models that keep it.
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
    pub(crate) fn keeper(&self, id: &str) -> Option<Arc<Model>> {
        let mut found = self.0.iter().filter(|left| left.ids.contains(id));
        found.find_map(|left| left.model.upgrade().filter(|model| model.keeps_sequence(id)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same and what these models keep now; what has ended goes.
    pub(crate) fn with<'a>(&self, models: impl Iterator<Item = &'a Arc<Model>>) -> Self {
        let now = models
            .map(|model| LeftBehind { model: Arc::downgrade(model), ids: model.kept.all() })
            .filter(|left| !left.ids.is_empty());
        Self(Arc::new(self.0.iter().filter(|left| left.goes_on()).cloned().chain(now).collect()))
    }
}
