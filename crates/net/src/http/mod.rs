//! HTTP on one connection: what a request needs to know of who answers it, and nothing of what the answer is.
//!
//! Three carriers read requests and write answers: `plain` nearly all of HTTP/1, `http1` with hyper whatever else
//! comes over it, `streams` those of HTTP/2. They differ in bytes only. Whoever answers
//! implements [`HttpService`], and is called without a box and without a table of functions.

mod head;
mod head_scan;
mod http1;
pub mod http2;
mod plain;
mod service;
mod streams;
mod watched;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

pub use self::head::{DefaultHeaders, OwnCaching, close};
pub use self::service::{Answered, HeadError, HttpClient, HttpRules, HttpService};
pub use self::watched::WatchedStream;
use crate::connection::ListenerSignal;

/// Serves a connection until it ends, its listener does, or a request has upgraded it, which `upgrade` then
/// says.
pub async fn serve<A: HttpService, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    service: &Arc<A>,
    client: &HttpClient<'_, A::Upgrade>,
    signals: &mut watch::Receiver<ListenerSignal>,
) {
    let Some((stream, ahead)) = plain::serve(stream, &**service, client, signals).await else {
        return;
    };
    if streams::begins(&ahead) {
        Box::pin(streams::serve(stream, ahead, service, client.peer, signals)).await;
    } else {
        Box::pin(http1::serve(stream, ahead, &**service, client, signals)).await;
    }
}

#[cfg(fuzzing)]
pub use plain::fuzzing::plain_requests;
