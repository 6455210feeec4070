//! HTTP/1 on one connection, as hyper reads and writes it: whatever is not plain.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, EXPECT};
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jitney_net::compression::Coding;
use jitney_net::connection::{ConnectionStage, ListenerSignal, WatchedStream, log_end};
use jitney_net::{READ_BUFFER, RequestBody};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::answer;
use super::context::ConnectionContext;
use crate::handles::HandleUpgrade;
use crate::respond::{self, HttpResponse};
use crate::state::ServerState;

/// Largest head of a request, and hyper's read buffer with it.
pub(super) const HEAD_BYTES_MAX: usize = READ_BUFFER;

/// Serves a connection, of which `ahead` was read before, until it ends or its listener does. Returns the
/// connection if its last request upgraded it to a handle.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    ahead: Bytes,
    context: ConnectionContext<'_>,
    signals: &mut watch::Receiver<ListenerSignal>,
) -> Option<HandleUpgrade> {
    let peer = context.peer;
    let watched = WatchedStream::new(TokioIo::new(stream), ahead, Arc::clone(peer));
    let service = service_fn(|request: Request<Incoming>| answer(context, request));
    let connection = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(watched, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let (mut seen, mut closing) = (None, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                log_end(peer, ended);
                return context.upgrade.get().cloned();
            }
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) if !peer.stalled(&mut seen) => {}
                (Ok(()), ListenerSignal::Tick) => {
                    tracing::debug!(peer = peer.address, "the client sends too slowly");
                    return None;
                }
                (Ok(()), ListenerSignal::End) | (Err(_), _) => break,
            },
            () = peer.open.close_asked(), if !closing => {
                tracing::debug!(peer = peer.address, "closed, idle for long");
                if peer.awaits_head() {
                    return None;
                }
                connection.as_mut().graceful_shutdown();
                closing = true;
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    log_end(peer, connection.await);
    None
}

async fn answer(
    connection: ConnectionContext<'_>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    let ConnectionContext { state, peer, .. } = connection;
    peer.enter(ConnectionStage::Busy);
    let (mut parts, body) = request.into_parts();
    let body = RequestBody::new(body, parts.headers.contains_key(EXPECT));
    let body = coded(state, &mut parts.headers, body);
    let mut answered = answer::answer(connection, &parts, Ok(body)).await;
    if answered.last {
        respond::close(&mut answered.reply);
    }
    if !answered.reply.body_mut().keep_busy(peer) {
        peer.enter(ConnectionStage::Idle);
    }
    Ok(answered.stamped(state))
}

/// The body with what the headers say of how it is compressed, which they then say no more.
pub(super) fn coded(
    state: &ServerState,
    headers: &mut HeaderMap,
    body: RequestBody,
) -> RequestBody {
    if state.config.decompress_requests && headers.contains_key(CONTENT_ENCODING) {
        body.coded(Coding::take(headers))
    } else {
        body
    }
}
