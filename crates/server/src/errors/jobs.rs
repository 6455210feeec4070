//! What can go wrong with jobs, as a client is told.

use std::time::Duration;

use jitney_jobs::JobError;

use super::{ErrorCode, Problem};

impl From<JobError> for Problem {
    fn from(error: JobError) -> Self {
        let full = |advice: &str| {
            let message = format!("No more jobs can be kept: {error}. {advice}");
            let retry_after = Some(Duration::from_secs(60));
            Self { retry_after, ..Self::new(ErrorCode::Busy, message) }
        };
        match &error {
            JobError::TooMany { .. }
            | JobError::TooManyOfKey { .. }
            | JobError::TooLarge { .. } => {
                full("Delete jobs whose results are read, or try again later. [reason: jobs_full]")
            }
            JobError::InUse { .. } => {
                full("Name another one with jobs_dir, or end that server. [reason: jobs_in_use]")
            }
            JobError::Away(_) => {
                let message = "Jobs cannot be reached: their database does not answer, or refuses. Try again later; the server's log says more. [reason: jobs_away]";
                let retry_after = Some(Duration::from_secs(10));
                Self { retry_after, ..Self::new(ErrorCode::Busy, message) }
            }
            JobError::BodyTooLarge { .. } => {
                Self::new(ErrorCode::TooLarge, format!("No job can be made of this: {error}."))
            }
            JobError::Folder { .. } => Self::new(
                ErrorCode::Internal,
                format!(
                    "No jobs can be kept: {error}. Name a folder with jobs_dir that the server may write."
                ),
            ),
            JobError::Store(_) | JobError::Random(_) => {
                Self::new(ErrorCode::Internal, format!("The server's log says more: {error}."))
            }
            JobError::OtherRequest => Self::new(
                ErrorCode::Conflict,
                "The Idempotency-Key belongs to a job with another request: send a new key with a new request.",
            ),
            JobError::Unknown => Self::new(
                ErrorCode::ResourceNotFound,
                "There is no such job: it never was, it was deleted, it has expired, or another key made it.",
            ),
            JobError::Ended => Self::new(ErrorCode::Ending, "The server is ending."),
        }
    }
}
