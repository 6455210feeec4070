//! One client's connection: its name, and a guard against clients that send too slowly.
//!
//! hyper's own timeout for heads costs a timer per request and ends idle connections, which load
//! balancers keep on purpose. Here the accept loop's one slow tick looks at every connection: a head
//! that is not complete, or a body that has not moved, since the tick before ends the connection. Clients
//! that do not read their answers are found in the account of bytes, and cut through a switch.

use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Context;

use http::HeaderMap;
use jitney_memory::admission::{Admission, CutReason, CutSwitch, TransferShare};

use crate::growing_body::HeadShare;
use crate::open_connections::OpenConnection;

/// Heads of several requests on a connection are counted from this size on; together smaller ones are no larger
/// than what such a connection may send ahead.
const HEAD_COUNTED: usize = 2 << 10;
/// What a header takes beside its text.
const HEADER_BYTES: usize = 32;
/// HTTP/2 has a head as it came and as it was read, and the allocator rounds up: measured are 1.8 times its text.
const HEAD_COPIES: u64 = 2;

/// The memory of a head that counts; none for small ones.
pub fn counted_head(headers: &HeaderMap) -> Option<u64> {
    let sizes = headers.iter().map(|(name, it)| name.as_str().len() + it.len() + HEADER_BYTES);
    let bytes = sizes.sum::<usize>();
    (bytes > HEAD_COUNTED).then_some(bytes as u64 * HEAD_COPIES)
}

/// A listener's signal to its connections.
#[derive(Clone, Copy, Debug)]
pub enum ListenerSignal {
    /// Time to check whether the client sends.
    Tick,
    /// Finish what is under way.
    End,
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
    /// Whom the certificate names that the client showed, once it is verified.
    pub subject: OnceLock<String>,
    /// Its entry among the open connections.
    pub open: Arc<OpenConnection>,
    /// What whoever answers its requests remembers between them. Nothing here looks inside.
    pub memo: OnceLock<Box<dyn Any + Send + Sync>>,
    stage: AtomicU8,
    /// Changes whenever a head begins or a body moves.
    marks: AtomicU32,
    /// Calls under way, where the connection can have several.
    calls: AtomicU32,
    bare_lf: AtomicBool,
    admission: Arc<Admission>,
    /// Ends the connection from outside, when the client does not read; from the first answer on that counts.
    switch: OnceLock<Arc<CutSwitch>>,
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
            switch: OnceLock::new(),
            answers: AtomicBool::new(false),
            blocked: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            number,
            address,
            subject: OnceLock::new(),
            open,
            memo: OnceLock::new(),
            stage: AtomicU8::new(ConnectionStage::Head as u8),
            marks: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            bare_lf: AtomicBool::new(false),
        }
    }

    /// Takes memory for the head of one of several requests, while its body is awaited.
    pub(crate) fn hold_head(&self, headers: &HeaderMap) -> Result<Option<HeadShare>, CutReason> {
        let Some(bytes) = counted_head(headers) else { return Ok(None) };
        let share = self.admission.body();
        share.grow(bytes)?;
        Ok(Some(HeadShare { share, bytes }))
    }

    fn switch(&self) -> &Arc<CutSwitch> {
        self.switch.get_or_init(Arc::default)
    }

    /// Takes memory for an answer until it is written.
    pub fn hold_answer(&self, bytes: usize) -> TransferShare {
        self.answers.store(true, Relaxed);
        self.admission.answer(bytes as u64, self.switch())
    }

    /// An error once the connection was cut.
    pub fn check_cut(&self) -> io::Result<()> {
        match self.switch.get().and_then(|switch| switch.reason()) {
            None => Ok(()),
            Some(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")),
        }
    }

    /// The client has nothing to say. It is only watched while it has something to read.
    pub(crate) fn wait_for_read(&self, context: &Context<'_>) {
        if self.answers.load(Relaxed) {
            self.switch().watch(context.waker());
        }
    }

    /// The client takes nothing more for now.
    pub fn wait_for_write(&self, context: &Context<'_>) {
        self.switch().watch(context.waker());
        if !self.is_blocked.swap(true, Relaxed) {
            let share = self.admission.answer(0, self.switch());
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

    pub(crate) fn at(&self, stage: ConnectionStage) -> bool {
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

    /// Notes that a line of the head at hand ends with a bare LF.
    pub(crate) fn note_bare_lf(&self) {
        self.bare_lf.store(true, Relaxed);
    }

    /// Whether one did, since this was asked last.
    pub(crate) fn had_bare_lf(&self) -> bool {
        self.bare_lf.load(Relaxed) && self.bare_lf.swap(false, Relaxed)
    }

    pub(crate) fn bytes_came(&self) {
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

/// Lets the runtime look at its sockets once more before an idle connection ends: a request may have come that nobody
/// was told of yet.
pub(crate) async fn last_look() {
    tokio::task::yield_now().await;
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
