//! A client's bytes on their way to hyper and back: the connection learns when they move, and requests that are
//! not valid HTTP get an answer with a body, for which hyper has no hook.
//!
//! hyper's bare answer is recognised on its way out. Only bytes that are written while a head is still being read
//! can be such an answer, and only one without our request id is; everything else passes untouched.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Response;
use http::header::CONTENT_LENGTH;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::head::push_header;
use super::head_scan::HeadScan;
use crate::connection::{ConnectionStage, Peer};
use crate::outgoing_body::ResponseBody;

/// Logs a connection that did not end well.
pub(super) fn log_end(peer: &Peer, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "connection ended");
    }
}

/// What is read of a head at a time.
const HEAD_READ_BYTES: usize = 8 << 10;

/// What a client is told where HTTP has this status for its bytes.
type ExplainStatus = fn(u16) -> Response<ResponseBody>;

/// A stream that tells its [`Peer`] when bytes arrive, and may add a body to errors that hyper answers by
/// itself.
pub struct WatchedStream<S> {
    stream: S,
    peer: Arc<Peer>,
    /// What was read before.
    ahead: Bytes,
    /// What a client is told whose bytes are no HTTP.
    explain: Option<ExplainStatus>,
    /// What is left to write instead of a bare answer.
    instead: Bytes,
    /// The lines of the head at hand.
    scan: HeadScan,
}

impl<S> WatchedStream<S> {
    /// A stream of which `ahead` was read before.
    pub fn new(stream: S, ahead: Bytes, peer: Arc<Peer>) -> Self {
        let (instead, scan) = (Bytes::new(), HeadScan::default());
        Self { stream, peer, ahead, explain: None, instead, scan }
    }

    /// The same, which explains the errors that hyper answers by itself.
    pub(super) fn explaining(self, explain: ExplainStatus) -> Self {
        Self { explain: Some(explain), ..self }
    }
}

impl<S> WatchedStream<S> {
    /// Looks at the lines of a head of HTTP/1.
    fn watch_head(&mut self, bytes: &[u8]) {
        if self.scan.has_bare(bytes) {
            self.peer.note_bare_lf();
        }
    }

    /// Notes whether the client takes what is written.
    fn watch_write(
        &self,
        polled: Poll<io::Result<usize>>,
        context: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(written)) => self.peer.wrote(*written, false),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.peer.wait_for_write(context),
        }
        polled
    }
}

impl<S: Write + Unpin> WatchedStream<S> {
    /// Whether something else is written instead of these bytes: `Ready` when it is out.
    fn poll_instead(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_empty() {
            let explain = self.explain.filter(|_| self.peer.at(ConnectionStage::Head))?;
            let answer = explained(bytes, explain)?;
            if let Some(suppressed) = self.peer.open.plane.malformed.pass() {
                let peer = &self.peer.address;
                tracing::info!(peer, suppressed, "rejected a request that is not valid HTTP");
            }
            self.instead = answer;
        }
        while !self.instead.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.instead) {
                Poll::Ready(Ok(written)) if written > 0 => self.instead.advance(written),
                Poll::Ready(Ok(_)) => {
                    return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
                Poll::Pending => return Some(Poll::Pending),
            }
        }
        Some(Poll::Ready(Ok(bytes.len())))
    }
}

impl<S: Read + Unpin> WatchedStream<S> {
    /// Reads while a head is awaited, or goes on, and looks at its lines.
    fn poll_read_head(
        &mut self,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
        begins: bool,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [MaybeUninit::uninit(); HEAD_READ_BYTES];
        let most = buffer.remaining().min(HEAD_READ_BYTES);
        let mut read = ReadBuf::uninit(&mut bytes[..most]);
        ready!(Pin::new(&mut self.stream).poll_read(context, read.unfilled()))?;
        if begins {
            self.scan = HeadScan::default();
        }
        self.watch_head(read.filled());
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: Read + Unpin> Read for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.peer.check_cut()?;
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            let ahead = self.ahead.split_to(count);
            if self.explain.is_some() {
                self.watch_head(&ahead);
            }
            buffer.put_slice(&ahead);
            self.peer.bytes_came();
            return Poll::Ready(Ok(()));
        }
        let idle = self.peer.at(ConnectionStage::Idle);
        let polled = if self.explain.is_some() && (idle || self.peer.at(ConnectionStage::Head)) {
            self.poll_read_head(context, buffer, idle)
        } else {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        };
        if polled.is_ready() {
            self.peer.bytes_came();
        } else {
            self.peer.wait_for_read(context);
        }
        polled
    }
}

impl<S: Write + Unpin> Write for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.peer.check_cut()?;
        let polled = match self.poll_instead(context, bytes) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        };
        self.watch_write(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        match polled {
            Poll::Ready(_) => self.peer.wrote(0, true),
            Poll::Pending => self.peer.wait_for_write(context),
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = parts.first().map_or(&[][..], |part| part);
        self.peer.check_cut()?;
        let polled = match self.poll_instead(context, first) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write_vectored(context, parts),
        };
        self.watch_write(polled, context)
    }
}

/// A complete answer instead of hyper's bare one, if `written` is one.
fn explained(written: &[u8], explain: ExplainStatus) -> Option<Bytes> {
    let head = std::str::from_utf8(written).ok()?;
    let status_line = head.lines().next()?.strip_prefix("HTTP/1.")?;
    let status: u16 = status_line.get(2..5)?.parse().ok()?;
    if !(400..500).contains(&status) || head.to_ascii_lowercase().contains("x-request-id") {
        return None;
    }
    let reply = explain(status);
    let body = reply.body().here();
    let mut answer = format!("HTTP/1.{status_line}\r\n").into_bytes();
    for (name, value) in reply.headers() {
        push_header(&mut answer, name, value.as_bytes());
    }
    push_header(&mut answer, &CONTENT_LENGTH, body.len().to_string().as_bytes());
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    Some(Bytes::from(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(written: &[u8]) -> Option<Bytes> {
        let explain = |status: u16| Response::new(ResponseBody::whole(status.to_string().into()));
        explained(written, explain)
    }

    #[test]
    fn a_bare_answer_gets_a_body() {
        let bare = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let expected = "HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\n400";
        assert_eq!(answer(bare).unwrap(), expected);
    }

    #[test]
    fn our_own_answers_and_bodies_pass_untouched() {
        assert!(answer(b"HTTP/1.1 404 Not Found\r\nX-Request-Id: 1\r\n\r\n").is_none());
        assert!(answer(b"HTTP/1.1 200 OK\r\n\r\n").is_none());
        assert!(answer(b"HTTP/1.1 100 Continue\r\n\r\n").is_none());
        assert!(answer(b"{\"any\": \"body\"}").is_none());
        assert!(answer(b"").is_none());
    }
}
