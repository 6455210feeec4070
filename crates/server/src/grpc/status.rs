//! A failure as a gRPC status. The code and the message come from `errors`.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::errors::{ErrorCode, Problem};

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let code = Code::from_i32(problem.grpc_code().into());
        let mut status = Self::new(code, problem.description());
        if let Some(wait) = problem.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let metadata = status.metadata_mut();
            metadata.insert("retry-after", MetadataValue::from(seconds));
            // The name by which gRPC's own retries know it.
            metadata.insert("grpc-retry-pushback-ms", MetadataValue::from(millis));
        }
        status
    }
}

/// A failure as Triton's clients read it: without the names of TorchServe's classes.
pub(super) fn for_triton(problem: Problem) -> Status {
    let message = problem.for_triton().into_owned();
    let reason = problem.reason.as_ref().map(|reason| format!("\n{reason}")).unwrap_or_default();
    let status = Status::from(problem);
    Status::with_metadata(status.code(), message + &reason, status.metadata().clone())
}

/// A path that leads to no service of this listener.
pub(super) fn unknown_service(path: &str) -> Status {
    let message = format!("There is no service for {path} on this port.");
    Problem::new(ErrorCode::ResourceNotFound, message).into()
}

/// The model API is off, in TorchServe's words.
pub(super) fn model_api_disabled() -> Problem {
    Problem::new(ErrorCode::MethodNotAllowed, "Model API disabled")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_rejection_has_a_retry_time() {
        let mut problem = Problem::new(ErrorCode::Busy, "busy");
        problem.retry_after = Some(Duration::from_millis(1500));
        let status = Status::from(problem);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "busy\norg.pytorch.serve.http.ServiceUnavailableException");
        assert_eq!(status.metadata().get("retry-after").unwrap(), "2");
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1500");
    }
}
