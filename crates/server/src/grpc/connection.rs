//! One client's HTTP/2 connection: many calls at a time, and an age at which the client is asked to
//! connect again.
//!
//! A connection that sends nothing at first is closed; one that falls silent later gets HTTP/2 pings.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::services::GrpcServices;
use crate::config::ConnectionAge;
use crate::connection::{ConnectionStage, ListenerSignal, Peer, WatchedStream, log_end};

/// Calls of one connection at a time; clients hold further ones back.
const CALLS_MAX: u32 = 1024;
/// What a connection, and each call of it, may send before it is read. The sum of the calls is bounded by
/// the connection's window.
const WINDOW_BYTES: u32 = 1 << 20;
/// A silent connection is asked for a sign of life so often, and given so long to send one.
const PING_EVERY: Duration = Duration::from_secs(60);
const PING_WAIT: Duration = Duration::from_secs(20);
/// How long an idle connection has to notice that it ends.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Serves a connection until its end, its age's end or the listener's.
pub(crate) async fn serve<S>(
    stream: S,
    peer: Arc<Peer>,
    services: Arc<GrpcServices>,
    age: ConnectionAge,
    mut signals: watch::Receiver<ListenerSignal>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Whatever arrives from now on leaves a mark.
    peer.enter(ConnectionStage::Body);
    let service = service_fn({
        let peer = Arc::clone(&peer);
        move |request: Request<Incoming>| {
            let (services, peer) = (Arc::clone(&services), Arc::clone(&peer));
            // hyper moves it several times before it runs.
            Box::pin(async move { services.answer(&peer, request).await })
        }
    });
    let watched = WatchedStream::new(TokioIo::new(stream), Bytes::new(), Arc::clone(&peer));
    let mut connection = std::pin::pin!(builder().serve_connection(watched, service));
    let mut old = std::pin::pin!(until(age.max));
    let mut seen = None;
    let grace = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(&peer, ended),
            () = old.as_mut() => break age.grace,
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) if peer.spoke() || !peer.stalled(&mut seen) => {}
                (Ok(()), ListenerSignal::Tick) => return tracing::debug!(peer = peer.address, "silent"),
                // The listener has a grace of its own.
                (Ok(()), ListenerSignal::End) | (Err(_), _) => break None,
            },
            () = peer.open.close_asked() => break peer.open.is_idle().then_some(CLOSE_WAIT),
        }
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = connection => log_end(&peer, ended),
        () = until(grace) => tracing::debug!(peer = peer.address, "cut off for its age"),
    }
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_MAX)
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
