//! An answer's body on its way out: whole nearly always, piece by piece when the model streams.
//!
//! Apart from `body`, which reads what clients send. Every piece becomes one HTTP chunk at the
//! moment it is made; a stream that breaks off ends the connection without the last chunk, since
//! the status has long been sent and nothing else would tell the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use jitney_engine::AnswerStream;
use jitney_engine::error::CallError;

use crate::connection::{ConnectionStage, Peer};

/// A body that is here, or is being made.
pub(crate) enum ResponseBody {
    /// All of it; nothing once it was taken.
    Whole(Bytes),
    /// The first piece, and those to come.
    Pieces(Bytes, AnswerStream, Option<Busy>),
}

/// A connection on which a stream is under way; idle when this is dropped.
pub(crate) struct Busy(Arc<Peer>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(ConnectionStage::Idle);
    }
}

impl ResponseBody {
    /// An answer's body.
    pub(crate) fn new(body: Bytes, rest: Option<AnswerStream>) -> Self {
        match rest {
            None => Self::Whole(body),
            Some(rest) => Self::Pieces(body, rest, None),
        }
    }

    /// Lets a connection count as busy until the last piece is out; false if there is but one.
    pub(crate) fn keep_busy(&mut self, peer: &Arc<Peer>) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Pieces(_, _, busy) => {
                *busy = Some(Busy(Arc::clone(peer)));
                true
            }
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let (Self::Whole(here) | Self::Pieces(here, ..)) = self;
        let here = std::mem::take(here);
        (!here.is_empty()).then_some(here)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        if let Some(here) = self.take() {
            return Poll::Ready(Some(Ok(Frame::data(here))));
        }
        match &mut *self {
            Self::Whole(_) => Poll::Ready(None),
            Self::Pieces(_, rest, _) => {
                rest.poll_next(context).map(|next| next.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(body) if body.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Self::Pieces(..) => SizeHint::default(),
        }
    }
}
