//! An archive becomes a model, with workers if they are wanted.

use std::sync::Arc;

use jitney_engine::error::{RegisterError, ReplaceError};
use jitney_engine::settings::RegisterOptions;
use jitney_engine::{Engine, Registered, ReplaceOrder};
use jitney_settings::Dialect;

use super::{Notice, finish, scale};
use crate::errors::Problem;
use crate::state::ServerState;

/// Registers a model; `synchronous` waits until its workers are loaded. One that replaces another is always waited for.
pub(crate) async fn register(
    state: &ServerState,
    options: RegisterOptions,
    synchronous: bool,
    replaces: Option<ReplaceOrder>,
) -> Result<Notice, Problem> {
    let (engine, dialect) = (Arc::clone(&state.engine), state.config.dialect);
    let notice = match replaces {
        None => finish(run(engine, options, synchronous, dialect)).await,
        Some(order) => finish(replace(engine, options, order, dialect)).await,
    };
    // Whoever has the answer may look for the snapshot.
    state.engine.changes().recorded().await;
    notice
}

async fn run(
    engine: Arc<Engine>,
    options: RegisterOptions,
    synchronous: bool,
    dialect: Dialect,
) -> Result<Notice, Problem> {
    let registered = engine.register(options).await.inspect_err(note)?;
    let Registered { model, workers_min, workers_max } = registered;
    let (name, version) = (model.name(), model.version());
    if workers_min == 0 && workers_max > 0 {
        // The first request starts a worker: nobody has to ask for one.
        scale::in_background(Arc::clone(&model), workers_min, workers_max);
        let text = format!(
            "Model \"{name}\" Version: {version} registered with 0 to {workers_max} workers"
        );
        return Ok(Notice::done(text));
    }
    if workers_min == 0 {
        let text = format!(
            "Model \"{name}\" Version: {version} registered with 0 initial workers. \
             Use scale workers API to add workers for the model."
        );
        return Ok(Notice::done(text));
    }
    if !synchronous {
        scale::in_background(model, workers_min, workers_max);
        return Ok(Notice::in_progress());
    }
    if let Err(error) = model.scale(workers_min, workers_max).await {
        tracing::warn!(model = name, version, %error, "registration failed, the model is removed");
        // It may be gone already; either way its name is free again.
        let _ = engine.unregister(name, Some(version)).await;
        return Err(Problem::scale(dialect, &error, name, Some(version)));
    }
    let text = format!(
        "Model \"{name}\" Version: {version} registered with {workers_min} initial workers"
    );
    Ok(Notice::done(text))
}

async fn replace(
    engine: Arc<Engine>,
    options: RegisterOptions,
    order: ReplaceOrder,
    dialect: Dialect,
) -> Result<Notice, Problem> {
    match engine.replace(&options, order).await {
        Ok(model) => {
            let (name, version) = (model.name(), model.version());
            Ok(Notice::done(format!("Model \"{name}\" Version: {version} replaced")))
        }
        Err(ReplaceError::Register(error)) => {
            note(&error);
            Err(error.into())
        }
        Err(ReplaceError::Scale { model, version, error }) => {
            tracing::warn!(model, version, %error, "the model was not replaced");
            Err(Problem::scale(dialect, &error, &model, Some(&version)))
        }
    }
}

/// What the client is not told, the log is.
fn note(error: &RegisterError) {
    let detail = match error {
        RegisterError::Store(error) => error.detail(),
        RegisterError::Pip { why, .. } | RegisterError::Venv { why, .. } => Some(why.clone()),
        RegisterError::NoName
        | RegisterError::BadRuntime(_)
        | RegisterError::BadSettings(_)
        | RegisterError::Conflict { .. }
        | RegisterError::PathTaken { .. }
        | RegisterError::NotLoadable(_)
        | RegisterError::NoRoomBeside { .. }
        | RegisterError::Draining => None,
    };
    tracing::warn!(%error, detail, "a model was not registered");
}
