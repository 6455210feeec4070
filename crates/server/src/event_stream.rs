//! Server-Sent Events: the pieces of a stream as a browser's `EventSource` reads them.
//!
//! Every piece is one event. A failure is the event `error`, whose data is the JSON that a failed request
//! is answered with; nothing but the connection's end could tell it otherwise. The event `end` comes
//! after the last piece, so that a client does not take the end of the connection for a lost one and
//! ask again. Events are text: bytes that are not UTF-8 are replaced.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use jitney_engine::call::AnswerStream;
use jitney_engine::error::CallError;
use jitney_net::PieceError;
use jitney_net::events::{end, event};

/// The rest of a stream as events.
pub(crate) struct EventStream<F> {
    pieces: AnswerStream,
    /// Makes the JSON that a failed request is answered with.
    explain: F,
    ended: bool,
}

impl<F> EventStream<F> {
    /// The further pieces of an answer as events.
    pub(crate) fn new(pieces: AnswerStream, explain: F) -> Self {
        Self { pieces, explain, ended: false }
    }
}

impl<F: Fn(&CallError) -> String + Unpin> Stream for EventStream<F> {
    type Item = Result<Bytes, PieceError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, PieceError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_next(context));
        self.ended = !matches!(piece, Some(Ok(_)));
        Poll::Ready(Some(Ok(match piece {
            Some(Ok(piece)) => event("", &piece),
            Some(Err(error)) => event("error", (self.explain)(&error).as_bytes()),
            None => end(),
        })))
    }
}
