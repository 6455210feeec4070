//! Those who follow the overview: what is written once goes to all of them. One who reads too slowly
//! misses documents and delays nobody. They end when the server's listeners close.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use jitney_net::events;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::follow::{FollowError, LiveStream};

/// How many may follow at a time.
const STREAMS_MAX: usize = 64;

/// The streams that are open, and what they are told.
pub(super) struct LiveStreams {
    latest: watch::Sender<LatestEvent>,
    permits: Arc<Semaphore>,
    limit: usize,
}

/// What was written last.
#[derive(Clone, Default)]
struct LatestEvent {
    text: Bytes,
    /// Nothing follows.
    is_last: bool,
}

impl LiveStreams {
    /// Streams for a server with so many connections for management, of which they take half at most.
    pub(super) fn new(connections: usize) -> Self {
        let limit = STREAMS_MAX.min(connections / 2).max(1);
        let (latest, _) = watch::channel(LatestEvent::default());
        Self { latest, permits: Arc::new(Semaphore::new(limit)), limit }
    }

    /// Whether anybody follows.
    pub(super) fn any(&self) -> bool {
        self.permits.available_permits() < self.limit
    }

    /// Tells all who follow.
    pub(super) fn send(&self, text: Bytes) {
        self.latest.send_replace(LatestEvent { text, is_last: false });
    }

    /// The same for the last time.
    pub(super) fn close(&self, text: &Bytes) {
        let text = Bytes::from([text.as_ref(), &events::end()].concat());
        self.latest.send_replace(LatestEvent { text, is_last: true });
    }

    pub(super) async fn closing(&self) {
        // The sender lives as long as this.
        let _ = self.latest.subscribe().wait_for(|latest| latest.is_last).await;
    }

    /// A stream of what is told from now on; dropping it makes room for another.
    pub(super) fn open(&self) -> Result<LiveStream, FollowError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| self.full())?;
        let latest = self.latest.subscribe();
        if latest.borrow().is_last {
            return Err(FollowError::Ending);
        }
        let follower = Follower { latest, ended: false, _permit: permit };
        Ok(Box::pin(stream::unfold(follower, |mut follower| async {
            Some((follower.next().await?, follower))
        })))
    }

    fn full(&self) -> FollowError {
        FollowError::Full {
            limit: self.limit,
            what: "overview",
            instead: "Close a dashboard, or ask for /overview instead.",
        }
    }
}

/// One who follows.
struct Follower {
    latest: watch::Receiver<LatestEvent>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        self.latest.changed().await.ok()?;
        let LatestEvent { text, is_last } = self.latest.borrow_and_update().clone();
        self.ended = is_last;
        Some(text)
    }
}

/// A value as one event. JSON has no line breaks of its own.
pub(super) fn event<T: Serialize>(name: &str, value: &T) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    if let Err(error) = serde_json::to_writer(&mut text, value) {
        tracing::error!(%error, "the overview cannot be written as JSON");
        return Bytes::new();
    }
    text.extend_from_slice(b"\n\n");
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_follower_sees_the_latest_and_the_last_and_then_its_place_is_free() {
        let streams = LiveStreams::new(2);
        assert!(!streams.any());
        let mut stream = streams.open().unwrap();
        assert!(streams.any());
        assert!(matches!(streams.open(), Err(FollowError::Full { limit: 1, .. })));
        streams.send(Bytes::from_static(b"1"));
        streams.send(Bytes::from_static(b"2"));
        assert_eq!(stream.next().await.unwrap(), "2");
        streams.close(&Bytes::from_static(b"3\n\n"));
        streams.closing().await;
        assert_eq!(stream.next().await.unwrap(), "3\n\nevent: end\ndata: \n\n");
        assert_eq!(stream.next().await, None);
        drop(stream);
        assert!(!streams.any());
        assert_eq!(streams.open().err(), Some(FollowError::Ending));
    }
}
