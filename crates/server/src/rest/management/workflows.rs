//! `/workflows`: what `crate::management` does with workflows, asked for by query or JSON body.

use http::StatusCode;
use jitney_engine::workflow::WorkflowWishes;

use super::{notice, register, scale};
use crate::body::Upload;
use crate::door::Visit;
use crate::errors::Problem;
use crate::management;
use crate::query::Fields;
use crate::respond::{self, Reply};

/// `GET /workflows`.
pub(crate) fn list_workflows(visit: &Visit<'_>) -> Reply {
    let fields = visit.query();
    let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
    let page = management::list_workflows(&visit.house.engine, limit, start);
    respond::json(StatusCode::OK, &page)
}

/// `POST /workflows`; always waits until all nodes are loaded. The switch of the model API is not asked, as
/// in TorchServe.
pub(crate) async fn register_workflow(visit: &Visit<'_>, body: Upload) -> Result<Reply, Problem> {
    let wishes = wishes(&register::fields(visit, body).await?)?;
    management::register_workflow(&visit.house.engine, wishes).await.map(notice)
}

/// `GET /workflows/{w}`.
pub(crate) fn describe_workflow(visit: &Visit<'_>, name: &str) -> Result<Reply, Problem> {
    let description = management::describe_workflow(&visit.house.engine, name)?;
    Ok(respond::json(StatusCode::OK, &[description]))
}

/// `DELETE /workflows/{w}`.
pub(crate) async fn unregister_workflow(visit: &Visit<'_>, name: &str) -> Result<Reply, Problem> {
    management::unregister_workflow(&visit.house.engine, name).await.map(notice)
}

fn wishes(fields: &Fields) -> Result<WorkflowWishes, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let url = text("url").ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    Ok(WorkflowWishes {
        url,
        name: text("workflow_name"),
        response_timeout_s: scale::not_negative(fields, "response_timeout"),
        startup_timeout_s: scale::not_negative(fields, "startup_timeout"),
    })
}
