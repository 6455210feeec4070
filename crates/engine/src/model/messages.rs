//! What the handle of a model version tells its task: requests and their cancellations, and what the
//! operator wants.
//!
//! They travel in two channels, so that neither a flood of requests nor a slow change can hold up the
//! other. Everything in a message is moved, never shared.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{Origin, Rejection, RequestId};
use tokio::sync::{mpsc, oneshot};

use super::BatcherReport;
use crate::error::{CallError, ScaleError};
use crate::pending::{PendingRequest, SharedId};
use crate::settings::ModelSettings;

/// About requests, in the order in which they came.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a request")]
pub(crate) enum RequestMessage {
    Submit(PendingRequest),
    /// The parts of one request, in order.
    SubmitParts(Vec<PendingRequest>),
    /// The client of this request went away.
    Cancel(RequestId),
    /// The client of a request in parts went away, or one of its parts failed.
    CancelParts(Vec<SharedId>),
    /// The head of a request from there has arrived.
    Announce(Origin),
    /// The rest of it will not.
    Retract(Origin),
}

impl RequestMessage {
    /// Puts it before a model's task, without waiting for room.
    pub(super) fn send(self, inbox: &mpsc::Sender<Self>) -> Result<(), CallError> {
        use mpsc::error::TrySendError;
        inbox.try_send(self).map_err(|error| match error {
            TrySendError::Full(_) => CallError::rejected(Rejection::QueueFull),
            TrySendError::Closed(_) => CallError::Gone,
        })
    }
}

/// What the operator wants.
#[derive(Debug)]
pub(crate) enum ControlMessage {
    Scale {
        min: u32,
        max: u32,
        reply: oneshot::Sender<Result<(), ScaleError>>,
    },
    Reconfigure {
        settings: Arc<ModelSettings>,
        reply: oneshot::Sender<()>,
    },
    /// A copy of what was learned and decided.
    Report {
        reply: oneshot::Sender<BatcherReport>,
    },
    /// End the workers if nobody waits for an answer; the next request starts one again. Says whether it does.
    Leave {
        reply: oneshot::Sender<bool>,
    },
    /// Start another worker in place of one whose GPU is gone.
    Replace {
        worker: u32,
        gpu: u32,
    },
    /// Answer what was admitted, then end; by force when `grace` is over.
    Close {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
}

/// A request whose head has arrived and whose body has not: the batcher may wait for it.
///
/// Held by the protocol while it reads. Dropping it says that the request will not come after all,
/// unless it was answered; a request that the model has by then is not touched.
#[must_use = "dropping it takes the announcement back"]
pub struct Announced<'a> {
    inbox: &'a mpsc::Sender<RequestMessage>,
    origin: Origin,
    came: bool,
}

impl<'a> Announced<'a> {
    /// Announces a request; none if the inbox is full, as an announcement only helps to plan.
    pub(super) fn send(inbox: &'a mpsc::Sender<RequestMessage>, origin: Origin) -> Option<Self> {
        inbox.try_send(RequestMessage::Announce(origin)).ok()?;
        Some(Self { inbox, origin, came: false })
    }

    /// It came and was answered.
    pub fn came(mut self) {
        self.came = true;
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if !self.came {
            drop(self.inbox.try_send(RequestMessage::Retract(self.origin)));
        }
    }
}
