//! The workflows by name. Readers take no lock; a name stays taken from the moment its registration
//! begins until the last of its nodes is gone, so that two workflows never share one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::{UnknownWorkflow, Workflow, WorkflowError};

/// Names in use; a workflow that is coming or going has no entry to be found.
type Names = BTreeMap<String, Option<Arc<Workflow>>>;

/// All workflows.
#[derive(Default)]
pub(crate) struct Table {
    names: ArcSwap<Names>,
    writers: Mutex<()>,
}

impl Table {
    /// The workflow of this name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Workflow>, UnknownWorkflow> {
        let found = self.names.load().get(name).cloned().flatten();
        found.ok_or_else(|| UnknownWorkflow { workflow: name.to_owned() })
    }

    /// All that can be found, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Workflow>> {
        self.names.load().values().flatten().cloned().collect()
    }

    /// Takes a name for a workflow to come.
    pub(crate) fn reserve(&self, name: &str) -> Result<Place<'_>, WorkflowError> {
        self.change(|names| {
            if names.contains_key(name) {
                return Err(WorkflowError::Conflict { workflow: name.to_owned() });
            }
            names.insert(name.to_owned(), None);
            Ok(())
        })?;
        Ok(Place { table: self, name: name.to_owned(), settled: false })
    }

    /// Hides a workflow that is about to go; its name is free when the place is dropped.
    pub(crate) fn withdraw(
        &self,
        name: &str,
    ) -> Result<(Arc<Workflow>, Place<'_>), UnknownWorkflow> {
        let found = self.change(|names| names.get_mut(name).and_then(Option::take));
        let workflow = found.ok_or_else(|| UnknownWorkflow { workflow: name.to_owned() })?;
        Ok((workflow, Place { table: self, name: name.to_owned(), settled: false }))
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Names) -> T) -> T {
        // The lock guards no data, so a panic of another writer leaves nothing half done.
        let _turn = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = Names::clone(&self.names.load());
        let result = edit(&mut names);
        self.names.store(Arc::new(names));
        result
    }
}

/// A name that is taken by nobody yet, or by nobody any more. Free again when this is dropped.
pub(crate) struct Place<'a> {
    table: &'a Table,
    name: String,
    settled: bool,
}

impl Place<'_> {
    /// The workflow can be found from now on.
    pub(crate) fn settle(mut self, workflow: Arc<Workflow>) {
        self.settled = true;
        self.table.change(|names| names.insert(self.name.clone(), Some(workflow)));
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.table.change(|names| names.remove(&self.name));
        }
    }
}
