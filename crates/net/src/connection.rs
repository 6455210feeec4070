//! One client's connection: its name, and a guard against clients that send too slowly.
//!
//! hyper's own timeout for heads costs a timer per request and ends idle connections, which load
//! balancers keep on purpose. Here the accept loop's one slow tick looks at every connection: a head
//! that is not complete, or a body that has not moved, since the tick before ends the connection. Clients
//! that do not read their answers are found in the account of bytes, and cut through a switch.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use jitney_memory::admission::{Admission, CutSwitch, TransferShare};

use crate::malformed;
use crate::open_connections::OpenConnection;

/// A listener's signal to its connections.
#[derive(Clone, Copy, Debug)]
pub enum ListenerSignal {
    /// Time to check whether the client sends.
    Tick,
    /// Finish what is under way.
    End,
}

/// Logs a connection that did not end well.
pub fn log_end(peer: &Peer, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "connection ended");
    }
}

/// What a connection is at. Busy ones may take as long as they like, idle ones are an affair of
/// [`crate::open_connections`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionStage {
    /// Between two requests.
    Idle,
    /// A head has begun to arrive.
    Head,
    /// The head is here, the body is on its way.
    Body,
    /// The request is complete and being answered.
    Busy,
}

/// A connection as its requests see it.
pub struct Peer {
    /// Its number, counted from the server's start.
    pub number: u64,
    /// Its address as the access log writes it.
    pub address: String,
    /// Whether it is a worker of this server, which calls for a request that was admitted.
    pub is_worker: bool,
    /// Its entry among the open connections.
    pub open: Arc<OpenConnection>,
    stage: AtomicU8,
    /// Changes whenever a head begins or a body moves.
    marks: AtomicU32,
    /// Calls under way, where the connection can have several.
    calls: AtomicU32,
    admission: Arc<Admission>,
    /// Ends the connection from outside, when the client does not read.
    switch: Arc<CutSwitch>,
    /// Whether answers that count are on their way.
    answers: AtomicBool,
    /// Set while the client takes nothing of what is written.
    blocked: Mutex<Option<TransferShare>>,
    is_blocked: AtomicBool,
}

impl Peer {
    /// A connection that was just accepted; its first head is awaited at once.
    pub fn new(
        number: u64,
        address: String,
        open: Arc<OpenConnection>,
        admission: Arc<Admission>,
    ) -> Self {
        Self {
            admission,
            switch: Arc::default(),
            answers: AtomicBool::new(false),
            blocked: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            number,
            address,
            is_worker: false,
            open,
            stage: AtomicU8::new(ConnectionStage::Head as u8),
            marks: AtomicU32::new(0),
            calls: AtomicU32::new(0),
        }
    }

    /// The same for a worker of this server.
    pub fn of_worker(self) -> Self {
        Self { is_worker: true, ..self }
    }

    /// Takes memory for an answer until it is written.
    pub fn hold_answer(&self, bytes: usize) -> TransferShare {
        self.answers.store(true, Relaxed);
        self.admission.answer(bytes as u64, &self.switch)
    }

    /// An error once the connection was cut.
    pub fn check_cut(&self) -> io::Result<()> {
        match self.switch.reason() {
            None => Ok(()),
            Some(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")),
        }
    }

    /// The client has nothing to say. It is only watched while it has something to read.
    fn wait_for_read(&self, context: &Context<'_>) {
        if self.answers.load(Relaxed) {
            self.switch.watch(context.waker());
        }
    }

    /// The client takes nothing more for now.
    pub fn wait_for_write(&self, context: &Context<'_>) {
        self.switch.watch(context.waker());
        if !self.is_blocked.swap(true, Relaxed) {
            let share = self.admission.answer(0, &self.switch);
            *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = Some(share);
        }
    }

    /// The client has taken so many bytes; all of them where `done`.
    pub fn wrote(&self, bytes: usize, done: bool) {
        if self.is_blocked.load(Relaxed) {
            let mut blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(share) = &*blocked {
                share.advance(bytes as u64);
            }
            if done {
                *blocked = None;
                self.is_blocked.store(false, Relaxed);
            }
        }
    }

    /// Notes what the connection is at.
    pub fn enter(&self, stage: ConnectionStage) {
        self.stage.store(stage as u8, Relaxed);
        match stage {
            ConnectionStage::Idle => self.open.note_idle(),
            ConnectionStage::Busy => self.open.note_busy(),
            ConnectionStage::Head | ConnectionStage::Body => {}
        }
    }

    /// Whether no head, or only a part of one, has arrived.
    pub fn awaits_head(&self) -> bool {
        self.at(ConnectionStage::Head)
    }

    fn at(&self, stage: ConnectionStage) -> bool {
        self.stage.load(Relaxed) == stage as u8
    }

    /// Notes that one of several calls begins.
    pub fn call_began(&self) {
        if self.calls.fetch_add(1, Relaxed) == 0 {
            self.open.set_streams();
            self.open.note_busy();
        }
    }

    /// Notes that one of several calls is over.
    pub fn call_ended(&self) {
        if self.calls.fetch_sub(1, Relaxed) == 1 {
            self.open.note_idle();
        }
    }

    /// Whether a body has moved, or a second head has begun, on this connection.
    pub fn spoke(&self) -> bool {
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
    pub fn stalled(&self, seen: &mut Option<u32>) -> bool {
        let waiting = self.at(ConnectionStage::Head) || self.at(ConnectionStage::Body);
        let now = waiting.then(|| self.marks.load(Relaxed));
        let stalled = now.is_some() && now == *seen;
        *seen = now;
        stalled
    }
}

/// A stream that tells its [`Peer`] when bytes arrive, and adds a body to errors that hyper answers by
/// itself.
pub struct WatchedStream<S> {
    stream: S,
    peer: Arc<Peer>,
    /// What was read before.
    ahead: Bytes,
    /// What is left to write instead of a bare answer.
    instead: Bytes,
}

impl<S> WatchedStream<S> {
    /// A stream of which `ahead` was read before.
    pub fn new(stream: S, ahead: Bytes, peer: Arc<Peer>) -> Self {
        Self { stream, peer, ahead, instead: Bytes::new() }
    }
}

impl<S> WatchedStream<S> {
    /// Notes whether the client takes what is written.
    fn watch_write(
        &self,
        polled: Poll<io::Result<usize>>,
        context: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(written)) => self.peer.wrote(*written, false),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.peer.wait_for_write(context),
        }
        polled
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
            if let Some(suppressed) = self.peer.open.plane.malformed.pass() {
                let peer = &self.peer.address;
                tracing::info!(peer, suppressed, "rejected a request that is not valid HTTP");
            }
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
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.peer.check_cut()?;
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead.split_to(count));
            self.peer.bytes_came();
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.peer.bytes_came();
        } else {
            self.peer.wait_for_read(context);
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
        self.peer.check_cut()?;
        let polled = match self.poll_instead(context, bytes) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        };
        self.watch_write(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        match polled {
            Poll::Ready(_) => self.peer.wrote(0, true),
            Poll::Pending => self.peer.wait_for_write(context),
        }
        polled
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
        self.peer.check_cut()?;
        let polled = match self.poll_instead(context, first) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write_vectored(context, parts),
        };
        self.watch_write(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_head_or_a_body_that_stands_still_stalls() {
        let admission = Admission::new(Default::default());
        let peer = Peer::new(1, String::new(), OpenConnection::alone(), admission);
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
