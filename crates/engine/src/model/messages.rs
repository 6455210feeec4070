//! What the handle tells the task of a model version: requests from the doors, options of the operator.
//!
//! They travel in two channels, so that neither a flood of requests nor a slow change can hold up the
//! other. Everything in a message is moved, never shared; only the [`Ticket`] is held at both ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jitney_batcher::RequestId;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::BatcherReport;
use crate::call::{Origin, PendingRequest, Priority};
use crate::error::ScaleError;
use crate::settings::ModelSettings;
use crate::shares::Weight;

/// Messages from the doors, in the order in which they came.
#[derive(Debug)]
pub(crate) enum Message {
    Arrive(Arrival),
    /// The parts of one request, in order.
    ArriveInParts(Vec<Arrival>),
    /// The client of this request went away.
    Cancel(RequestId),
    /// Nobody waits for what is left of a request in parts.
    CancelParts(Vec<Ticket>),
    /// The head of a request from there has arrived.
    Announce(Origin),
    /// The rest of it will not.
    Retract(Origin),
}

/// A request on its way from the door to the model's task.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) request: PendingRequest,
    pub(crate) deadline: Option<Instant>,
    pub(crate) bucket: u16,
    pub(crate) weight: Weight,
    pub(crate) priority: Priority,
    pub(crate) origin: Origin,
    pub(crate) ticket: Ticket,
}

/// How the door learns the name under which its request boarded: 0 until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<AtomicU64>);

impl Ticket {
    pub(crate) fn stamp(&self, id: RequestId) {
        // Generations start at 1, so a stamped ticket is never 0.
        self.0.store(id.0, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Option<RequestId> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            id => Some(RequestId(id)),
        }
    }
}

/// RegisterOptions of the operator.
#[derive(Debug)]
pub(crate) enum Control {
    Scale {
        min: u32,
        max: u32,
        reply: oneshot::Sender<Result<(), ScaleError>>,
    },
    Reconfigure {
        settings: Arc<ModelSettings>,
        reply: oneshot::Sender<()>,
    },
    /// What was learned and decided?
    Explain {
        reply: oneshot::Sender<BatcherReport>,
    },
    /// Answer what was admitted, then end; by force when `grace` is over.
    Close {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
}
