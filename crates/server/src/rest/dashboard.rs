//! `/dashboard`: the page and its files, and the way there from `/`. They hold no data, so anybody may have
//! them; what they show comes from management.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use super::context::RequestContext;
use super::v1;
use crate::dashboard::DashboardFile;
use crate::errors::Problem;
use crate::respond::{self, HttpResponse, HttpResult};

/// The page loads nothing from elsewhere, and nobody may put it into a frame.
const POLICY: &str = "default-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// `/`: browsers are led to the dashboard; others are answered as if there was none.
pub(super) fn home(context: &RequestContext<'_>) -> HttpResult {
    if has(&context.parts.headers, ACCEPT, "text/html") {
        return Ok(redirect(StatusCode::SEE_OTHER, "dashboard"));
    }
    if context.apis.inference && context.apis.natural {
        return Ok(v1::alive());
    }
    Err(Problem::method_not_allowed())
}

/// `/dashboard` and what is below.
pub(super) fn file(context: &RequestContext<'_>, name: &str) -> HttpResult {
    let headers = &context.parts.headers;
    // The page names its files from here on, so it has one address only.
    if name.is_empty() && context.parts.uri.path().ends_with('/') {
        return Ok(redirect(StatusCode::PERMANENT_REDIRECT, "../dashboard"));
    }
    let file = DashboardFile::find(name).ok_or_else(Problem::not_found)?;
    let known = headers.get(IF_NONE_MATCH).is_some_and(|tags| {
        tags.to_str().is_ok_and(|tags| tags.split(',').any(|tag| tag.trim() == file.etag()))
    });
    let packed = has(headers, ACCEPT_ENCODING, "gzip");
    let (status, content) = match (known, packed) {
        (true, _) => (StatusCode::NOT_MODIFIED, Bytes::new()),
        (false, true) => (StatusCode::OK, file.gzip()),
        (false, false) => (StatusCode::OK, file.content()),
    };
    let mut reply = respond::plain(status, content);
    reply.extensions_mut().insert(jitney_net::http::OwnCaching);
    let headers = reply.headers_mut();
    if !known {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type()));
        if packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    headers.extend(fixed_headers());
    headers.extend(HeaderValue::from_str(file.etag()).ok().map(|etag| (ETAG, etag)));
    Ok(reply)
}

fn fixed_headers() -> [(HeaderName, HeaderValue); 5] {
    [
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (VARY, HeaderValue::from_static("Accept-Encoding")),
    ]
}

fn redirect(status: StatusCode, to: &'static str) -> HttpResponse {
    let mut reply = respond::plain(status, Bytes::new());
    reply.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    reply
}

/// Whether a header's value has this word.
fn has(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|text| text.contains(word)))
}
