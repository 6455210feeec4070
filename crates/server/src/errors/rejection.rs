//! The messages of rejections. The reason is in brackets at the end, for scripts; "no worker" has
//! TorchServe's message, which clients know.

use std::time::Duration;

use jitney_engine::Rejection;
use jitney_engine::error::{CallError, SequenceRejection};
use jitney_settings::server::FullStatus;

use super::{ErrorCode, FailedCall, Problem};

impl Problem {
    /// A request that found a full queue, with the status that the operator chose for that.
    pub(crate) fn of_queue(self, error: &CallError, status: FullStatus) -> Self {
        let full = matches!(error, CallError::Rejected { reason: Rejection::QueueFull, .. });
        match status {
            FullStatus::TooManyRequests if full => {
                Self { status: 429, code: ErrorCode::Quota, ..self }
            }
            FullStatus::TooManyRequests | FullStatus::Unavailable => self,
        }
    }
}

impl FailedCall<'_> {
    /// A rejection by the batcher or the engine.
    pub(super) fn rejection(&self, reason: Rejection, retry_after: Option<Duration>) -> Problem {
        let deadline = "answer before the request's deadline";
        let (code, text) = match reason {
            Rejection::NoWorker => {
                return with_retry(ErrorCode::NoWorker, self.no_worker(), retry_after);
            }
            Rejection::QueueFull => (ErrorCode::Busy, self.queue_full()),
            Rejection::Infeasible => (ErrorCode::Busy, format!(" cannot {deadline}")),
            Rejection::Overload => (ErrorCode::Busy, " is overloaded".to_owned()),
            Rejection::Quota => {
                (ErrorCode::Quota, " has reached its limit for this client".to_owned())
            }
            Rejection::Draining => (ErrorCode::Ending, " is shutting down".to_owned()),
            Rejection::Expired => (ErrorCode::Expired, format!(" did not {deadline}")),
            Rejection::TooLarge => {
                let text = " has no batch that is large enough for this request";
                (ErrorCode::TooLarge, text.to_owned())
            }
            Rejection::Cancelled => (ErrorCode::Cancelled, ": the client disconnected".to_owned()),
        };
        with_retry(code, self.message(&text, reason.as_str()), retry_after)
    }

    /// The request has made workers exit before.
    pub(super) fn poisonous(&self) -> Problem {
        let text = " is not given this request again for some minutes: it has made its workers exit. Send a \
                    different one";
        Problem::bad_request(self.message(text, "poison"))
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
                    " is at its limit of {most} sequences (maxNumSequence). Try again when one of them has \
                     ended"
                );
                self.message(&full, "too_many_sequences")
            }
            SequenceRejection::Backlog { most } => {
                let full = format!(
                    " is at its limit of {most} waiting requests of this sequence \
                     (maxSequenceJobQueueSize). Wait for answers before sending more"
                );
                self.message(&full, "sequence_queue_full")
            }
            SequenceRejection::Expired => {
                let over = " has ended this sequence: it was silent for too long (sequenceMaxIdleMSec) or \
                            lasted too long (sequenceTimeoutMSec). Begin another one";
                self.message(over, "sequence_expired")
            }
            SequenceRejection::Unknown => {
                let lost = " does not hold this sequence: it began at another server, or before this one was \
                            started. Begin another one";
                return Problem::new(
                    ErrorCode::SequenceLost,
                    self.message(lost, "sequence_unknown"),
                );
            }
        };
        with_retry(ErrorCode::Busy, message, None)
    }

    /// The model was removed while the request was under way.
    pub(super) fn gone(&self) -> Problem {
        with_retry(ErrorCode::Ending, self.message(" was unregistered", "gone"), None)
    }

    fn queue_full(&self) -> String {
        match self.queue_max {
            0 => " has no queue and no free worker. Try again later".to_owned(),
            most => format!(" has a full queue ({most} waiting). Try again later"),
        }
    }

    pub(super) fn message(&self, text: &str, reason: &str) -> String {
        format!("Model \"{}\"{text}. [reason: {reason}]", self.model)
    }

    /// TorchServe's message, with its stray quote after the version.
    pub(super) fn no_worker(&self) -> String {
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

/// Retry-After goes with everything that may succeed later: at least one second, unless a quota knows better.
fn with_retry(code: ErrorCode, message: String, retry_after: Option<Duration>) -> Problem {
    let mut problem = Problem::new(code, message);
    if code.row().retryable {
        let least = Duration::from_secs(1);
        let exact = retry_after.filter(|wait| code == ErrorCode::Quota && !wait.is_zero());
        problem.retry_after = exact.or_else(|| Some(retry_after.unwrap_or_default().max(least)));
    }
    problem
}
