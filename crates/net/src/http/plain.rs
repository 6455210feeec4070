//! Plain requests, which nearly all are: without anything that changes the connection. They are read, answered and
//! written here; small ones with one system call each way and no buffer of the connection's own, large bodies from
//! the socket into the pieces that are passed on.
//!
//! hyper serves all others. The first request that is not plain, or that does not come at once, takes the
//! connection there for good, with what was read of it: whatever is said about clients that are slow, break
//! off or do not speak HTTP is said there, once.

mod large;
mod request;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::CONNECTION;
use http::response;
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;

use self::request::{ParsedRequest, PlainRequest};
use super::head::{self, AnswerHead, DateText, Framing};
use super::service::{Answered, HttpClient, HttpService};
use crate::connection::{ConnectionStage, ListenerSignal, Peer, last_look};
use crate::incoming_body::RequestBody;
use crate::outgoing_body::{ResponseBody, SMALL_ANSWER};
use crate::request_id::XRequestId;

/// What is read at a time. A plain request fits.
const READ_BYTES: usize = 32 << 10;
/// A request that comes in more pieces than this is not plain.
const PIECES_MAX: u32 = 8;
/// The buffer of answers is given back when it has grown beyond this.
const WRITE_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        read: vec![0; READ_BYTES].into_boxed_slice(),
        write: Vec::new(),
        date: DateText::default(),
    });
}

/// What all connections of a thread use in turn, never across a wait.
struct Buffers {
    read: Box<[u8]>,
    write: Vec<u8>,
    date: DateText,
}

/// Serves a connection until it ends, its listener does, or a request comes that is not plain: then the stream
/// is returned, with what was read of it.
pub(super) async fn serve<A: HttpService, S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    service: &A,
    client: &HttpClient<'_, A::Upgrade>,
    signals: &watch::Receiver<ListenerSignal>,
) -> Option<(S, Bytes)> {
    let open = &client.peer.open;
    open.set_silent(true);
    let ahead = Vec::new();
    let plain = PlainConnection { stream, service, client, ahead, unread: false, pieces: 0 };
    let left = plain.serve(signals).await;
    open.set_silent(false);
    open.set_incomplete(false);
    left
}

/// A connection on which only plain requests have come so far.
struct PlainConnection<'a, A: HttpService, S> {
    stream: S,
    service: &'a A,
    client: &'a HttpClient<'a, A::Upgrade>,
    /// What was read of requests to come.
    ahead: Vec<u8>,
    /// Whether nobody has looked at it yet.
    unread: bool,
    /// The pieces in which the request at hand has come.
    pieces: u32,
}

/// What comes next on a connection.
enum NextRequest {
    Plain(PlainRequest),
    /// One whose body of this length is still coming.
    Large(PlainRequest, u64),
    /// Something for hyper.
    Other,
    /// Nothing has come, and the server ends the connection.
    Asked,
    /// Nothing more.
    End,
}

/// What came of the attempt to write an answer at once.
enum FirstWrite {
    All,
    Rest(Vec<u8>),
}

