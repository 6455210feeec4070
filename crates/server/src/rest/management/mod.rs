//! The management API over REST: what `crate::management` does, asked for by query or JSON body.
//!
//! The endpoints whose parameters have rules of their own are in files of their own.

mod register;
mod scale;
mod workflows;

use http::StatusCode;
use jitney_engine::call::{Origin, OriginKind};
use serde_json::json;

use crate::door::Visit;
use crate::errors::Problem;
use crate::management::{self, Asker, Notice};
use crate::respond::{self, Reply};
use crate::route::Target;

pub(crate) use register::register;
pub(crate) use scale::scale;
pub(crate) use workflows::{
    describe_workflow, list_workflows, register_workflow, unregister_workflow,
};

/// `GET /models`.
pub(crate) fn list(visit: &Visit<'_>) -> Reply {
    let fields = visit.query();
    let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
    respond::json(StatusCode::OK, &management::list(&visit.house.engine, limit, start))
}

/// `GET /models/{m}`.
pub(crate) async fn describe(visit: &Visit<'_>, target: Target<'_>) -> Result<Reply, Problem> {
    let origin = Origin { kind: OriginKind::Http, peer: visit.peer.number };
    let customized = visit.query().boolean("customized", false);
    let asker = customized.then_some(Asker { id: visit.id, origin });
    let described =
        management::describe(&visit.house.engine, &visit.house.config.meter, target, asker).await?;
    Ok(respond::json(StatusCode::OK, &described))
}

/// `GET /models/{m}/batching`.
pub(crate) async fn batching(visit: &Visit<'_>, target: Target<'_>) -> Result<Reply, Problem> {
    let told = management::batching(&visit.house.engine, target).await?;
    Ok(respond::json(StatusCode::OK, &told))
}

/// Makes another version the default.
pub(crate) fn set_default(visit: &Visit<'_>, model: &str, version: &str) -> Result<Reply, Problem> {
    management::set_default(&visit.house.engine, model, version).map(notice)
}

/// Removes a version, the default one if none is named.
pub(crate) async fn unregister(visit: &Visit<'_>, target: Target<'_>) -> Result<Reply, Problem> {
    need_model_api(visit)?;
    management::unregister(&visit.house.engine, target).await.map(notice)
}

/// KServe's question on the management port: are there workers, loaded or not?
pub(crate) fn ready(visit: &Visit<'_>, name: &str) -> Result<Reply, Problem> {
    let model = visit.house.engine.model(name, None)?;
    let ready = !model.status().workers.is_empty();
    Ok(respond::json(StatusCode::OK, &json!({ "name": name, "ready": ready })))
}

fn need_model_api(visit: &Visit<'_>) -> Result<(), Problem> {
    if visit.house.config.model_api { Ok(()) } else { Err(Problem::method_not_allowed()) }
}

/// A change that goes on is 202.
fn notice(notice: Notice) -> Reply {
    let status = if notice.in_progress { StatusCode::ACCEPTED } else { StatusCode::OK };
    respond::status(status, &notice.text)
}
