//! What pages of other origins may do under `jitney serve`: which of them may read an answer, and what a browser is
//! told that asks before it sends a request (a preflight). Their preflights bring no token, so none is asked for.
//!
//! `jitney torchserve` sends its headers with every answer, as TorchServe does, and reads a preflight like any request.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::{HeaderValue, StatusCode};
use jitney_settings::Dialect;

use super::context::RequestContext;
use crate::respond::{self, HttpResponse};

const ANY: &str = "*";
/// How long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// What a page may read of an answer beside its body.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after, server-timing, x-request-id");

/// The answer to a request for `OPTIONS` that is a preflight of a page whose origin is allowed.
pub(super) fn preflight(context: &RequestContext<'_>) -> Option<HttpResponse> {
    allowed_origin(context)?;
    let headers = &context.parts.headers;
    let asked = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    let cors = &context.state.config.cors;
    let mut reply = respond::plain(StatusCode::NO_CONTENT, bytes::Bytes::new());
    let mut allow = |name: HeaderName, told: &Option<String>, asked: Option<&HeaderValue>| {
        let told = told.as_deref().and_then(|told| HeaderValue::from_str(told).ok());
        if let Some(value) = told.or_else(|| asked.cloned()) {
            reply.headers_mut().insert(name, value);
        }
    };
    allow(ACCESS_CONTROL_ALLOW_METHODS, &cors.methods, Some(asked));
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
    allow(ACCESS_CONTROL_ALLOW_HEADERS, &cors.headers, asked);
    reply.headers_mut().insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    Some(reply)
}

/// Lets a page read an answer whose origin is allowed. An application that answers by itself may have said so.
pub(super) fn stamp(context: &RequestContext<'_>, reply: &mut HttpResponse) {
    if reply.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    if let Some(origin) = allowed_origin(context) {
        let headers = reply.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// The origin of the page that asks, if it is allowed. A star is everybody, where nothing is managed.
fn allowed_origin(context: &RequestContext<'_>) -> Option<HeaderValue> {
    let config = &context.state.config;
    let listed = config.cors.origin.as_deref().filter(|_| config.dialect == Dialect::Jitney)?;
    let origin = context.parts.headers.get(ORIGIN)?;
    let mut listed = listed.split([',', ' ']);
    let allowed = listed.any(|one| match one {
        ANY => !context.apis.management,
        named => named.as_bytes().eq_ignore_ascii_case(origin.as_bytes()),
    });
    allowed.then(|| origin.clone())
}
