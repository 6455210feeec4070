//! Models over REST: list, describe, make the default, unregister.

use http::StatusCode;

use crate::errors::Problem;
use crate::management::{self, Notice};
use crate::respond::{self, HttpResponse, HttpResult};
use crate::rest::context::RequestContext;
use crate::route::ModelRef;

/// `GET /models`.
pub(crate) fn list(context: &RequestContext<'_>) -> HttpResponse {
    let fields = context.query();
    let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
    respond::json(StatusCode::OK, &management::list(&context.state.engine, limit, start))
}

/// `GET /models/{m}`.
pub(crate) async fn describe(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let customized = context.query().boolean("customized", false);
    let caller = customized.then_some((context.id.text(), context.origin()));
    let described = management::describe(context.state, target, caller).await?;
    Ok(respond::json(StatusCode::OK, &described))
}

/// `GET /models/{m}/batching`.
pub(crate) async fn batching(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let report = management::batching(&context.state.engine, target).await?;
    Ok(respond::json(StatusCode::OK, &report))
}

/// `GET /models/{m}/statistics`.
pub(crate) fn statistics(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let statistics = management::statistics(&context.state.engine, target)?;
    Ok(respond::json(StatusCode::OK, &statistics))
}

/// Makes another version the default.
pub(crate) fn set_default(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let version = target.version.unwrap_or_default();
    management::set_default(&context.state.engine, target.model, version).map(notice)
}

/// Removes a version, the default one if none is named.
pub(crate) async fn unregister(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    need_model_api(context)?;
    management::unregister(&context.state.engine, target).await.map(notice)
}

pub(super) fn need_model_api(context: &RequestContext<'_>) -> Result<(), Problem> {
    if context.state.config.model_api { Ok(()) } else { Err(Problem::method_not_allowed()) }
}

/// A change that goes on is 202.
pub(super) fn notice(notice: Notice) -> HttpResponse {
    let status = if notice.in_progress { StatusCode::ACCEPTED } else { StatusCode::OK };
    respond::status(status, &notice.text)
}
