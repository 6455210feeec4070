//! One client's gRPC connection.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use jitney_net::ConnectionAge;
use jitney_net::connection::{ListenerSignal, Peer};
use jitney_net::http::http2::{self, Http2Limits};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::services::GrpcServices;

/// Calls of one connection at a time.
const CALLS_MAX: u32 = 1024;
/// Largest metadata of a call.
const METADATA_MAX: u32 = 16 << 10;

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
    let answer = |request: Request<Incoming>| {
        let (services, peer) = (Arc::clone(&services), Arc::clone(&peer));
        // hyper moves it several times before it runs.
        Box::pin(async move { services.answer(&peer, request).await })
    };
    let limits = Http2Limits { streams: CALLS_MAX, head_bytes: METADATA_MAX, age };
    http2::serve(stream, Bytes::new(), &peer, limits, &mut signals, answer).await;
}
