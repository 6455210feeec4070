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
use futures_util::Stream;
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

    /// How many bytes are left.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The same with memory that was taken for it.
    pub fn held_by(self, share: TransferShare) -> Self {
        Self { share: Some(share), ..self }
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

/// An answer's body.
pub enum ResponseBody {
    /// All of it; nothing once it was taken. Large ones know their connection.
    Whole(Bytes, Option<Arc<Peer>>),
    /// The first piece, and those to come.
    Pieces {
        /// Nothing once it was taken.
        first: Bytes,
        /// What follows it.
        rest: PieceStream,
        /// The connection, while it is under way.
        busy: Option<Busy>,
        /// What ends with the last piece, such as the request's trace.
        kept: Option<Arc<dyn Any + Send + Sync>>,
    },
}

/// The pieces of an answer that are to come. A failure ends the connection.
pub type PieceStream = Pin<Box<dyn Stream<Item = Result<Bytes, PieceError>> + Send>>;

/// Why there is no further piece.
pub type PieceError = Box<dyn Error + Send + Sync>;

/// A connection on which a stream is under way; idle when this is dropped.
pub struct Busy(Arc<Peer>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(ConnectionStage::Idle);
    }
}

impl ResponseBody {
    /// An answer's body that comes in pieces.
    pub fn pieces(
        first: Bytes,
        rest: impl Stream<Item = Result<Bytes, PieceError>> + Send + 'static,
    ) -> Self {
        Self::Pieces { first, rest: Box::pin(rest), busy: None, kept: None }
    }

    /// An answer's body that is here.
    pub fn whole(body: Bytes) -> Self {
        Self::Whole(body, None)
    }

    /// Lets a connection count as busy until the last piece is sent; false if there is only one.
    pub fn keep_busy(&mut self, peer: &Arc<Peer>) -> bool {
        match self {
            Self::Whole(body, large) => {
                *large = (body.len() > SMALL_ANSWER).then(|| Arc::clone(peer));
                false
            }
            Self::Pieces { busy, .. } => {
                *busy = Some(Busy(Arc::clone(peer)));
                true
            }
        }
    }

    /// Keeps something until the last piece is sent; where the answer is here, it ends now.
    pub fn keep(&mut self, it: Arc<dyn Any + Send + Sync>) {
        if let Self::Pieces { kept, .. } = self {
            *kept = Some(it);
        }
    }

    /// A piece with its share of the memory, where its connection is known.
    fn piece(&self, bytes: Bytes) -> Frame<AnswerPiece> {
        let (Self::Whole(_, Some(peer)) | Self::Pieces { busy: Some(Busy(peer)), .. }) = self
        else {
            return Frame::data(AnswerPiece { bytes, share: None });
        };
        Frame::data(AnswerPiece::new(bytes, peer))
    }

    /// What is here of it.
    pub fn here(&self) -> &Bytes {
        let (Self::Whole(here, _) | Self::Pieces { first: here, .. }) = self;
        here
    }

    /// All of it, unless there are pieces to come.
    pub fn all(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(body, _) => Some(body),
            Self::Pieces { .. } => None,
        }
    }

    /// Takes what is here.
    pub fn take(&mut self) -> Option<Bytes> {
        let (Self::Whole(here, _) | Self::Pieces { first: here, .. }) = self;
        let here = std::mem::take(here);
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
        let next = match &mut *self {
            Self::Whole(..) => None,
            Self::Pieces { rest, .. } => ready!(rest.as_mut().poll_next(context)),
        };
        Poll::Ready(next.map(|piece| piece.map(|bytes| self.piece(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(body, _) if body.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body, _) => SizeHint::with_exact(body.len() as u64),
            Self::Pieces { .. } => SizeHint::default(),
        }
    }
}
