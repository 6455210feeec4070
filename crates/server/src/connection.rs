//! One client's connection: its name, and a guard against clients that send too slowly.
//!
//! hyper's own timeout for heads costs a timer per request and ends idle connections, which load
//! balancers keep on purpose. Here the accept loop's one slow tick looks at every connection: a head
//! that is not complete, or a body that has not moved, since the tick before ends the connection.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::OnUpgrade;

use crate::malformed;
use crate::plugins::CallGuard;

/// A listener's signal to its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListenerSignal {
    /// Time to check whether the client sends.
    Tick,
    /// Finish what is under way.
    End,
}

/// Logs a connection that did not end well.
pub(crate) fn log_end(peer: &Peer, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "connection ended");
    }
}

/// What a connection is at. Idle and busy ones may take as long as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionStage {
    /// Between two requests.
    Idle,
    /// A head has begun to arrive.
    Head,
    /// The head is here, the body is on its way.
    Body,
    /// The request is complete and being answered.
    Busy,
}

/// A connection on its way from HTTP to a handle's frames.
#[derive(Clone)]
pub(crate) struct HandleUpgrade {
    pub(crate) connection: OnUpgrade,
    /// Who authorizes its calls, if anybody does.
    pub(crate) guard: Option<Arc<CallGuard>>,
}

/// A connection as its requests see it.
pub(crate) struct Peer {
    /// Its number, counted from the server's start.
    pub(crate) number: u64,
    /// Its address as the access log writes it.
    pub(crate) address: String,
    stage: AtomicU8,
    /// Changes whenever a head begins or a body moves.
    marks: AtomicU32,
    /// The connection after HTTP; set once, by the request that asks for an upgrade.
    upgrade: OnceLock<HandleUpgrade>,
}

impl Peer {
    /// A connection that was just accepted; its first head is awaited at once.
    pub(crate) fn new(number: u64, address: String) -> Self {
        Self {
            number,
            address,
            stage: AtomicU8::new(ConnectionStage::Head as u8),
            marks: AtomicU32::new(0),
            upgrade: OnceLock::new(),
        }
    }

    /// Notes that the last request upgraded the connection.
    pub(crate) fn upgrade(&self, upgrade: HandleUpgrade) {
        // There is no second one: the first ends HTTP on the connection.
        drop(self.upgrade.set(upgrade));
    }

    /// The connection, if its last request upgraded it.
    pub(crate) fn upgraded(&self) -> Option<HandleUpgrade> {
        self.upgrade.get().cloned()
    }

    /// Notes what the connection is at.
    pub(crate) fn enter(&self, stage: ConnectionStage) {
        self.stage.store(stage as u8, Relaxed);
    }

    fn at(&self, stage: ConnectionStage) -> bool {
        self.stage.load(Relaxed) == stage as u8
    }

    /// Whether a body has moved, or a second head has begun, on this connection.
    pub(crate) fn spoke(&self) -> bool {
        self.marks.load(Relaxed) != 0
    }

    fn bytes_came(&self) {
        if self.at(ConnectionStage::Idle) {
            self.enter(ConnectionStage::Head);
        } else if !self.at(ConnectionStage::Body) {
            return;
        }
        self.marks.store(self.marks.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Whether the client should have sent something since `seen` was taken; takes it anew.
    pub(crate) fn stalled(&self, seen: &mut Option<u32>) -> bool {
        let waiting = self.at(ConnectionStage::Head) || self.at(ConnectionStage::Body);
        let now = waiting.then(|| self.marks.load(Relaxed));
        let stalled = now.is_some() && now == *seen;
        *seen = now;
        stalled
    }
}

/// A stream that tells its [`Peer`] when bytes arrive, and adds a body to errors that hyper answers by
/// itself.
pub(crate) struct WatchedStream<S> {
    stream: S,
    peer: Arc<Peer>,
    /// What is left to write instead of a bare answer.
    instead: Bytes,
}

impl<S> WatchedStream<S> {
    pub(crate) fn new(stream: S, peer: Arc<Peer>) -> Self {
        Self { stream, peer, instead: Bytes::new() }
    }
}

impl<S: Write + Unpin> WatchedStream<S> {
    /// Whether something else is written instead of these bytes: `Ready` when it is out.
    fn poll_instead(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_empty() {
            let answer =
                self.peer.at(ConnectionStage::Head).then(|| malformed::answer(bytes)).flatten()?;
            tracing::info!(peer = self.peer.address, "rejected a request that is not valid HTTP");
            self.instead = answer;
        }
        while !self.instead.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.instead) {
                Poll::Ready(Ok(written)) if written > 0 => self.instead.advance(written),
                Poll::Ready(Ok(_)) => {
                    return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                Poll::Pending => return Some(Poll::Pending),
            }
        }
        Some(Poll::Ready(Ok(bytes.len())))
    }
}

impl<S: Read + Unpin> Read for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.peer.bytes_came();
        }
        polled
    }
}

impl<S: Write + Unpin> Write for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_instead(context, bytes) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = parts.first().map_or(&[][..], |part| part);
        match self.poll_instead(context, first) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write_vectored(context, parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_head_or_a_body_that_stands_still_stalls() {
        let peer = Peer::new(1, String::new());
        let mut seen = None;
        assert!(!peer.stalled(&mut seen), "the first tick only looks");
        assert!(peer.stalled(&mut seen), "connected and sent nothing");
        peer.enter(ConnectionStage::Busy);
        assert!(
            !peer.stalled(&mut seen) && !peer.stalled(&mut seen),
            "the model may take its time"
        );
        peer.enter(ConnectionStage::Idle);
        assert!(!peer.stalled(&mut seen) && !peer.stalled(&mut seen), "a client may pause");
        peer.bytes_came();
        assert!(!peer.stalled(&mut seen));
        peer.bytes_came();
        assert!(peer.stalled(&mut seen), "a head that comes byte by byte is not complete either");
        peer.enter(ConnectionStage::Body);
        peer.bytes_came();
        assert!(!peer.stalled(&mut seen));
        peer.bytes_came();
        assert!(!peer.stalled(&mut seen), "a slow body moves");
        assert!(peer.stalled(&mut seen));
    }
}
