//! What workflows can say, in the table's terms.
//!
//! Apart from the table because a workflow fails in ways of its own; what its nodes refuse is told like
//! any other model's rejection, with the node's model named.

use jitney_engine::workflow::{RunError, UnknownWorkflow, WorkflowError};

use super::{ErrorCode, FailedCall, Problem, store};

impl From<UnknownWorkflow> for Problem {
    fn from(error: UnknownWorkflow) -> Self {
        Self::new(ErrorCode::WorkflowNotFound, error.to_string())
    }
}

impl From<WorkflowError> for Problem {
    fn from(error: WorkflowError) -> Self {
        let code = match &error {
            WorkflowError::NotFound { .. } => ErrorCode::WorkflowNotFound,
            WorkflowError::Store(error) => of_workflow(store::code(error)),
            WorkflowError::Invalid(_) => ErrorCode::InvalidWorkflow,
            WorkflowError::Dag(_) => ErrorCode::InvalidDag,
            WorkflowError::Conflict { .. } => ErrorCode::Conflict,
            WorkflowError::Failed { .. } => ErrorCode::WorkflowFailed,
            WorkflowError::Draining => ErrorCode::Ending,
        };
        Self::new(code, error.to_string())
    }
}

/// What is said about a model's archive, said about a workflow's.
fn of_workflow(code: ErrorCode) -> ErrorCode {
    if code == ErrorCode::ModelNotFound {
        ErrorCode::WorkflowNotFound
    } else if code == ErrorCode::InvalidModel {
        ErrorCode::InvalidWorkflow
    } else {
        code
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        match &error {
            RunError::Failed { .. } => Self::new(ErrorCode::NodeFailed, error.to_string()),
            RunError::Refused { model, queue_max, error } => {
                let queue_max = *queue_max;
                FailedCall { model, version: None, purpose: "inference", queue_max }.problem(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jitney_engine::Rejection;
    use jitney_engine::error::CallError;
    use jitney_engine::store::StoreError;
    use jitney_engine::workflow::DagError;

    use super::*;

    fn check(problem: impl Into<Problem>, status: u16, kind: &str, message: &str) {
        let problem = problem.into();
        let told = (problem.status, problem.code.row().kind, problem.message.as_str());
        assert_eq!(told, (status, kind, message));
    }

    #[test]
    fn registration_fails_in_torchserves_words() {
        let url = || "w.war".to_owned();
        let not_found = WorkflowError::from(StoreError::NotFound { url: url() });
        let words = "Workflow not found in workflow store: w.war";
        check(not_found, 404, "WorkflowNotFoundException", words);
        let corrupt = WorkflowError::Store(StoreError::Corrupt { url: url(), why: "cut".into() });
        let words = "Model archive is corrupt: w.war: cut";
        check(corrupt, 500, "InvalidWorkflowException", words);
        let conflict = WorkflowError::Conflict { workflow: "w".into() };
        let words = "Workflow w is already registered.";
        check(conflict, 409, "ConflictStatusException", words);
        let words = "Invalid workflow: dag names no node";
        check(WorkflowError::Dag(DagError::Empty), 400, "InvalidDAGException", words);
        let failures = vec!["one".to_owned(), "two".to_owned()];
        let failed = WorkflowError::Failed { workflow: "w".into(), failures };
        let words = "Workflow w has failed to register. Failures: [one, two]";
        check(failed, 500, "WorkflowException", words);
        let unknown = UnknownWorkflow { workflow: "w".into() };
        check(unknown, 404, "WorkflowNotFoundException", "Workflow not found: w");
    }

    #[test]
    fn a_node_that_refuses_is_told_like_any_other_model() {
        let error = CallError::Rejected { reason: Rejection::Expired, retry_after: None };
        let refused = RunError::Refused { model: "w__n".into(), queue_max: 9, error };
        let words =
            "Model \"w__n\" did not answer before the request's deadline. [reason: expired]";
        check(refused, 408, "RequestTimeoutException", words);
        let failed = RunError::Failed { node: "n".into(), attempts: 2, why: "Worker died.".into() };
        let words = "Error executing n: Worker died. (2 attempts)";
        check(failed, 500, "InternalServerException", words);
    }
}
