//! Registered workflows, and their table by name. Readers take no lock. A name stays taken from the moment
//! its registration begins until the last of its nodes is gone, so that two workflows never share one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::error::{RunError, UnknownWorkflow, WorkflowError};
use super::run::{self, NodeGraph};
use super::spec::WorkflowSpec;
use crate::Rejection;
use crate::call::{Call, Output};
use crate::error::CallError;
use crate::store::{Package, ShownUrl};

/// A registered workflow.
pub struct Workflow {
    pub(crate) name: String,
    pub(crate) url: ShownUrl,
    pub(crate) spec: WorkflowSpec,
    pub(crate) graph: Arc<NodeGraph>,
    /// The engine rejects new requests.
    pub(crate) rejecting: Arc<AtomicBool>,
    /// How many requests run; raised and lowered by [`RunGuard`] only.
    pub(crate) running: watch::Sender<usize>,
    /// The unpacked archive, where the functions' workers live.
    pub(crate) package: Package,
}

impl Workflow {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it came from, as it was asked for, without its secrets.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it is made of.
    pub fn spec(&self) -> &WorkflowSpec {
        &self.spec
    }

    /// Runs one request. Dropping the future means that the client went away: the request leaves all
    /// queues, and no further node is called.
    pub async fn run(&self, call: Call) -> Result<Output, RunError> {
        let _guard = RunGuard::new(&self.running);
        if self.rejecting.load(Ordering::Relaxed) {
            let node = self.graph.start();
            let error = CallError::Rejected { reason: Rejection::Draining, retry_after: None };
            return Err(node.rejection(error));
        }
        run::run(&self.graph, call).await
    }

    /// Waits until no request runs, at most so long.
    pub(crate) async fn idle(&self, grace: Duration) {
        let mut running = self.running.subscribe();
        // The sender lives in this workflow, so the only other end is the time-out.
        let _ = tokio::time::timeout(grace, running.wait_for(|count| *count == 0)).await;
    }
}

/// Counts a request while it runs.
struct RunGuard<'a>(&'a watch::Sender<usize>);

impl<'a> RunGuard<'a> {
    fn new(running: &'a watch::Sender<usize>) -> Self {
        running.send_modify(|count| *count += 1);
        Self(running)
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Names in use; a workflow that is coming or going has no entry to be found.
type WorkflowNames = BTreeMap<String, Option<Arc<Workflow>>>;

/// All workflows.
#[derive(Default)]
pub(crate) struct WorkflowTable {
    names: ArcSwap<WorkflowNames>,
    writers: Mutex<()>,
}

impl WorkflowTable {
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
    pub(crate) fn reserve(&self, name: &str) -> Result<ReservedName<'_>, WorkflowError> {
        self.change(|names| {
            if names.contains_key(name) {
                return Err(WorkflowError::Conflict { workflow: name.to_owned() });
            }
            names.insert(name.to_owned(), None);
            Ok(())
        })?;
        Ok(ReservedName { table: self, name: name.to_owned(), published: false })
    }

    /// Hides a workflow that is about to go; its name is free when the reservation is dropped.
    pub(crate) fn withdraw(
        &self,
        name: &str,
    ) -> Result<(Arc<Workflow>, ReservedName<'_>), UnknownWorkflow> {
        let found = self.change(|names| names.get_mut(name).and_then(Option::take));
        let workflow = found.ok_or_else(|| UnknownWorkflow { workflow: name.to_owned() })?;
        Ok((workflow, ReservedName { table: self, name: name.to_owned(), published: false }))
    }

    fn change<T>(&self, edit: impl FnOnce(&mut WorkflowNames) -> T) -> T {
        // The lock guards no data, so a panic of another writer leaves nothing half done.
        let _lock = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = WorkflowNames::clone(&self.names.load());
        let result = edit(&mut names);
        self.names.store(Arc::new(names));
        result
    }
}

/// A name that is taken, without a workflow. Free again when this is dropped.
pub(crate) struct ReservedName<'a> {
    table: &'a WorkflowTable,
    name: String,
    published: bool,
}

impl ReservedName<'_> {
    /// The workflow can be found from now on.
    pub(crate) fn publish(mut self, workflow: Arc<Workflow>) {
        self.published = true;
        self.table.change(|names| names.insert(self.name.clone(), Some(workflow)));
    }
}

impl Drop for ReservedName<'_> {
    fn drop(&mut self) {
        if !self.published {
            self.table.change(|names| names.remove(&self.name));
        }
    }
}
