//! Workflows: models and functions in an order, answering one request together.
//!
//! [`spec`] and [`dag`] say what a workflow is, without touching anything; [`war`] reads one from its
//! archive; [`run`] takes a request through it. Every node is a model like any other, so queueing, batching,
//! isolation and limits are the models'. Nothing here starts a worker: `engine::workflows` registers the
//! nodes, and takes them away again.

mod course;
mod dag;
mod error;
mod run;
mod spec;
mod table;
mod war;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

pub(crate) use self::course::{Course, Node};
pub use self::dag::{Dag, DagError};
pub use self::error::{RunError, UnknownWorkflow, WorkflowError};
pub use self::spec::{ModelNode, NodeSettings, Spec};
pub(crate) use self::table::Table;
pub(crate) use self::war::War;

use crate::Rejection;
use crate::call::{Call, Output};
use crate::error::CallError;
use crate::store::Package;

/// What a caller asks when registering a workflow; everything but the url may be left out.
#[derive(Clone, Debug, Default)]
pub struct WorkflowOptions {
    /// File in the workflow store, directory or URL.
    pub url: String,
    /// Overrides the archive's own name.
    pub name: Option<String>,
    /// How long a batch of a node may run, and how long its workers may take to load.
    pub timeouts: jitney_settings::Values,
}

/// A registered workflow.
pub struct Workflow {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) spec: Spec,
    pub(crate) course: Arc<Course>,
    /// The engine refuses new requests.
    pub(crate) refusing: Arc<AtomicBool>,
    /// Requests on their way through; raised and lowered by [`Passage`] only.
    pub(crate) under_way: watch::Sender<usize>,
    /// The unpacked archive, where the functions' workers live.
    pub(crate) package: Package,
}

impl Workflow {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it came from, as it was asked for.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it is made of.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Takes one request through. Dropping the future means that the client went away: whatever is under
    /// way for it leaves its queues, and no further node is asked.
    pub async fn run(&self, call: Call) -> Result<Output, RunError> {
        let _passage = Passage::begin(&self.under_way);
        if self.refusing.load(Ordering::Relaxed) {
            let node = self.course.start();
            let error = CallError::Rejected { reason: Rejection::Draining, retry_after: None };
            return Err(node.refusal(error));
        }
        run::run(&self.course, call).await
    }

    /// Waits until nobody is on the way through, at most so long.
    pub(crate) async fn idle(&self, grace: Duration) {
        let mut under_way = self.under_way.subscribe();
        // The sender lives in this very workflow, so the only other end is the time-out.
        let _ = tokio::time::timeout(grace, under_way.wait_for(|count| *count == 0)).await;
    }
}

/// One request on its way through.
struct Passage<'a>(&'a watch::Sender<usize>);

impl<'a> Passage<'a> {
    fn begin(under_way: &'a watch::Sender<usize>) -> Self {
        under_way.send_modify(|count| *count += 1);
        Self(under_way)
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
