//! A request whose head has arrived and whose body has not: the batcher may wait for it.
//!
//! Held by the protocol while it reads. Dropping it says that the request will not come after all,
//! unless it was answered; a request that the model has by then is not touched.

use jitney_batcher::Origin;
use tokio::sync::mpsc;

use super::messages::RequestMessage;

/// A request that is on its way in.
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
