//! What the handle of a model version tells its task: requests and their cancellations, and what the
//! operator wants.
//!
//! They travel in two channels, so that neither a flood of requests nor a slow change can hold up the
//! other. Everything in a message is moved, never shared.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{Origin, RequestId};
use tokio::sync::oneshot;

use super::BatcherReport;
use crate::error::ScaleError;
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
    /// Answer what was admitted, then end; by force when `grace` is over.
    Close {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
}
