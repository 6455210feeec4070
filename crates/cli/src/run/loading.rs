//! Models to load at the start: registered one after the other before the ports open, so that readiness
//! is right from the first probe on. Their workers load while the server already answers.

use std::sync::Arc;

use jitney_engine::settings::RegisterOptions;
use jitney_engine::{Engine, Registered};

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

/// Registers the models of the plan. `jitney torchserve` starts without a model that cannot be
/// loaded, as TorchServe does; for `jitney serve` it is an error.
pub async fn load(
    plan: &ServerPlan,
    engine: &Arc<Engine>,
    packer: &Packer,
) -> Result<Vec<ServedDefinition>, Failure> {
    let mut definitions = Vec::new();
    if matches!(plan.kind, ServerKind::Demo) {
        start_workers(embedded(engine).await?);
    }
    for startup in &plan.models {
        let prepared = prepare(startup, packer).await?;
        let again = prepared.root.clone();
        let (RegisteredParts { parts, root }, packed) =
            match register(engine, startup, prepared).await {
                Ok(registered) => registered,
                Err(failure) if matches!(plan.kind, ServerKind::TorchServe { .. }) => {
                    tracing::error!("{}", failure.message);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
        if let Some(packed) = packed {
            let (name, version) = (root.model.name(), root.model.version());
            let (name, version) = (name.to_owned(), version.to_owned());
            definitions.push(ServedDefinition { startup: startup.clone(), packed, name, version });
        }
        engine.repository().remember(&root.model, again);
        parts.into_iter().for_each(start_workers);
        apply_startup(engine, startup, root);
    }
    for registered in engine.repository().start().await {
        start_workers(registered);
    }
    Ok(definitions)
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
fn apply_startup(engine: &Engine, startup: &Startup, registered: Registered) {
    let model = &registered.model;
    if startup.default
        && let Err(error) = engine.set_default(model.name(), model.version())
    {
        tracing::warn!(model = model.name(), %error, "the default version was not set");
    }
    start_workers(registered);
}

/// Starts the model's workers in the background.
fn start_workers(registered: Registered) {
    let Registered { model, workers_min, workers_max } = registered;
    if workers_min == 0 {
        return;
    }
    model.set_worker_target(workers_min, workers_max);
    tokio::spawn(async move {
        match model.scale(workers_min, workers_max).await {
            Ok(()) => tracing::info!(
                model = model.name(),
                version = model.version(),
                workers = workers_min,
                "model ready"
            ),
            Err(error) => tracing::error!("model {} is not ready: {error}", model.name()),
        }
    });
}
