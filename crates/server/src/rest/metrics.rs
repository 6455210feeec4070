//! `/metrics`: the page that Prometheus reads. What stands on it is the meter's business.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::listener::RequestContext;
use crate::respond::{self, HttpResponse};

/// The page, or only the metrics that `name[]` names.
pub(crate) fn page(context: &RequestContext<'_>) -> HttpResponse {
    let query = context.query();
    let text =
        context.state.config.meter.page(&context.state.engine, query.all("name[]").collect());
    let mut reply = respond::plain(StatusCode::OK, Bytes::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}
