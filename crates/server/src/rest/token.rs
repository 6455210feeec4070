//! `GET /token?type=…`: a new key for whoever holds the API key. The answer does not tell it; it is
//! written where the operator finds the others.

use bytes::Bytes;
use http::StatusCode;

use crate::auth::{Gate, Role};
use crate::errors::{ErrorCode, Problem};
use crate::listener::RequestContext;
use crate::respond::{self, HttpResponse};

/// Renews the key that the query names; the listener has checked the API key. Without tokens there is
/// nothing here.
pub(crate) fn renew(context: &RequestContext<'_>) -> Result<HttpResponse, Problem> {
    let tokens = context.state.config.tokens.as_ref().ok_or_else(Problem::not_found)?;
    let role = match context.query().text("type") {
        Some("inference") => Role::Inference,
        Some("management") => Role::Management,
        Some(_) | None => return Err(Gate::Renewal.closed()),
    };
    tokens.renew(role).map_err(|error| {
        tracing::error!(%error, "cannot renew a token");
        Problem::new(ErrorCode::Internal, "The new token could not be written down")
    })?;
    tracing::info!(?role, "token renewed");
    Ok(respond::plain(StatusCode::OK, Bytes::from_static(b"\n")))
}
