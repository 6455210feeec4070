//! The body of a request on its way in.
//!
//! A body that came in one piece is passed on without a copy. One that comes in several is a
//! [`GrowingBody`]. One that is too large is rejected before it is read if its length is given, and while it
//! is read if not. A compressed one is decompressed as it comes, and what comes out is counted like what
//! came. Closing a connection with unread bytes makes the system reset it, which can destroy the answer
//! before the client reads it; so a body that is not needed is read and thrown away for a moment.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use jitney_memory::ValueBytes;
use jitney_memory::admission::Admission;
use jitney_memory::quota::Quota;
use tokio::runtime::Handle;

use crate::awaited_body::AwaitedBody;
use crate::body_error::BodyError;
use crate::compression::{Coding, CodingError, Decompressor};
use crate::growing_body::{GrowingBody, HeadShare};

/// Bodies above this usually arrive after their head; below it, with it.
pub const LARGE: u64 = 16 << 10;
/// How long and how much of an unread body is thrown away.
pub(crate) const DISCARD_TIME: Duration = Duration::from_secs(5);
pub(crate) const DISCARD_BYTES: usize = 256 << 20;
/// And how much of one of several streams: a client is told to stop with a larger one by the end of its stream.
const DISCARD_STREAM_BYTES: usize = 64 << 10;

/// A request's body that has not been read yet; dropping it throws the rest away.
pub struct RequestBody {
    /// What came with the head, where that was all.
    whole: Bytes,
    body: Option<Incoming>,
    /// What its connection reads when it is asked to, where hyper does not.
    awaited: Option<AwaitedBody>,
    carrier: BodyCarrier,
    /// The memory of its head, where that is counted.
    head: Option<HeadShare>,
    /// How it is compressed, or why it cannot be read.
    coding: Result<Option<Coding>, CodingError>,
}

/// What brings a body.
#[derive(Clone, Copy)]
enum BodyCarrier {
    /// A connection of its own; the client waits for `100 Continue` and has sent nothing yet where it `expects`.
    Connection { expects: bool },
    /// One of several streams of a connection, which may stand still for so long.
    Stream { patience: Duration },
}

impl RequestBody {
    /// The body of a connection's only request.
    pub fn new(body: Incoming, expects: bool) -> Self {
        let carrier = BodyCarrier::Connection { expects };
        Self::of(carrier, Some(body), None)
    }

    /// The body of one of several requests on a connection, which may stand still for so long.
    pub fn of_stream(body: Incoming, patience: Duration, head: Option<HeadShare>) -> Self {
        let carrier = BodyCarrier::Stream { patience };
        Self::of(carrier, Some(body), head)
    }

    /// A body that is here.
    pub fn whole(whole: Bytes) -> Self {
        let mut body = Self::of(BodyCarrier::Connection { expects: false }, None, None);
        body.whole = whole;
        body
    }

    /// A large body that its connection reads when it is asked to.
    pub(crate) fn awaited(body: AwaitedBody) -> Self {
        let mut awaited = Self::whole(Bytes::new());
        awaited.awaited = Some(body);
        awaited
    }

    fn of(carrier: BodyCarrier, body: Option<Incoming>, head: Option<HeadShare>) -> Self {
        Self { whole: Bytes::new(), body, awaited: None, carrier, head, coding: Ok(None) }
    }

    /// The same, compressed in this way; where that is not known, the problem is told to whoever reads it.
    pub fn coded(mut self, coding: Result<Option<Coding>, CodingError>) -> Self {
        self.coding = coding;
        self
    }

    /// Whether a connection of its own still brings it.
    pub fn occupies_connection(&self) -> bool {
        self.awaited.is_some()
            || self.body.is_some() && matches!(self.carrier, BodyCarrier::Connection { .. })
    }

    /// Whether it is larger than what usually arrives together with a request's head.
    pub fn large(&self) -> bool {
        self.awaited.is_some()
            || self.body.as_ref().is_some_and(|body| body.size_hint().lower() > LARGE)
    }

    /// The whole body; a large one in the pieces in which it came. One that comes in several takes its memory from the
    /// quota of the client's key, too.
    ///
    /// # Errors
    /// Too large, compressed in an unknown way, or broken off; in the latter case the client is gone.
    pub async fn read(
        mut self,
        limit: u64,
        admission: &Arc<Admission>,
        quota: Option<&Arc<Quota>>,
    ) -> Result<ValueBytes, BodyError> {
        if let Some(body) = self.awaited.take() {
            return Box::pin(body.read(limit, admission, quota)).await;
        }
        let Some(body) = &mut self.body else {
            let whole = std::mem::take(&mut self.whole);
            let fits = whole.len() as u64 <= limit;
            return if fits { Ok(whole.into()) } else { Err(BodyError::TooLarge { limit }) };
        };
        if body.size_hint().lower() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        match &mut self.coding {
            Ok(None) => {}
            Ok(Some(coding)) => {
                let coding = *coding;
                return Box::pin(self.read_compressed(coding, limit, admission, quota)).await;
            }
            Err(error) => return Err(error.clone().into()),
        }
        let first = next(body, self.carrier, self.head.as_ref()).await?.unwrap_or_default();
        if body.is_end_stream() && first.len() as u64 <= limit {
            return Ok(first.into());
        }
        // The client has begun to send.
        self.note_begun();
        Box::pin(self.read_rest(first, limit, admission, quota)).await
    }

