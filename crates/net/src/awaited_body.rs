//! A body that its connection reads once somebody asks for it: from the socket into the pieces that are passed on.
//!
//! Nothing of it is read before, so that a request that is rejected at once takes no memory. Both ends
//! belong to one request, and usually to one task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use jitney_memory::ValueBytes;
use jitney_memory::admission::Admission;
use jitney_memory::quota::Quota;
use tokio::io::AsyncRead;
use tokio::sync::oneshot;

use crate::body_error::BodyError;
use crate::connection::Peer;
use crate::growing_body::GrowingBody;

/// The end of whoever needs it.
pub(crate) struct AwaitedBody {
    length: u64,
    order: oneshot::Sender<BodyOrder>,
}

/// What it is read into, and whom to tell.
struct BodyOrder {
    whole: GrowingBody,
    done: oneshot::Sender<Result<ValueBytes, BodyError>>,
}

/// The end of its connection.
pub(crate) struct ComingBody {
    /// What came with the head.
    first: Bytes,
    /// How much is still to come.
    missing: usize,
    state: ComingState,
}

enum ComingState {
    /// Nobody has asked for it.
    Unasked(oneshot::Receiver<BodyOrder>),
    Begun(BodyOrder),
    /// It is here, or nobody needs it.
    Over,
}

impl AwaitedBody {
    /// A body of this length, of which a part came with the head.
    pub(crate) fn new(length: u64, first: Bytes) -> (Self, ComingBody) {
        let (order, ordered) = oneshot::channel();
        let missing = usize::try_from(length).unwrap_or(usize::MAX) - first.len();
        let coming = ComingBody { first, missing, state: ComingState::Unasked(ordered) };
        (Self { length, order }, coming)
    }

    pub(crate) async fn read(
        self,
        limit: u64,
        admission: &Arc<Admission>,
        quota: Option<&Arc<Quota>>,
    ) -> Result<ValueBytes, BodyError> {
        let limit = limit.min(admission.bodies_max());
        if self.length > limit {
            return Err(BodyError::TooLarge { limit });
        }
        let whole = GrowingBody::new(admission, self.length).charged(quota);
        let (done, body) = oneshot::channel();
        self.order.send(BodyOrder { whole, done }).map_err(|_| BodyError::Ended)?;
        body.await.unwrap_or(Err(BodyError::Ended))
    }
}

impl ComingBody {
    /// Bytes that are still to come.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// Reads what has come for whoever asked. Ready when that is over, well or not, which they are told.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: &Peer,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if let ComingState::Unasked(ordered) = &mut self.state {
            self.state = match ready!(Pin::new(ordered).poll(context)) {
                Ok(order) => ComingState::Begun(order),
                Err(_) => ComingState::Over,
            };
        }
        let ComingState::Begun(BodyOrder { whole, done }) = &mut self.state else {
            return Poll::Pending;
        };
        let read = match done.poll_closed(context) {
            Poll::Ready(()) => Err(BodyError::Ended),
            Poll::Pending => {
                ready!(fill(whole, &mut self.first, &mut self.missing, stream, peer, context))
            }
        };
        if let ComingState::Begun(BodyOrder { whole, done }) =
            std::mem::replace(&mut self.state, ComingState::Over)
        {
            // Whoever asked may have gone.
            let _ = done.send(read.map(|()| whole.into_value()));
        }
        Poll::Ready(())
    }
}

/// Reads until nothing is missing.
fn fill(
    whole: &mut GrowingBody,
    first: &mut Bytes,
    missing: &mut usize,
    stream: &mut (impl AsyncRead + Unpin),
    peer: &Peer,
    context: &mut Context<'_>,
) -> Poll<Result<(), BodyError>> {
    if !first.is_empty() {
        whole.keep_first(std::mem::take(first)).map_err(BodyError::Cut)?;
    }
    while *missing > 0 {
        if let Poll::Ready(reason) = whole.poll_cut(context) {
            return Poll::Ready(Err(BodyError::Cut(reason)));
        }
        let came = ready!(whole.poll_fill(stream, *missing, context))?;
        peer.bytes_came();
        *missing -= came;
    }
    Poll::Ready(Ok(()))
}
