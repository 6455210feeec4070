//! The body of an answer on its way out: whole, or in pieces when its source streams.
//!
//! Every piece becomes one HTTP chunk as soon as it is made. A stream that fails ends the connection without
//! the last chunk: the status was sent long before, and nothing else would tell the client.

use std::any::Any;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt as _, future};
use hyper::body::{Body, Frame, SizeHint};
use jitney_memory::admission::TransferShare;

use crate::connection::{ConnectionStage, Peer};

/// Answers up to this size usually fit into the system's buffer of a connection and are not counted.
pub const SMALL_ANSWER: usize = 16 << 10;

/// A piece of an answer on its way to the client: its memory is in the account until it is written.
pub struct AnswerPiece {
    bytes: Bytes,
    share: Option<TransferShare>,
}

impl AnswerPiece {
    /// A piece for this client; a large one takes its memory now.
    pub fn new(bytes: Bytes, peer: &Peer) -> Self {
        let share = (bytes.len() > SMALL_ANSWER).then(|| peer.hold_answer(bytes.len()));
        Self { bytes, share }
    }
}

impl Buf for AnswerPiece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(share) = &self.share {
            share.advance(count as u64);
        }
    }
}

/// An answer's body: what is here of it, and the pieces that are to come.
pub struct ResponseBody {
    /// Nothing once it was taken.
    here: Bytes,
    rest: Option<PieceStream>,
    /// What ends with the last piece, such as the request's trace.
    kept: Option<Arc<dyn Any + Send + Sync>>,
    taker: AnswerTaker,
}

/// The pieces of an answer that are to come. A failure ends the connection.
pub type PieceStream = Pin<Box<dyn Stream<Item = Result<Bytes, PieceError>> + Send>>;

/// Why there is no further piece.
pub type PieceError = Box<dyn Error + Send + Sync>;

/// Who takes an answer, and so holds its memory.
enum AnswerTaker {
    /// Not known, or of no interest where the answer is small.
    Any,
    /// The client of a connection that has one request at a time.
    Client(Arc<Peer>),
    /// The same while pieces are to come: until then it is busy.
    Busy(Busy),
    /// One stream of several. Its client may read another one and let it wait, so what is here is in the
    /// account of memory from the beginning, however small.
    Stream(OpenStream, Option<TransferShare>),
}

/// A connection on which a stream is under way; idle when this is dropped.
struct Busy(Arc<Peer>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(ConnectionStage::Idle);
    }
}

/// A request of a connection that may have several; the connection may be idle when all are dropped.
pub(crate) struct OpenStream(pub(crate) Arc<Peer>);

impl OpenStream {
    pub(crate) fn new(peer: &Arc<Peer>) -> Self {
        peer.call_began();
        Self(Arc::clone(peer))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.call_ended();
    }
}

impl ResponseBody {
    /// An answer's body that comes in pieces.
    pub fn pieces(
        first: Bytes,
        rest: impl Stream<Item = Result<Bytes, PieceError>> + Send + 'static,
    ) -> Self {
        Self { rest: Some(Box::pin(rest)), ..Self::whole(first) }
    }

    /// The same, which ends before the first piece that is not allowed any more.
    pub fn while_allowed(mut self, mut allowed: impl FnMut() -> bool + Send + 'static) -> Self {
        let pieces = self.rest.map(|rest| rest.take_while(move |_| future::ready(allowed())));
        self.rest = pieces.map(|pieces| Box::pin(pieces) as PieceStream);
        self
    }

    /// An answer's body that is here.
    pub fn whole(here: Bytes) -> Self {
        Self { here, rest: None, kept: None, taker: AnswerTaker::Any }
    }

    /// Lets a connection count as busy until the last piece is sent; false if there is only one.
    pub fn keep_busy(&mut self, peer: &Arc<Peer>) -> bool {
        let busy = self.rest.is_some();
        if busy {
            self.taker = AnswerTaker::Busy(Busy(Arc::clone(peer)));
        } else if self.here.len() > SMALL_ANSWER {
            self.taker = AnswerTaker::Client(Arc::clone(peer));
        }
        busy
    }

    /// Lets a stream be open until the last piece is sent.
    pub(crate) fn keep_open(&mut self, open: OpenStream) {
        let length = self.here.len();
        let share = (length > 0).then(|| open.0.hold_answer(length));
        self.taker = AnswerTaker::Stream(open, share);
    }

    /// Keeps something until the last piece is sent; where the answer is here, it ends now.
    pub fn keep(&mut self, it: Arc<dyn Any + Send + Sync>) {
        self.kept = self.rest.is_some().then_some(it);
    }

    /// A piece with its share of the memory, where who takes it is known.
    fn piece(&mut self, bytes: Bytes) -> Frame<AnswerPiece> {
        Frame::data(match &mut self.taker {
            AnswerTaker::Any => AnswerPiece { bytes, share: None },
            AnswerTaker::Client(peer) | AnswerTaker::Busy(Busy(peer)) => {
                AnswerPiece::new(bytes, peer)
            }
            AnswerTaker::Stream(open, share) => {
                let share = share.take().unwrap_or_else(|| open.0.hold_answer(bytes.len()));
                AnswerPiece { bytes, share: Some(share) }
            }
        })
    }

    /// What is here of it.
    pub fn here(&self) -> &Bytes {
        &self.here
    }

    /// All of it, unless there are pieces to come.
    pub fn all(&self) -> Option<&Bytes> {
        self.rest.is_none().then_some(&self.here)
    }

    /// Takes what is here.
    pub fn take(&mut self) -> Option<Bytes> {
        let here = std::mem::take(&mut self.here);
        (!here.is_empty()).then_some(here)
    }
}

impl Body for ResponseBody {
    type Data = AnswerPiece;
    type Error = PieceError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerPiece>, PieceError>>> {
        if let Some(here) = self.take() {
            return Poll::Ready(Some(Ok(self.piece(here))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let next = ready!(rest.as_mut().poll_next(context));
        Poll::Ready(next.map(|piece| piece.map(|bytes| self.piece(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.here.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.all().map_or_else(SizeHint::default, |body| SizeHint::with_exact(body.len() as u64))
    }
}
