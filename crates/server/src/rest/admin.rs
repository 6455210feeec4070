//! What operators read and renew: the metrics page and the keys.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use jitney_telemetry::metrics::{OtherFacts, PageFormat};

use super::context::RequestContext;
use super::jobs;
use crate::auth::{Gate, Role};
use crate::errors::{ErrorCode, Problem};
use crate::respond::{self, HttpResponse, HttpResult};

/// `/metrics`: the page for Prometheus, or only the metrics that `name[]` names.
pub(super) fn metrics(context: &RequestContext<'_>) -> HttpResponse {
    let (state, query) = (context.state, context.query());
    let format = PageFormat::accepted(&context.parts.headers);
    let other = OtherFacts {
        spans_dropped: state.parts.tracer.as_ref().map_or(0, |tracer| tracer.spans.dropped()),
        registrations: state.parts.registrations.read(),
        jobs: jobs::overview(&state.jobs),
    };
    let names = query.all("name[]").collect();
    let page = state.parts.meter.page(&state.engine, names, format, other);
    let mut reply = respond::plain(StatusCode::OK, Bytes::from(page));
    reply.headers_mut().insert(CONTENT_TYPE, format.content_type());
    reply
}

/// `GET /token?type=…`: replaces the key that the query names. The caller's API key was checked before.
/// The answer does not contain the new key; it is written to the key file.
pub(super) fn renew_token(context: &RequestContext<'_>) -> HttpResult {
    let tokens = context.state.parts.tokens.as_ref().ok_or_else(Problem::not_found)?;
    let role = match context.query().text("type") {
        Some("inference") => Role::Inference,
        Some("management") => Role::Management,
        Some(_) | None => return Err(Gate::Renewal.closed()),
    };
    tokens.renew(role).map_err(|error| {
        tracing::error!(%error, "cannot renew a token");
        Problem::new(ErrorCode::Internal, "The new token could not be saved.")
    })?;
    tracing::info!(role = context.query().text("type"), "token renewed");
    Ok(respond::plain(StatusCode::OK, Bytes::from_static(b"\n")))
}
