//! Workflows: models and functions in an order, answering one request together.
//!
//! `spec` and `dag` describe a workflow; `archive` reads one from its archive; `run` runs a request. Every
//! node is a model like any other, so queueing, batching, isolation and limits are the models'. Nothing
//! here starts a worker: `engine::workflows` registers the nodes and removes them.

mod dag;
mod error;
mod registered;
mod run;
mod spec;

#[cfg(test)]
mod tests;

pub use self::dag::{Dag, DagError};
pub use self::error::{RunError, UnknownWorkflow, WorkflowError};
pub use self::registered::Workflow;
pub(crate) use self::registered::WorkflowTable;
pub(crate) use self::run::{NodeGraph, WorkflowNode};
pub(crate) use self::spec::WorkflowArchive;
pub use self::spec::{ModelNode, NodeSettings, WorkflowSpec};

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
