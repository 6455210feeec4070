//! A request whose head has arrived and whose body has not: the batcher may wait for it.
//!
//! Held by the door while it reads. Dropping it says that the request will not come after all,
//! unless it was answered; a request that has boarded by then is not touched.

use jitney_batcher::Origin;
use tokio::sync::mpsc;

use super::{Message, Model};

/// A request that is on its way in.
#[must_use = "dropping it takes the announcement back"]
pub struct Announced<'a> {
    inbox: &'a mpsc::Sender<Message>,
    origin: Origin,
    came: bool,
}

impl Model {
    /// Says that a request has begun to arrive, where that changes any decision.
    pub fn announce(&self, origin: Origin) -> Option<Announced<'_>> {
        if !self.settings.load().listens() {
            return None;
        }
        // A full inbox has better things to hear.
        self.inbox.try_send(Message::Announce(origin)).ok()?;
        Some(Announced { inbox: &self.inbox, origin, came: false })
    }
}

impl Announced<'_> {
    /// It came and was answered.
    pub fn came(mut self) {
        self.came = true;
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if !self.came {
            drop(self.inbox.try_send(Message::Retract(self.origin)));
        }
    }
}
