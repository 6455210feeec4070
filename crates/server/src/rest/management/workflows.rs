//! `/workflows`: what `crate::management` does with workflows, asked for by query or JSON body.

use http::StatusCode;
use jitney_engine::workflow::WorkflowWishes;

use super::models::notice;
use super::{register, scale};
use crate::body::RequestBody;
use crate::errors::Problem;
use crate::management;
use crate::query::RequestFields;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::rest::context::RequestContext;

/// `GET /workflows`.
pub(crate) fn list_workflows(context: &RequestContext<'_>) -> HttpResponse {
    let fields = context.query();
    let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
    let page = management::list_workflows(&context.state.engine, limit, start);
    respond::json(StatusCode::OK, &page)
}

/// `POST /workflows`; always waits until all nodes are loaded. The switch of the model API is not asked, as
/// in TorchServe.
pub(crate) async fn register_workflow(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> HttpResult {
    let wishes = wishes(&register::fields(context, body).await?)?;
    management::register_workflow(&context.state.engine, wishes).await.map(notice)
}

/// `GET /workflows/{w}`.
pub(crate) fn describe_workflow(context: &RequestContext<'_>, name: &str) -> HttpResult {
    let description = management::describe_workflow(&context.state.engine, name)?;
    Ok(respond::json(StatusCode::OK, &[description]))
}

/// `DELETE /workflows/{w}`.
pub(crate) async fn unregister_workflow(context: &RequestContext<'_>, name: &str) -> HttpResult {
    management::unregister_workflow(&context.state.engine, name).await.map(notice)
}

fn wishes(fields: &RequestFields) -> Result<WorkflowWishes, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let url = text("url").ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    Ok(WorkflowWishes {
        url,
        name: text("workflow_name"),
        response_timeout_s: scale::not_negative(fields, "response_timeout"),
        startup_timeout_s: scale::not_negative(fields, "startup_timeout"),
    })
}
