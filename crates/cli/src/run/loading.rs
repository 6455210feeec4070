//! Models to load at the start: registered one after the other before the ports open, so that readiness
//! is right from the first probe on. Their workers load while the server already answers.

use std::sync::Arc;

use jitney_engine::settings::RegisterOptions;
use jitney_engine::{Engine, Model, Registered};
use tokio::task::JoinSet;

use super::application::{RegisteredParts, prepare, register};
use crate::definition::{Packed, Packer};
use crate::failure::{Failure, cannot};
use crate::plan::{ServerKind, ServerPlan, Startup};

/// A Python definition that is being served.
pub struct ServedDefinition {
    /// The model to load, from the command line or the configuration.
    pub startup: Startup,
    /// What was packed last.
    pub packed: Packed,
    /// The name it is served under.
    pub name: String,
    /// The version that answers.
    pub version: String,
}

/// The models of the start.
#[derive(Default)]
pub struct LoadedModels {
    /// Those that are Python definitions.
    pub definitions: Vec<ServedDefinition>,
    /// Their workers, which are being started.
    pub starting: JoinSet<Result<(), Failure>>,
}

/// Registers the models of the plan. `jitney torchserve` starts without a model that cannot be
/// loaded, as TorchServe does; for `jitney serve` it is an error, and for a server that replaces another one.
pub async fn load(
    plan: &ServerPlan,
    engine: &Arc<Engine>,
    packer: &Packer,
    replaces: bool,
) -> Result<LoadedModels, Failure> {
    let LoadedModels { mut definitions, mut starting } = LoadedModels::default();
    let lenient = matches!(plan.kind, ServerKind::TorchServe { .. }) && !replaces;
    if matches!(plan.kind, ServerKind::Demo) {
        start_workers(embedded(engine).await?, &mut starting);
    }
    for startup in &plan.models {
        let prepared = prepare(startup, packer).await?;
        let again = prepared.root.clone();
        let (RegisteredParts { parts, root }, packed) =
            match register(engine, startup, prepared).await {
                Ok(registered) => registered,
                Err(failure) if lenient => {
                    tracing::error!("{}", failure.message);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
        // What was fetched from a bucket is not followed.
        if let Some(packed) = packed.filter(|_| startup.definition.is_some()) {
            let (name, version) = (root.model.name(), root.model.version());
            let (name, version) = (name.to_owned(), version.to_owned());
            definitions.push(ServedDefinition { startup: startup.clone(), packed, name, version });
        }
        engine.repository().remember(&root.model, again);
        parts.into_iter().for_each(|part| start_workers(part, &mut starting));
        set_default(engine, startup, &root.model);
        start_workers(root, &mut starting);
    }
    for registered in engine.repository().start().await {
        start_workers(registered, &mut starting);
    }
    Ok(LoadedModels { definitions, starting })
}

/// Returns when all workers are there.
pub async fn wait(starting: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(started) = starting.join_next().await {
        started.unwrap_or_else(|panic| Err(Failure::failed(panic.to_string())))?;
    }
    Ok(())
}

async fn embedded(engine: &Engine) -> Result<Registered, Failure> {
    let model = jitney_onnx::embedded::magika()
        .map_err(|error| Failure::failed(format!("the embedded model is damaged: {error}")))?;
    let options = RegisterOptions {
        url: "embedded:magika".to_owned(),
        at_startup: true,
        ..RegisterOptions::default()
    };
    engine.register_local(model, options).await.map_err(cannot("load the embedded model"))
}

/// Applies what a snapshot holds beside the settings: the default version.
fn set_default(engine: &Engine, startup: &Startup, model: &Model) {
    if startup.default
        && let Err(error) = engine.set_default(model.name(), model.version())
    {
        tracing::warn!(model = model.name(), %error, "the default version was not set");
    }
}

/// Starts the model's workers in the background.
fn start_workers(registered: Registered, starting: &mut JoinSet<Result<(), Failure>>) {
    let Registered { model, workers_min, workers_max } = registered;
    if workers_max == 0 {
        return;
    }
    model.set_worker_target(workers_min, workers_max);
    starting.spawn(async move {
        let scaled = model.scale(workers_min, workers_max).await;
        let (model, version) = (model.name(), model.version());
        match scaled {
            Ok(()) if workers_min == 0 => {}
            Ok(()) => tracing::info!(model, version, workers = workers_min, "model ready"),
            Err(error) => {
                tracing::error!("model {model} is not ready: {error}");
                return Err(Failure::failed(format!("model {model} is not ready: {error}")));
            }
        }
        Ok(())
    });
}
