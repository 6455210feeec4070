//! `/overview`: everything at once for the dashboard and the command line, as a document and as a stream.

use futures_util::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use jitney_net::ResponseBody;
use jitney_net::events::EVENT_STREAM;
use jitney_telemetry::overview::PastRange;

use super::context::RequestContext;
use crate::errors::Problem;
use crate::respond::{self, HttpResponse, HttpResult};

/// Tells nginx to pass on every event at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `GET /overview`.
pub(super) fn document(context: &RequestContext<'_>) -> HttpResponse {
    respond::json(StatusCode::OK, &context.state.overview.read())
}

/// `GET /overview/history`: the samples of an hour, or of a day.
pub(super) fn history(context: &RequestContext<'_>) -> HttpResult {
    let fields = context.query();
    let name = fields.text("range").unwrap_or("hour");
    let wrong = || Problem::bad_request(format!("range must be hour or day, not \"{name}\"."));
    let range = PastRange::named(name).ok_or_else(wrong)?;
    Ok(respond::json(StatusCode::OK, &context.state.overview.past(range)))
}

/// `GET /overview/stream`: the history, then the document once a second.
pub(super) fn stream(context: &RequestContext<'_>) -> HttpResult {
    let (first, rest) = context.state.overview.follow()?;
    Ok(events(ResponseBody::pieces(first, rest.map(Ok))))
}

/// An answer of events.
pub(super) fn events(body: ResponseBody) -> HttpResponse {
    let mut reply = HttpResponse::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    reply
}
