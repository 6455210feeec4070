//! The words of a rejection: an early no that says why and when to come again.
//!
//! Apart from the table because every reason has its own sentence. The reason's word stands in
//! brackets at the end, for scripts; "no worker" keeps TorchServe's sentence, which clients know.

use std::time::Duration;

use jitney_engine::Rejection;
use jitney_engine::error::SequenceRejection;

use super::{ErrorCode, FailedCall, Problem};

impl FailedCall<'_> {
    /// How a rejection by the batcher or the engine is told.
    pub(super) fn rejection(&self, reason: Rejection, retry_after: Option<Duration>) -> Problem {
        let (code, message) = match reason {
            Rejection::NoWorker => (ErrorCode::NoWorker, self.no_worker()),
            Rejection::QueueFull => (ErrorCode::Busy, self.queue_full()),
            Rejection::Hopeless => {
                (ErrorCode::Busy, self.says("cannot answer before the deadline", "hopeless"))
            }
            Rejection::Overload => {
                (ErrorCode::Busy, self.says("has more work than it can do in time", "overload"))
            }
            Rejection::Quota => {
                (ErrorCode::Quota, self.says("has used up this client's share", "quota"))
            }
            Rejection::Draining => (ErrorCode::Ending, self.says("is shutting down", "draining")),
            Rejection::Expired => (
                ErrorCode::Expired,
                self.says("did not answer before the request's deadline", "expired"),
            ),
            Rejection::TooLarge => (
                ErrorCode::TooLarge,
                self.says("has no batch large enough for this request", "too_large"),
            ),
            Rejection::Cancelled => {
                (ErrorCode::Cancelled, self.says("was left by its client", "cancelled"))
            }
        };
        with_retry(code, message, retry_after)
    }

    /// A server-wide limit was met.
    pub(super) fn crowded(&self, what: &str) -> Problem {
        let message = format!(
            "The server holds as many {what} as it may. Try again later. [reason: crowded]"
        );
        with_retry(ErrorCode::Busy, message, None)
    }

    /// A sequence, or a request of one, found no room.
    pub(super) fn sequence(&self, rejection: SequenceRejection) -> Problem {
        let message = match rejection {
            SequenceRejection::TooMany { most } => {
                let full = format!(
                    "serves as many sequences as it may ({most}, maxNumSequence). Try again when \
                     one of them has ended"
                );
                self.says(&full, "too_many_sequences")
            }
            SequenceRejection::Backlog { most } => {
                let full = format!(
                    "holds as many waiting requests of this sequence as it may ({most}, \
                     maxSequenceJobQueueSize). Wait for answers before sending more"
                );
                self.says(&full, "sequence_queue_full")
            }
        };
        with_retry(ErrorCode::Busy, message, None)
    }

    /// The model was removed while the request was under way.
    pub(super) fn gone(&self) -> Problem {
        with_retry(ErrorCode::Ending, self.says("was unregistered", "gone"), None)
    }

    fn queue_full(&self) -> String {
        if self.queue_max == 0 {
            let busy = "takes a request only when a worker is free for it. Try again later";
            return self.says(busy, "queue_full");
        }
        let full = format!("has a full queue ({} waiting). Try again later", self.queue_max);
        self.says(&full, "queue_full")
    }

    fn says(&self, what: &str, reason: &str) -> String {
        format!("Model \"{}\" {what}. [reason: {reason}]", self.model)
    }

    /// TorchServe's own sentence, with its stray quote after the version.
    fn no_worker(&self) -> String {
        let FailedCall { model, purpose, .. } = self;
        let version =
            self.version.map(|version| format!(" Version {version}\"")).unwrap_or_default();
        let advice = "Please use scale workers API to add workers.";
        let more = match *purpose {
            "inference" => {
                " If this is a sequence inference, please check if it is closed, or expired; \
                 or exceeds maxSequenceJobQueueSize"
            }
            _ => "",
        };
        format!(
            "Model \"{model}\"{version} has no worker to serve {purpose} request. {advice}{more}"
        )
    }
}

/// Retry-After goes with everything that may succeed later: at least one second, in whole ones.
fn with_retry(code: ErrorCode, message: String, retry_after: Option<Duration>) -> Problem {
    let mut problem = Problem::new(code, message);
    if code.row().retryable {
        problem.retry_after = Some(retry_after.unwrap_or_default().max(Duration::from_secs(1)));
    }
    problem
}
