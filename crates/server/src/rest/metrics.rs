//! `/metrics`: the page that Prometheus reads. What stands on it is the meter's business.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::door::Visit;
use crate::respond::{self, Reply};

/// The page, or only the metrics that `name[]` names.
pub(crate) fn page(visit: &Visit<'_>) -> Reply {
    let query = visit.query();
    let text = visit.house.config.meter.page(&visit.house.engine, query.all("name[]").collect());
    let mut reply = respond::plain(StatusCode::OK, Bytes::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}
