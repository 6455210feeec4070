//! The management API over REST: what `crate::management` does, asked for by query or JSON body.
//!
//! The endpoints whose parameters have rules of their own are in files of their own.

mod register;
mod scale;
mod workflows;

use http::StatusCode;
use jitney_engine::call::{Origin, OriginKind};
use serde_json::json;

use crate::errors::Problem;
use crate::listener::RequestContext;
use crate::management::{self, DescribeCaller, Notice};
use crate::respond::{self, HttpResponse};
use crate::route::ModelRef;

pub(crate) use register::register;
pub(crate) use scale::scale;
pub(crate) use workflows::{
    describe_workflow, list_workflows, register_workflow, unregister_workflow,
};

/// `GET /models`.
pub(crate) fn list(context: &RequestContext<'_>) -> HttpResponse {
    let fields = context.query();
    let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
    respond::json(StatusCode::OK, &management::list(&context.state.engine, limit, start))
}

/// `GET /models/{m}`.
pub(crate) async fn describe(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
) -> Result<HttpResponse, Problem> {
    let origin = Origin { kind: OriginKind::Http, peer: context.peer.number };
    let customized = context.query().boolean("customized", false);
    let caller = customized.then_some(DescribeCaller { id: context.id, origin });
    let described =
        management::describe(&context.state.engine, &context.state.config.meter, target, caller)
            .await?;
    Ok(respond::json(StatusCode::OK, &described))
}

/// `GET /models/{m}/batching`.
pub(crate) async fn batching(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
) -> Result<HttpResponse, Problem> {
    let told = management::batching(&context.state.engine, target).await?;
    Ok(respond::json(StatusCode::OK, &told))
}

/// Makes another version the default.
pub(crate) fn set_default(
    context: &RequestContext<'_>,
    model: &str,
    version: &str,
) -> Result<HttpResponse, Problem> {
    management::set_default(&context.state.engine, model, version).map(notice)
}

/// Removes a version, the default one if none is named.
pub(crate) async fn unregister(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
) -> Result<HttpResponse, Problem> {
    need_model_api(context)?;
    management::unregister(&context.state.engine, target).await.map(notice)
}

/// KServe's question on the management port: are there workers, loaded or not?
pub(crate) fn ready(context: &RequestContext<'_>, name: &str) -> Result<HttpResponse, Problem> {
    let model = context.state.engine.model(name, None)?;
    let ready = !model.status().workers.is_empty();
    Ok(respond::json(StatusCode::OK, &json!({ "name": name, "ready": ready })))
}

fn need_model_api(context: &RequestContext<'_>) -> Result<(), Problem> {
    if context.state.config.model_api { Ok(()) } else { Err(Problem::method_not_allowed()) }
}

/// A change that goes on is 202.
fn notice(notice: Notice) -> HttpResponse {
    let status = if notice.in_progress { StatusCode::ACCEPTED } else { StatusCode::OK };
    respond::status(status, &notice.text)
}
