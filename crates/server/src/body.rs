//! The body of a request on its way in, and of an answer on its way out.
//!
//! A request's body that came in one piece is passed on without a copy. One that is too large is rejected
//! before it is read if its length is given, and while it is read if not. Closing a connection with
//! unread bytes makes the system reset it, which can destroy the answer before the client reads it; so a
//! body that is not needed is read and thrown away for a moment.
//!
//! An answer's body is whole, or comes in pieces when the model streams. Every piece becomes one HTTP
//! chunk as soon as it is made. A stream that fails ends the connection without the last chunk: the status
//! was sent long before, and nothing else would tell the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use jitney_engine::AnswerStream;
use jitney_engine::error::CallError;
use tokio::runtime::Handle;

use crate::connection::{ConnectionStage, Peer};
use crate::errors::Problem;

/// Room reserved at once for a body of known length; larger ones grow as they come.
const RESERVE_MAX: u64 = 8 << 20;
/// Bodies above this usually arrive after their head; below it, with it.
const LARGE: u64 = 16 << 10;
/// How long and how much of an unread body is thrown away.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_BYTES: usize = 256 << 20;

/// A request's body that has not been read yet; dropping it throws the rest away.
pub(crate) struct RequestBody {
    body: Option<Incoming>,
    /// The client waits for `100 Continue` and has sent nothing yet.
    expects: bool,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, expects: bool) -> Self {
        Self { body: Some(body), expects }
    }

    /// Whether it is larger than what usually arrives together with a request's head.
    pub(crate) fn large(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.size_hint().lower() > LARGE)
    }

    /// The whole body.
    ///
    /// # Errors
    /// Too large, or broken off; in the latter case the client is gone.
    pub(crate) async fn read(mut self, limit: u64) -> Result<Bytes, Problem> {
        let Some(body) = &mut self.body else { return Ok(Bytes::new()) };
        let announced = body.size_hint();
        if announced.lower() > limit {
            return Err(Problem::too_large(limit));
        }
        let first = next(body).await?.unwrap_or_default();
        if body.is_end_stream() && first.len() as u64 <= limit {
            return Ok(first);
        }
        let room = announced.exact().unwrap_or(0).min(RESERVE_MAX).max(first.len() as u64);
        let mut whole = BytesMut::with_capacity(room as usize);
        whole.extend_from_slice(&first);
        while whole.len() as u64 <= limit {
            match next(body).await? {
                Some(data) => whole.extend_from_slice(&data),
                None => return Ok(whole.freeze()),
            }
        }
        // The client has begun to send.
        self.expects = false;
        Err(Problem::too_large(limit))
    }
}

/// The next piece of data; trailers are passed over.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::debug!(%error, "a request's body ended early");
            Problem::bad_request("Invalid HTTP message.")
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if let (false, Ok(runtime)) = (self.expects, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DISCARD_TIME, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut seen = 0;
    while let Ok(Some(data)) = next(&mut body).await {
        seen += data.len();
        if seen > DISCARD_BYTES {
            return;
        }
    }
}

/// An answer's body.
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

    /// Lets a connection count as busy until the last piece is sent; false if there is only one.
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
