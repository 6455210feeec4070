//! Start-up models: registered one after the other before the doors open, so that readiness tells
//! the truth from the first probe on; their workers load while the server already answers.

use std::sync::Arc;

use jitney_engine::settings::RegisterOptions;
use jitney_engine::{Engine, Registered};

use super::watch::Watched;
use crate::definition::{Packed, Packer};
use crate::failure::Failure;
use crate::plan::{Face, Plan};
use crate::startup::Startup;

/// Registers what the plan names. TorchServe goes on without a model it cannot load; whoever types
/// `jitney serve x.mar` wants to know at once.
pub async fn load(
    plan: &Plan,
    engine: &Arc<Engine>,
    packer: &Packer,
) -> Result<Vec<Watched>, Failure> {
    let mut watched = Vec::new();
    if matches!(plan.face, Face::Demo) {
        staff(embedded(engine).await?);
    }
    for startup in &plan.models {
        if let Some(object) = &startup.definition {
            let packed = packer.pack(object, startup.version.as_deref()).await?;
            let registered = register(engine, startup, options(startup, &packed)).await?;
            let (name, version) = (registered.model.name(), registered.model.version());
            let (name, version) = (name.to_owned(), version.to_owned());
            settle(engine, startup, registered);
            watched.push(Watched { startup: startup.clone(), packed, name, version });
            continue;
        }
        match register(engine, startup, startup.options()).await {
            Ok(registered) => settle(engine, startup, registered),
            Err(failure) if matches!(plan.face, Face::TorchServe { .. }) => {
                tracing::error!("{}", failure.message);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(watched)
}

/// What the engine is asked for when a definition was packed.
pub fn options(startup: &Startup, packed: &Packed) -> RegisterOptions {
    let url = packed.model.to_string_lossy().into_owned();
    RegisterOptions { url, version: None, ..startup.options() }
}

async fn register(
    engine: &Engine,
    startup: &Startup,
    options: RegisterOptions,
) -> Result<Registered, Failure> {
    engine
        .register(options)
        .await
        .map_err(|error| Failure::failed(format!("cannot load {}: {error}", startup.url)))
}

async fn embedded(engine: &Engine) -> Result<Registered, Failure> {
    let model = jitney_onnx::embedded::magika()
        .map_err(|error| Failure::failed(format!("the embedded model is damaged: {error}")))?;
    let options = RegisterOptions {
        url: "embedded:magika".to_owned(),
        at_startup: true,
        ..RegisterOptions::default()
    };
    engine
        .register_local(model, options)
        .await
        .map_err(|error| Failure::failed(format!("cannot load the embedded model: {error}")))
}

/// What a snapshot keeps beyond the settings: the default version.
fn settle(engine: &Engine, startup: &Startup, registered: Registered) {
    let model = &registered.model;
    if startup.default
        && let Err(error) = engine.set_default(model.name(), model.version())
    {
        tracing::warn!(model = model.name(), %error, "the default version was not set");
    }
    staff(registered);
}

/// Gives the model its workers, in the background.
fn staff(registered: Registered) {
    let Registered { model, workers_min, workers_max } = registered;
    if workers_min == 0 {
        return;
    }
    tokio::spawn(async move {
        match model.scale(workers_min, workers_max).await {
            Ok(()) => tracing::info!(
                model = model.name(),
                version = model.version(),
                workers = workers_min,
                "model ready"
            ),
            Err(error) => tracing::error!(
                model = model.name(),
                version = model.version(),
                %error,
                "workers did not start"
            ),
        }
    });
}
