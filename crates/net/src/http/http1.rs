//! HTTP/1 on one connection, as hyper reads and writes it: whatever is not plain.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::head;
use super::service::{HeadError, HttpClient, HttpService};
use super::watched::{WatchedStream, log_end};
use crate::connection::{ConnectionStage, ListenerSignal, Peer, last_look};
use crate::growing_body::READ_BUFFER;
use crate::incoming_body::RequestBody;
use crate::outgoing_body::ResponseBody;

/// Largest head of a request, and hyper's read buffer with it.
pub(super) const HEAD_BYTES_MAX: usize = READ_BUFFER;

/// Serves a connection, of which `ahead` was read before, until it ends, its listener does, or a request has
/// upgraded it.
pub(super) async fn serve<A: HttpService, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    ahead: Bytes,
    service: &A,
    client: &HttpClient<'_, A::Upgrade>,
    signals: &mut watch::Receiver<ListenerSignal>,
) {
    let peer = client.peer;
    let watched = WatchedStream::new(TokioIo::new(stream), ahead, Arc::clone(peer));
    let watched = watched.explaining(A::malformed);
    let answer = service_fn(|request: Request<Incoming>| answer(service, client, request));
    let connection = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(watched, answer)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let (mut seen, mut closing) = (None, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(peer, ended),
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) if !peer.stalled(&mut seen) => {}
                (Ok(()), ListenerSignal::Tick) => {
                    return tracing::debug!(peer = peer.address, "the client sends too slowly");
                }
                (Ok(()), ListenerSignal::End) | (Err(_), _) => break,
            },
            () = async { peer.open.close_asked().await; last_look().await }, if !closing => {
                tracing::debug!(peer = peer.address, "closed, idle for long");
                if peer.awaits_head() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                closing = true;
            }
        }
    }
    tokio::select! {
        biased;
        ended = connection.as_mut() => return log_end(peer, ended),
        () = last_look() => connection.as_mut().graceful_shutdown(),
    }
    log_end(peer, connection.await);
}

async fn answer<A: HttpService>(
    service: &A,
    client: &HttpClient<'_, A::Upgrade>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (peer, rules) = (client.peer, service.rules());
    peer.enter(ConnectionStage::Busy);
    let (mut parts, body) = request.into_parts();
    let body = check_head(peer, &parts.headers).map(|()| {
        let body = RequestBody::new(body, parts.headers.contains_key(EXPECT));
        rules.coded(&mut parts.headers, body)
    });
    let mut answered = service.answer(client, &parts, body).await;
    if answered.last {
        head::close(&mut answered.reply);
    }
    if !answered.reply.body_mut().keep_busy(peer) {
        peer.enter(ConnectionStage::Idle);
    }
    Ok(answered.stamped(rules))
}

/// What hyper lets pass and another reader may read differently.
fn check_head(peer: &Peer, headers: &HeaderMap) -> Result<(), HeadError> {
    if peer.had_bare_lf() {
        return Err(HeadError::BareLf);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(_), _) => Err(HeadError::Codings),
    }
}
