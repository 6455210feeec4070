//! `/workflows`: what `crate::management` does with workflows, asked for by query or JSON body.

use http::StatusCode;
use jitney_engine::workflow::WorkflowOptions;
use jitney_net::RequestBody;
use jitney_settings::from_parameters;
use jitney_settings::model::{RESPONSE_TIMEOUT, STARTUP_TIMEOUT};

use super::models::{fields, need_model_api, notice};
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

/// `POST /workflows`; always waits until all nodes are loaded.
pub(crate) async fn register_workflow(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> HttpResult {
    need_model_api(context)?;
    let options = options(&fields(context, body).await?)?;
    management::register_workflow(&context.state.engine, options).await.map(notice)
}

/// `GET /workflows/{w}`.
pub(crate) fn describe_workflow(context: &RequestContext<'_>, name: &str) -> HttpResult {
    let description = management::describe_workflow(&context.state.engine, name)?;
    Ok(respond::json(StatusCode::OK, &[description]))
}

/// `DELETE /workflows/{w}`.
pub(crate) async fn unregister_workflow(context: &RequestContext<'_>, name: &str) -> HttpResult {
    need_model_api(context)?;
    management::unregister_workflow(&context.state.engine, name).await.map(notice)
}

fn options(fields: &RequestFields) -> Result<WorkflowOptions, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let url = text("url").ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    let settings =
        from_parameters(|name| fields.text(name), false).map_err(Problem::bad_request)?;
    Ok(WorkflowOptions {
        url,
        name: text("workflow_name"),
        timeouts: settings.only(&[&RESPONSE_TIMEOUT, &STARTUP_TIMEOUT]),
    })
}
