//! How registering, finding or running a workflow can go wrong, as facts with fields.

use crate::error::CallError;
use crate::store::{ShownUrl, StoreError};

use super::dag::DagError;

/// Why a workflow was not registered.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    /// Nothing is there.
    #[error("Workflow not found in workflow store: {url}")]
    NotFound {
        /// As the caller gave it.
        url: ShownUrl,
    },
    /// The archive could not be had.
    #[error(transparent)]
    Store(StoreError),
    /// The archive is no workflow.
    #[error("Invalid workflow archive: {0}")]
    Invalid(String),
    /// Its nodes have no order that a request could take.
    #[error(transparent)]
    Dag(#[from] DagError),
    /// The name is taken.
    #[error("Workflow {workflow} is already registered.")]
    Conflict {
        /// The name.
        workflow: String,
    },
    /// Some node did not come up; the others were taken down again.
    #[error("Workflow {workflow} has failed to register. Failures: [{}]", .failures.join(", "))]
    Failed {
        /// The workflow.
        workflow: String,
        /// A sentence per node.
        failures: Vec<String>,
    },
    /// The server is ending.
    #[error("the server is shutting down")]
    Draining,
}

impl From<StoreError> for WorkflowError {
    fn from(error: StoreError) -> Self {
        if let StoreError::NotFound(url) = error {
            Self::NotFound { url }
        } else if matches!(error, StoreError::EmptyUrl) {
            Self::NotFound { url: ShownUrl::default() }
        } else {
            Self::Store(error)
        }
    }
}

/// No workflow answers to this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Workflow not found: {workflow}")]
pub struct UnknownWorkflow {
    /// The name that was asked for.
    pub workflow: String,
}

/// Why a request of a workflow failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// A node failed as often as it may be tried.
    #[error("Error executing {node}: {why} ({attempts} attempts)")]
    Failed {
        /// The node.
        node: String,
        /// How often it was tried.
        attempts: u32,
        /// What went wrong last, for the client.
        why: String,
    },
    /// A node rejected the request, or its handler blames the client: trying again changes nothing.
    #[error("{model}: {error}")]
    Rejected {
        /// The node's model.
        model: String,
        /// How many requests may wait for it.
        queue_max: u32,
        /// Its error.
        error: CallError,
    },
}
