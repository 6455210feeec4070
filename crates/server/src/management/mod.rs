//! Management, independent of the protocol: REST and gRPC translate and call these functions.
//!
//! Whatever changes the registry runs in a task of its own, so that a client that hangs up leaves
//! nothing half done.

mod batching;
mod describe;
mod list;
mod model_links;
mod noted;
mod register;
mod scale;
mod shadow;
mod statistics;
mod workflows;

use std::sync::Arc;

use jitney_engine::Engine;

use crate::errors::{ErrorCode, Problem};
use crate::route::ModelRef;

pub(crate) use batching::batching;
pub(crate) use describe::describe;
pub(crate) use list::{entry, list};
pub(crate) use noted::{failed_body, requests};
pub(crate) use register::register;
pub(crate) use scale::{Scaling, automatic_range, range, scale};
pub(crate) use shadow::shadow;
pub(crate) use statistics::statistics;
pub(crate) use workflows::{
    describe_workflow, list_workflows, register_workflow, unregister_workflow,
};

/// The answer to a change.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) text: String,
    /// Whether the change is still under way.
    pub(crate) in_progress: bool,
}

impl Notice {
    fn done(text: String) -> Self {
        Self { text, in_progress: false }
    }

    fn in_progress() -> Self {
        Self { text: "Processing worker updates...".to_owned(), in_progress: true }
    }
}

/// Makes another version the default.
pub(crate) fn set_default(engine: &Engine, model: &str, version: &str) -> Result<Notice, Problem> {
    engine.set_default(model, version).map_err(|error| Problem::set_default(&error))?;
    Ok(Notice::done(format!(
        "Default version successfully updated for model \"{model}\" to \"{version}\""
    )))
}

/// Removes a version, the default one if none is named.
pub(crate) async fn unregister(
    engine: &Arc<Engine>,
    target: ModelRef<'_>,
) -> Result<Notice, Problem> {
    let engine = Arc::clone(engine);
    let (model, version) = (target.model.to_owned(), target.version.map(str::to_owned));
    finish(async move {
        engine.unregister(&model, version.as_deref()).await?;
        Ok(Notice::done(format!("Model \"{model}\" unregistered")))
    })
    .await
}

/// Runs to the end even if the client goes away.
async fn finish<F>(work: F) -> Result<Notice, Problem>
where
    F: Future<Output = Result<Notice, Problem>> + Send + 'static,
{
    tokio::spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a management request failed");
        Err(Problem::new(ErrorCode::Internal, "The server failed. See its log."))
    })
}
