//! HTTP/2 on one connection, for gRPC and for REST: many requests at a time, within bounds, until the
//! client, its age or the listener ends it.
//!
//! A connection that does not begin in time is closed; one that falls silent later, also in the middle of a
//! head, gets HTTP/2 pings and is closed if it does not answer them.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::watch;

use super::watched::{WatchedStream, log_end};
use crate::connection::{ConnectionStage, ListenerSignal, Peer};

/// What a client says first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a connection, and each request of it, may send before it is read. The sum of the requests is bounded
/// by the connection's window.
const WINDOW_BYTES: u32 = 1 << 20;
/// Streams that the client may have ended before they were looked at, and streams that it may have broken:
/// with more of them it is told to go away.
const RESETS_MAX: usize = 20;
const BROKEN_MAX: usize = 1024;
/// A silent connection is asked for a sign of life so often, and given so long to send one.
const PING_EVERY: Duration = Duration::from_secs(60);
const PING_WAIT: Duration = Duration::from_secs(20);
/// How long an idle connection has to notice that it ends.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// When a connection ends and its client connects again, so that load spreads again behind
/// a balancer; never by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionAge {
    /// How long it takes new calls.
    pub max: Option<Duration>,
    /// How long the calls under way may take after that.
    pub grace: Option<Duration>,
}

/// What a connection may do.
#[derive(Clone, Copy)]
pub struct Http2Limits {
    /// Requests at a time; clients hold further ones back.
    pub streams: u32,
    /// Largest head of a request.
    pub head_bytes: u32,
    /// When it ends and its client connects again.
    pub age: ConnectionAge,
}

/// Serves a connection, of which `ahead` was read before.
pub async fn serve<S, A, F, B>(
    mut stream: S,
    ahead: Bytes,
    peer: &Arc<Peer>,
    limits: Http2Limits,
    signals: &mut watch::Receiver<ListenerSignal>,
    answer: A,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    TokioExecutor: Http2ServerConnExec<F, B>,
{
    peer.enter(ConnectionStage::Head);
    let Some(ahead) = read_preface(&mut stream, ahead, peer, signals).await else {
        return tracing::debug!(peer = peer.address, "did not begin");
    };
    peer.enter(ConnectionStage::Body);
    let watched = WatchedStream::new(TokioIo::new(stream), ahead, Arc::clone(peer));
    let connection = builder(limits).serve_connection(watched, service_fn(answer));
    let mut connection = std::pin::pin!(connection);
    let ConnectionAge { max, grace } = limits.age;
    let mut old = std::pin::pin!(until(max));
    // The listener has a grace of its own.
    let mut patience = None;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(peer, ended),
            () = old.as_mut() => {
                patience = grace;
                break;
            }
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) => {}
                (Ok(()), ListenerSignal::End) | (Err(_), _) => break,
            },
            () = peer.open.close_asked() => break,
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = connection => log_end(peer, ended),
        () = until(patience) => tracing::debug!(peer = peer.address, "cut off for its age"),
        () = idle(peer), if peer.open.is_closing() => {
            tracing::debug!(peer = peer.address, "closed, idle");
        }
    }
}

/// What was read once the client has begun as HTTP/2 does, or otherwise; it has as long for that as for any head.
/// Nothing if it takes longer or goes away, or if the connection shall end.
async fn read_preface<S: AsyncRead + Unpin>(
    stream: &mut S,
    ahead: Bytes,
    peer: &Peer,
    signals: &mut watch::Receiver<ListenerSignal>,
) -> Option<Bytes> {
    let (mut read, mut seen) = (BytesMut::from(ahead), None);
    while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
        tokio::select! {
            biased;
            came = stream.read_buf(&mut read) => {
                came.ok().filter(|came| *came > 0)?;
            }
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) if !peer.stalled(&mut seen) => {}
                (Ok(()), ListenerSignal::Tick | ListenerSignal::End) | (Err(_), _) => return None,
            },
            () = peer.open.close_asked() => return None,
        }
    }
    Some(read.freeze())
}

/// Until the connection has been idle for a while. A request may have been on its way when the client was
/// told that the connection ends.
async fn idle(peer: &Peer) {
    loop {
        tokio::time::sleep(CLOSE_WAIT).await;
        if peer.open.is_idle() {
            return;
        }
    }
}

fn builder(limits: Http2Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.head_bytes)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(BROKEN_MAX)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WAIT);
    builder
}

async fn until(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}
