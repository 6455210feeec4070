//! A DAG whose nodes are live models: all that a request needs to find its way through a workflow.

use std::sync::Arc;
use std::time::Duration;

use super::dag::Dag;
use super::error::RunError;
use crate::error::CallError;
use crate::model::Model;

/// A node and the model behind it.
pub(crate) struct Node {
    /// Its name in the DAG.
    pub(crate) name: String,
    pub(crate) model: Arc<Model>,
    /// How long one try may take.
    pub(crate) timeout: Duration,
    /// Tries after the first one.
    pub(crate) retries: u32,
}

impl Node {
    /// How a call that is not worth a second try is told.
    pub(crate) fn refusal(&self, error: CallError) -> RunError {
        let queue_max = self.model.settings().queue_max;
        RunError::Refused { model: self.model.name().to_owned(), queue_max, error }
    }
}

/// The nodes in the DAG's order.
pub(crate) struct Course {
    pub(crate) dag: Dag,
    pub(crate) nodes: Vec<Node>,
}

impl Course {
    /// The node that gets the request.
    pub(crate) fn start(&self) -> &Node {
        &self.nodes[self.dag.start()]
    }
}
