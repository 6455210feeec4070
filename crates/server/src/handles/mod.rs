//! Handles: calls from Python over one connection, many under way at a time.
//!
//! A handle begins as an HTTP/1.1 request with `Upgrade: jitney-handle/1` on the inference port, so
//! that ports, TLS, tokens and plugins apply to it as they are; then both sides speak the frames of
//! `protocol/handles.md`. Every call goes through the inference service like any request.

mod call;
mod connection;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

#[cfg(test)]
mod tests;
mod worker_calls;

use std::sync::{Arc, OnceLock};

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;

use crate::errors::Problem;
use crate::keys::Caller;
use crate::plugins::CallGuard;
use crate::respond::{self, HttpResult};

pub(crate) use self::connection::serve;
pub(crate) use self::worker_calls::serve_workers;

/// What the `Upgrade` header must say.
const PROTOCOL: &str = "jitney-handle/1";

/// A connection on its way from HTTP to a handle's frames.
#[derive(Clone)]
pub(crate) struct HandleUpgrade {
    connection: OnUpgrade,
    /// Who authorizes its calls, if anybody does.
    guard: Option<Arc<CallGuard>>,
    /// Who makes them.
    caller: Caller,
}

/// Agrees to speak frames; the connection is served by [`serve`] when HTTP has ended on it.
pub(crate) fn upgrade(
    parts: &Parts,
    place: &OnceLock<HandleUpgrade>,
    guard: Option<Arc<CallGuard>>,
    caller: &Caller,
) -> HttpResult {
    let protocol = parts.headers.get(UPGRADE).map(HeaderValue::as_bytes);
    let upgrade = parts.extensions.get::<OnUpgrade>();
    let Some(upgrade) = upgrade.filter(|_| protocol == Some(PROTOCOL.as_bytes())) else {
        return Err(Problem::bad_request(format!(
            "This path is for handles of the Python package: connect with jitney.connect, or send \
             Connection: upgrade and Upgrade: {PROTOCOL}."
        )));
    };
    // There is no second one: the first ends HTTP on the connection.
    drop(place.set(HandleUpgrade { connection: upgrade.clone(), guard, caller: caller.clone() }));
    let mut reply = respond::plain(StatusCode::SWITCHING_PROTOCOLS, bytes::Bytes::new());
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(reply)
}