impl<A: HttpService, S: AsyncRead + AsyncWrite + Unpin> PlainConnection<'_, A, S> {
    /// Returns the stream and what was read ahead if hyper shall go on.
    async fn serve(mut self, signals: &watch::Receiver<ListenerSignal>) -> Option<(S, Bytes)> {
        let mut looked = false;
        loop {
            let answered =
                match poll_fn(|context| self.poll_request(looked, signals, context)).await {
                    NextRequest::Asked if !looked => {
                        looked = true;
                        last_look().await;
                        continue;
                    }
                    NextRequest::Plain(request) => self.answer(request, signals).await,
                    NextRequest::Large(request, length) => {
                        Box::pin(self.answer_large(request, length, signals)).await
                    }
                    NextRequest::Other => return Some((self.stream, Bytes::from(self.ahead))),
                    NextRequest::Asked | NextRequest::End => return None,
                };
            match answered {
                Ok(true) => {}
                Ok(false) => {
                    let _ = self.stream.shutdown().await;
                    return None;
                }
                Err(error) => {
                    let peer = &self.client.peer.address;
                    tracing::debug!(peer, %error, "connection ended");
                    return None;
                }
            }
        }
    }

    fn poll_request(
        &mut self,
        looked: bool,
        signals: &watch::Receiver<ListenerSignal>,
        context: &mut Context<'_>,
    ) -> Poll<NextRequest> {
        let open = &self.client.peer.open;
        let called = open.was_called(context);
        if called && !self.unread && open.is_incomplete() {
            return Poll::Ready(NextRequest::Other);
        }
        if std::mem::take(&mut self.unread)
            && let Some(next) = self.parse_ahead()
        {
            return Poll::Ready(next);
        }
        loop {
            let read = BUFFERS.with_borrow_mut(|buffers| {
                let mut buffer = ReadBuf::new(&mut buffers.read);
                let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
                Poll::Ready(read.map(|()| self.take(buffer.filled())))
            });
            match read {
                // Only now: a request that came before the end is answered.
                Poll::Pending if open.is_closing() => {
                    tracing::debug!(peer = self.client.peer.address, "closed, idle for long");
                    return Poll::Ready(NextRequest::Asked);
                }
                Poll::Pending if (called || looked) && self.ahead.is_empty() && ends(signals) => {
                    return Poll::Ready(NextRequest::Asked);
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Some(next))) => return Poll::Ready(next),
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Err(error)) => {
                    let peer = &self.client.peer.address;
                    tracing::debug!(peer, %error, "connection ended");
                    return Poll::Ready(NextRequest::End);
                }
            }
        }
    }

    /// Takes what was read; nothing while a request is not complete.
    fn take(&mut self, read: &[u8]) -> Option<NextRequest> {
        if read.is_empty() {
            return Some(NextRequest::End);
        }
        if self.ahead.is_empty() {
            return self.parse(Bytes::copy_from_slice(read));
        }
        self.ahead.extend_from_slice(read);
        self.parse_ahead()
    }

    fn parse_ahead(&mut self) -> Option<NextRequest> {
        let ahead = std::mem::take(&mut self.ahead);
        if ahead.is_empty() { None } else { self.parse(Bytes::from(ahead)) }
    }

    /// The next request in what was read, the rest of which stays ahead.
    fn parse(&mut self, read: Bytes) -> Option<NextRequest> {
        let open = &self.client.peer.open;
        open.set_silent(false);
        let (next, used) = match PlainRequest::parse(&read) {
            ParsedRequest::Plain(request, used) => (NextRequest::Plain(request), used),
            ParsedRequest::Large(request, length) => {
                (NextRequest::Large(request, length), read.len())
            }
            ParsedRequest::Other => (NextRequest::Other, 0),
            ParsedRequest::Incomplete if read.len() < READ_BYTES && self.pieces < PIECES_MAX => {
                self.pieces += 1;
                self.ahead = Vec::from(read);
                open.set_incomplete(true);
                return None;
            }
            ParsedRequest::Incomplete => (NextRequest::Other, 0),
        };
        if self.pieces > 0 {
            open.set_incomplete(false);
        }
        self.pieces = 0;
        if used < read.len() {
            self.ahead = read[used..].to_vec();
            self.unread = true;
        }
        Some(next)
    }

    /// Answers a request; false if the connection ends with the answer.
    async fn answer(
        &mut self,
        request: PlainRequest,
        signals: &watch::Receiver<ListenerSignal>,
    ) -> io::Result<bool> {
        let peer = self.client.peer;
        peer.enter(ConnectionStage::Busy);
        let PlainRequest { parts, body, closes } = request;
        let answered = {
            // Idle connections do without its memory.
            let body = Ok(RequestBody::whole(body));
            let mut answer = Box::pin(self.service.answer(self.client, &parts, body));
            poll_fn(|context| match answer.as_mut().poll(context) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => self.poll_gone(context).map(|()| None),
            })
            .await
        };
        self.reply(answered.ok_or_else(gone)?, closes, signals).await
    }

    /// Writes an answer; false if the connection ends with it.
    async fn reply(
        &mut self,
        answered: Answered,
        closes: bool,
        signals: &watch::Receiver<ListenerSignal>,
    ) -> io::Result<bool> {
        let peer = self.client.peer;
        let Answered { mut reply, id, at, last } = answered;
        if closes || last || ends(signals) {
            head::close(&mut reply);
        }
        if !reply.body_mut().keep_busy(peer) {
            peer.enter(ConnectionStage::Idle);
        }
        let (head, body) = reply.into_parts();
        let stays = !head.headers.keys().any(|name| name == CONNECTION);
        self.write(&head, body, &id, at).await?;
        Ok(stays)
    }

    /// Ready when the client has gone. What else it sends meanwhile is kept.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.ahead.is_empty() {
            return Poll::Pending;
        }
        BUFFERS.with_borrow_mut(|buffers| {
            let mut buffer = ReadBuf::new(&mut buffers.read);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
            self.ahead = buffer.filled().to_vec();
            self.unread = true;
            Poll::Pending
        })
    }

    async fn write(
        &mut self,
        head: &response::Parts,
        mut body: ResponseBody,
        id: &XRequestId,
        now: Instant,
    ) -> io::Result<()> {
        let defaults = &self.service.rules().headers;
        let framing = Framing::of(head.status, &body);
        let first = BUFFERS.with_borrow_mut(|buffers| {
            let Buffers { write, date, .. } = buffers;
            write.clear();
            write.shrink_to(WRITE_BYTES);
            AnswerHead { head, id, defaults, framing }.push(write, date.at(now));
            if matches!(framing, Framing::Length(length) if length <= SMALL_ANSWER as u64) {
                write.extend_from_slice(&body.take().unwrap_or_default());
            }
            let stream = Pin::new(&mut self.stream);
            // Nobody is woken: what is left is tried again at once.
            let mut context = Context::from_waker(std::task::Waker::noop());
            match stream.poll_write(&mut context, write) {
                Poll::Ready(written) => written.map(|count| match &write[count..] {
                    [] => FirstWrite::All,
                    rest => FirstWrite::Rest(rest.to_vec()),
                }),
                Poll::Pending => Ok(FirstWrite::Rest(write.clone())),
            }
        })?;
        if let FirstWrite::Rest(rest) = first {
            write_all(&mut self.stream, self.client.peer, &mut &*rest).await?;
        }
        if framing != Framing::None {
            self.write_rest(body, framing == Framing::Chunked).await?;
        }
        poll_fn(|context| Pin::new(&mut self.stream).poll_flush(context)).await
    }

    /// Writes what is left of a body, piece by piece.
    async fn write_rest(&mut self, mut body: ResponseBody, chunked: bool) -> io::Result<()> {
        if !chunked && body.is_end_stream() {
            return Ok(());
        }
        let peer = self.client.peer;
        loop {
            let piece = poll_fn(|context| match Pin::new(&mut body).poll_frame(context) {
                Poll::Ready(piece) => Poll::Ready(Ok(piece)),
                Poll::Pending => self.poll_gone(context).map(|()| Err(gone())),
            });
            let Some(piece) = piece.await?.transpose().map_err(io::Error::other)? else { break };
            let Ok(mut piece) = piece.into_data() else { continue };
            if !chunked {
                write_all(&mut self.stream, peer, &mut piece).await?;
                continue;
            }
            let size = format!("{:x}\r\n", piece.remaining());
            if piece.remaining() > SMALL_ANSWER {
                write_all(&mut self.stream, peer, &mut size.as_bytes()).await?;
                write_all(&mut self.stream, peer, &mut piece).await?;
                write_all(&mut self.stream, peer, &mut &b"\r\n"[..]).await?;
            } else {
                let chunk = [size.as_bytes(), piece.chunk(), b"\r\n"].concat();
                write_all(&mut self.stream, peer, &mut &*chunk).await?;
            }
            poll_fn(|context| Pin::new(&mut self.stream).poll_flush(context)).await?;
        }
        match chunked {
            true => write_all(&mut self.stream, peer, &mut &b"0\r\n\r\n"[..]).await,
            false => Ok(()),
        }
    }
}

/// Writes all of it, unless the client reads so slowly that it is cut off.
async fn write_all<S: AsyncWrite + Unpin>(
    stream: &mut S,
    peer: &Peer,
    bytes: &mut impl Buf,
) -> io::Result<()> {
    poll_fn(|context| {
        while bytes.has_remaining() {
            peer.check_cut()?;
            match Pin::new(&mut *stream).poll_write(context, bytes.chunk()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    peer.wrote(written, false);
                    bytes.advance(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    peer.wait_for_write(context);
                    return Poll::Pending;
                }
            }
        }
        peer.wrote(0, true);
        Poll::Ready(Ok(()))
    })
    .await
}

fn gone() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Whether the listener has ended.
fn ends(signals: &watch::Receiver<ListenerSignal>) -> bool {
    matches!(*signals.borrow(), ListenerSignal::End)
}

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