    fn note_begun(&mut self) {
        if let BodyCarrier::Connection { expects } = &mut self.carrier {
            *expects = false;
        }
    }

    /// Reads a body that comes in several pieces. Its share of the memory ends here: the request takes one
    /// of its own before anything else happens on this thread.
    async fn read_rest(
        mut self,
        first: Bytes,
        limit: u64,
        admission: &Arc<Admission>,
        quota: Option<&Arc<Quota>>,
    ) -> Result<ValueBytes, BodyError> {
        let Some(body) = &mut self.body else { return Ok(first.into()) };
        let announced = first.len() as u64 + body.size_hint().exact().unwrap_or(limit);
        let limit = limit.min(admission.bodies_max());
        let head = self.head.take();
        let whole = GrowingBody::new(admission, announced.min(limit));
        let mut whole = whole.behind(head).charged(quota);
        whole.push_piece(first).map_err(BodyError::Cut)?;
        while whole.len() as u64 <= limit {
            match next_within(&whole, body, self.carrier).await? {
                Some(data) => whole.push_piece(data).map_err(BodyError::Cut)?,
                None => return Ok(whole.into_value()),
            }
        }
        Err(BodyError::TooLarge { limit })
    }

    /// Reads a compressed body. What comes out counts against the limits as it appears.
    async fn read_compressed(
        mut self,
        coding: Coding,
        limit: u64,
        admission: &Arc<Admission>,
        quota: Option<&Arc<Quota>>,
    ) -> Result<ValueBytes, BodyError> {
        let limit = limit.min(admission.bodies_max());
        let whole = GrowingBody::new(admission, limit);
        let mut whole = whole.behind(self.head.take()).charged(quota);
        let mut decompressor = Decompressor::new(coding);
        let mut came = 0;
        while let Some(body) = &mut self.body
            && let Some(data) = next_within(&whole, body, self.carrier).await?
        {
            self.note_begun();
            came += data.len() as u64;
            if came > limit {
                return Err(BodyError::TooLarge { limit });
            }
            whole.push_compressed(data, &mut decompressor, limit).await?;
        }
        decompressor.finish()?;
        Ok(whole.into_value())
    }
}

impl BodyCarrier {
    /// Waits for a piece. A connection that stands still is ended as a whole; of several streams, only the
    /// one that does.
    async fn wait(
        self,
        next: impl Future<Output = Result<Option<Bytes>, BodyError>>,
    ) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::Connection { .. } => next.await,
            Self::Stream { patience } => {
                let next = tokio::time::timeout(patience, next).await;
                next.unwrap_or_else(|_| Err(BodyError::Stalled(patience)))
            }
        }
    }
}

/// The next piece, unless the client's memory was taken away.
async fn next_within(
    whole: &GrowingBody,
    body: &mut Incoming,
    carrier: BodyCarrier,
) -> Result<Option<Bytes>, BodyError> {
    let next = poll_fn(|context| match whole.poll_cut(context) {
        Poll::Ready(reason) => Poll::Ready(Err(BodyError::Cut(reason))),
        Poll::Pending => poll_next(body, context),
    });
    carrier.wait(next).await
}

/// The first piece of data, unless the memory of the head was taken away; trailers are passed over.
async fn next(
    body: &mut Incoming,
    carrier: BodyCarrier,
    head: Option<&HeadShare>,
) -> Result<Option<Bytes>, BodyError> {
    let next = poll_fn(|context| match head.map(|head| head.share.poll_cut(context)) {
        Some(Poll::Ready(reason)) => Poll::Ready(Err(BodyError::Cut(reason))),
        Some(Poll::Pending) | None => poll_next(body, context),
    });
    carrier.wait(next).await
}

fn poll_next(
    body: &mut Incoming,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, BodyError>> {
    while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Poll::Ready(Ok(Some(data))),
            Ok(Err(_trailers)) => {}
            Err(error) => {
                tracing::debug!(%error, "a request's body ended early");
                return Poll::Ready(Err(BodyError::Ended));
            }
        }
    }
    Poll::Ready(Ok(None))
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        let most = match self.carrier {
            BodyCarrier::Connection { expects: true } => return,
            BodyCarrier::Connection { expects: false } => DISCARD_BYTES,
            // Clients may lose an answer that comes while they send and is followed by the end of the stream (curl 7.88).
            BodyCarrier::Stream { .. } => DISCARD_STREAM_BYTES,
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(DISCARD_TIME, discard(body, most)));
        }
    }
}

async fn discard(mut body: Incoming, most: usize) {
    let mut seen = 0;
    while let Ok(Some(data)) = poll_fn(|context| poll_next(&mut body, context)).await {
        seen += data.len();
        if seen > most {
            return;
        }
    }
}
