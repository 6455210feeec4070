//! The management API: models come, go, grow and describe themselves.
//!
//! One file per endpoint with rules of its own; the small ones are here. Whatever changes the
//! registry runs in a task of its own, so that a client that hangs up leaves nothing half done.

mod describe;
mod list;
mod register;
mod scale;

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use crate::door::Visit;
use crate::errors::{ErrorCode, Problem};
use crate::respond::{self, Reply};
use crate::route::Target;

pub(crate) use describe::describe;
pub(crate) use list::list;
pub(crate) use register::register;
pub(crate) use scale::scale;

/// Makes another version the default.
pub(crate) fn set_default(visit: &Visit<'_>, model: &str, version: &str) -> Result<Reply, Problem> {
    let changed = visit.house.engine.set_default(model, version);
    changed.map_err(|error| Problem::set_default(&error))?;
    let text =
        format!("Default version successfully updated for model \"{model}\" to \"{version}\"");
    Ok(respond::status(StatusCode::OK, &text))
}

/// Removes a version, the default one if none is named.
pub(crate) async fn unregister(visit: &Visit<'_>, target: Target<'_>) -> Result<Reply, Problem> {
    need_model_api(visit)?;
    let engine = Arc::clone(&visit.house.engine);
    let (model, version) = (target.model.to_owned(), target.version.map(str::to_owned));
    finish(async move {
        engine.unregister(&model, version.as_deref()).await?;
        Ok(respond::status(StatusCode::OK, &format!("Model \"{model}\" unregistered")))
    })
    .await
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

/// Runs to the end even if the client goes away.
async fn finish<F>(work: F) -> Result<Reply, Problem>
where
    F: Future<Output = Result<Reply, Problem>> + Send + 'static,
{
    tokio::spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a management request failed");
        Err(Problem::new(ErrorCode::Internal, "The server failed; its log says why."))
    })
}
