//! Handles: calls from Python over one connection, many under way at a time.
//!
//! A handle begins as an HTTP/1.1 request with `Upgrade: jitney-handle/1` on the inference port, so
//! that ports, TLS, tokens and plugins hold for it as they are; then both sides speak the frames of
//! `protocol/handles.md`. Every call goes through `Model::call` like any request; this room never
//! looks into a value and decides nothing about batches.

mod call;
pub(crate) mod connection;
mod frame;
mod rooms;

#[cfg(test)]
mod tests;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;

use crate::errors::Problem;
use crate::listener::RequestContext;
use crate::respond::{self, HttpResponse};

pub(crate) use self::rooms::Rooms;

/// What the `Upgrade` header must say.
const PROTOCOL: &str = "jitney-handle/1";

/// Agrees to speak frames; the connection finds what it needs in its [`Peer`](crate::connection::Peer).
pub(crate) fn upgrade(context: &RequestContext<'_>) -> Result<HttpResponse, Problem> {
    let asked = context.parts.headers.get(UPGRADE).map(HeaderValue::as_bytes);
    let coming = context.parts.extensions.get::<OnUpgrade>();
    let Some(coming) = coming.filter(|_| asked == Some(PROTOCOL.as_bytes())) else {
        return Err(Problem::bad_request(format!(
            "This path is for handles of the Python package: connect with jitney.connect, or send \
             Connection: upgrade and Upgrade: {PROTOCOL}."
        )));
    };
    context.peer.hand_over(coming.clone());
    let mut reply = respond::plain(StatusCode::SWITCHING_PROTOCOLS, bytes::Bytes::new());
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(reply)
}
