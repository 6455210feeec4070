//! Answering a request whose body is large and comes after its head.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::request::PlainRequest;
use super::{BUFFERS, PlainConnection, gone};
use crate::awaited_body::{AwaitedBody, ComingBody};
use crate::connection::{ConnectionStage, ListenerSignal};
use crate::http::service::{Answered, HttpService};
use crate::incoming_body::{DISCARD_BYTES, DISCARD_TIME, RequestBody};

impl<A: HttpService, S: AsyncRead + AsyncWrite + Unpin> PlainConnection<'_, A, S> {
    /// Answers a request of which only the head and the beginning of the body are here; false if the
    /// connection ends with the answer.
    pub(super) async fn answer_large(
        &mut self,
        request: PlainRequest,
        length: u64,
        signals: &watch::Receiver<ListenerSignal>,
    ) -> io::Result<bool> {
        self.client.peer.enter(ConnectionStage::Busy);
        let PlainRequest { parts, body: first, closes } = request;
        let (body, mut coming) = AwaitedBody::new(length, first);
        let answer = self.service.answer(self.client, &parts, Ok(RequestBody::awaited(body)));
        let answered = self.while_body_comes(answer, &mut coming, signals).await?;
        let stays = self.reply(answered, closes, signals).await?;
        Ok(self.discard(coming.missing()).await && stays)
    }

    /// The answer to a request whose body is read meanwhile, as far as anybody asks for it.
    async fn while_body_comes(
        &mut self,
        answer: impl Future<Output = Answered>,
        coming: &mut ComingBody,
        signals: &watch::Receiver<ListenerSignal>,
    ) -> io::Result<Answered> {
        let peer = self.client.peer;
        let (mut answer, mut seen) = (std::pin::pin!(answer), None);
        let mut signals = signals.clone();
        signals.mark_unchanged();
        loop {
            let answered = poll_fn(|context| {
                loop {
                    if let Poll::Ready(answered) = answer.as_mut().poll(context) {
                        return Poll::Ready(Ok(answered));
                    }
                    if coming.poll_read(&mut self.stream, peer, context).is_pending() {
                        break;
                    }
                }
                match coming.missing() {
                    0 => self.poll_gone(context).map(|()| Err(gone())),
                    _ => Poll::Pending,
                }
            });
            tokio::select! {
                biased;
                answered = answered => return answered,
                signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                    (Ok(()), ListenerSignal::Tick) if peer.stalled(&mut seen) => {
                        tracing::debug!(peer = peer.address, "the client sends too slowly");
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    (Ok(()), _) => {}
                    (Err(_), _) => return Err(gone()),
                },
            }
        }
    }

    /// Reads the rest of a body that nobody needed, for a moment; whether all of it came.
    async fn discard(&mut self, mut missing: usize) -> bool {
        // What came while the answer was written belongs to the body first.
        let ahead = missing.min(self.ahead.len());
        self.ahead.drain(..ahead);
        missing -= ahead;
        if missing == 0 {
            return true;
        }
        let mut most = DISCARD_BYTES;
        let rest = poll_fn(|context| {
            while missing > 0 && most > 0 {
                let came = BUFFERS.with_borrow_mut(|buffers| {
                    let length = buffers.read.len().min(missing);
                    let mut buffer = ReadBuf::new(&mut buffers.read[..length]);
                    let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
                    Poll::Ready(read.map_or(0, |()| buffer.filled().len()))
                });
                match ready!(came) {
                    0 => break,
                    came => (missing, most) = (missing - came, most.saturating_sub(came)),
                }
            }
            Poll::Ready(missing == 0)
        });
        tokio::time::timeout(DISCARD_TIME, rest).await.unwrap_or(false)
    }
}
