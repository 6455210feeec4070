//! One who follows the log. A slow one misses lines and is told how many; it delays nobody.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use jitney_net::events;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio::time::timeout;

use super::ring::{KeptLine, LineFilter};
use crate::follow::LiveStream;

/// So often one who gets no line gets a comment, so that a connection that is gone is noticed.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
const COMMENT: &[u8] = b":\n\n";

pub(super) struct LogFollower {
    filter: LineFilter,
    lines: broadcast::Receiver<Arc<KeptLine>>,
    _permit: OwnedSemaphorePermit,
}

impl LogFollower {
    pub(super) fn new(
        filter: LineFilter,
        lines: broadcast::Receiver<Arc<KeptLine>>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { filter, lines, _permit: permit }
    }

    /// The events; without an end of their own.
    pub(super) fn stream(self) -> LiveStream {
        Box::pin(stream::unfold(self, |mut follower| async {
            let next = timeout(COMMENT_EVERY, follower.next()).await;
            let event = next.unwrap_or(Some(Bytes::from_static(COMMENT)))?;
            Some((event, follower))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.lines.recv().await {
                Ok(line) if self.filter.fits(&line) => return Some(event(&line)),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => return Some(dropped(missed)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// A line as an event.
pub(super) fn event(line: &KeptLine) -> Bytes {
    events::event("log", line.json().as_bytes())
}

fn dropped(missed: u64) -> Bytes {
    events::event("dropped", format!("{{\"dropped\":{missed}}}").as_bytes())
}
