//! The messages of rejections. The reason is in brackets at the end, for scripts; "no worker" has
//! TorchServe's message, which clients know.

use std::time::Duration;

use jitney_engine::Rejection;
use jitney_engine::error::SequenceRejection;

use super::{ErrorCode, FailedCall, Problem};

impl FailedCall<'_> {
    /// A rejection by the batcher or the engine.
    pub(super) fn rejection(&self, reason: Rejection, retry_after: Option<Duration>) -> Problem {
        let (code, message) = match reason {
            Rejection::NoWorker => (ErrorCode::NoWorker, self.no_worker()),
            Rejection::QueueFull => (ErrorCode::Busy, self.queue_full()),
            Rejection::Hopeless => (
                ErrorCode::Busy,
                self.message("cannot answer before the request's deadline", "hopeless"),
            ),
            Rejection::Overload => (ErrorCode::Busy, self.message("is overloaded", "overload")),
            Rejection::Quota => {
                (ErrorCode::Quota, self.message("has reached its limit for this client", "quota"))
            }
            Rejection::Draining => {
                (ErrorCode::Ending, self.message("is shutting down", "draining"))
            }
            Rejection::Expired => (
                ErrorCode::Expired,
                self.message("did not answer before the request's deadline", "expired"),
            ),
            Rejection::TooLarge => (
                ErrorCode::TooLarge,
                self.message("has no batch that is large enough for this request", "too_large"),
            ),
            Rejection::Cancelled => (ErrorCode::Cancelled, self.cancelled()),
        };
        with_retry(code, message, retry_after)
    }

    /// A limit of the whole server is reached.
    pub(super) fn server_full(&self, what: &str) -> Problem {
        let message =
            format!("The server is at its limit of {what}. Try again later. [reason: crowded]");
        with_retry(ErrorCode::Busy, message, None)
    }

    /// A limit of sequences, or of a sequence's requests, is reached.
    pub(super) fn sequence(&self, rejection: SequenceRejection) -> Problem {
        let message = match rejection {
            SequenceRejection::TooMany { most } => {
                let full = format!(
                    "is at its limit of {most} sequences (maxNumSequence). Try again when one of them has \
                     ended"
                );
                self.message(&full, "too_many_sequences")
            }
            SequenceRejection::Backlog { most } => {
                let full = format!(
                    "is at its limit of {most} waiting requests of this sequence \
                     (maxSequenceJobQueueSize). Wait for answers before sending more"
                );
                self.message(&full, "sequence_queue_full")
            }
        };
        with_retry(ErrorCode::Busy, message, None)
    }

    /// The model was removed while the request was under way.
    pub(super) fn gone(&self) -> Problem {
        with_retry(ErrorCode::Ending, self.message("was unregistered", "gone"), None)
    }

    fn queue_full(&self) -> String {
        if self.queue_max == 0 {
            let busy = "has no queue and no free worker. Try again later";
            return self.message(busy, "queue_full");
        }
        let full = format!("has a full queue ({} waiting). Try again later", self.queue_max);
        self.message(&full, "queue_full")
    }

    fn cancelled(&self) -> String {
        format!("Model \"{}\": the client disconnected. [reason: cancelled]", self.model)
    }

    fn message(&self, what: &str, reason: &str) -> String {
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
