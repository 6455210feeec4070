//! The model repository extension, independent of the protocol: REST and gRPC translate and call these
//! functions. They name models of the served repository only, and take no files from clients, and of a
//! configuration only sizes and counts.
//!
//! Whatever changes the registry runs in a task of its own, so that a client that hangs up leaves nothing
//! half done.

use std::sync::Arc;

use jitney_engine::error::RepositoryError;
use jitney_engine::store::config_overrides;
use jitney_engine::{Engine, IndexEntry, IndexState};

use crate::errors::{ErrorCode, Problem};
use crate::state::ServerState;

/// Every model of the repository with its state, or only those that are ready.
pub(crate) async fn index(state: &ServerState, ready: bool) -> Vec<IndexEntry> {
    let mut entries = state.engine.repository().index().await;
    entries.retain(|entry| !ready || entry.state == IndexState::Ready);
    entries
}

/// Loads a model, or loads it again if its files changed; waits until it is ready. Its parameters may hold a
/// configuration, where the operator allows that.
///
/// # Errors
/// Models may not be changed, there is no such model, or it does not load.
pub(crate) async fn load(
    state: &ServerState,
    name: &str,
    parameters: impl Iterator<Item = (&str, Option<&str>)>,
) -> Result<(), Problem> {
    let mut overrides = None;
    for (parameter, value) in parameters {
        match value {
            Some(json) if parameter == "config" && state.config.client_config => {
                let read = config_overrides(json);
                let failed = |why| Problem::bad_request(format!("failed to load {name:?}: {why}"));
                overrides = Some(read.map_err(failed)?);
            }
            _ => check_parameter(parameter)?,
        }
    }
    let load = |engine: Arc<Engine>, name: String| async move {
        engine.repository().load_with(&name, overrides).await
    };
    change(state, name, load).await
}

/// Removes all versions of a model; what was admitted is answered before this returns.
///
/// # Errors
/// Models may not be changed, or there is no such model.
pub(crate) async fn unload(state: &ServerState, name: &str) -> Result<(), Problem> {
    change(state, name, |engine, name| async move { engine.repository().unload(&name).await }).await
}

/// Rejects what would make the client decide what is loaded.
///
/// # Errors
/// The parameter is a file or a configuration, or nothing that is known.
pub(crate) fn check_parameter(name: &str) -> Result<(), Problem> {
    if name == "unload_dependents" {
        return Ok(());
    }
    let why = if name == "config" {
        "failed to load: a configuration is not taken from clients; put it beside the model, into \
         config.pbtxt, or start the server with --allow-client-config"
            .to_owned()
    } else if name.starts_with("file:") {
        "failed to load: files are not taken from clients; put them into the repository".to_owned()
    } else {
        format!("The parameter {name:?} is unknown.")
    };
    Err(Problem::bad_request(why))
}

async fn change<F>(
    state: &ServerState,
    name: &str,
    work: impl FnOnce(Arc<Engine>, String) -> F,
) -> Result<(), Problem>
where
    F: Future<Output = Result<(), RepositoryError>> + Send + 'static,
{
    if !state.config.model_api {
        return Err(Problem::new(
            ErrorCode::MethodNotAllowed,
            "Models may not be loaded or unloaded here: the model API is off (enable_model_api).",
        ));
    }
    if state.engine.draining() {
        return Err(jitney_engine::error::RegisterError::Draining.into());
    }
    let changed = tokio::spawn(work(Arc::clone(&state.engine), name.to_owned())).await;
    changed.unwrap_or_else(|error| {
        let (model, reason) = (name.to_owned(), error.to_string());
        Err(RepositoryError::NotLoaded { model, reason })
    })?;
    Ok(())
}
