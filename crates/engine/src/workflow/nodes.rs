//! The nodes of a registered workflow: its DAG, and the model of each node.

use std::sync::Arc;
use std::time::Duration;

use super::dag::Dag;
use super::error::RunError;
use crate::error::CallError;
use crate::model::Model;

/// A node and the model behind it.
pub(crate) struct WorkflowNode {
    /// Its name in the DAG.
    pub(crate) name: String,
    pub(crate) model: Arc<Model>,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
    /// Attempts after the first one.
    pub(crate) retries: u32,
}

impl WorkflowNode {
    /// The error of a call that is not worth a second attempt.
    pub(crate) fn rejection(&self, error: CallError) -> RunError {
        let queue_max = self.model.settings().queue_max;
        RunError::Rejected { model: self.model.name().to_owned(), queue_max, error }
    }
}

/// The nodes in the DAG's order.
pub(crate) struct NodeGraph {
    pub(crate) dag: Dag,
    pub(crate) nodes: Vec<WorkflowNode>,
}

impl NodeGraph {
    /// The node that gets the request.
    pub(crate) fn start(&self) -> &WorkflowNode {
        &self.nodes[self.dag.start()]
    }
}
