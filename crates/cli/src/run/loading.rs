//! Start-up models: registered one after the other before the doors open, so that readiness tells
//! the truth from the first probe on; their workers load while the server already answers.

use std::sync::Arc;

use jitney_engine::settings::Wishes;
use jitney_engine::{Engine, Registered, onnx};

use crate::failure::Failure;
use crate::plan::{Face, Plan};
use crate::startup::Startup;

/// Registers what the plan names. TorchServe goes on without a model it cannot load; whoever types
/// `jitney serve x.mar` wants to know at once.
pub async fn load(plan: &Plan, engine: &Arc<Engine>) -> Result<(), Failure> {
    if matches!(plan.face, Face::Demo) {
        staff(embedded(engine).await?);
    }
    for startup in &plan.models {
        match register(engine, startup).await {
            Ok(registered) => staff(registered),
            Err(failure) if matches!(plan.face, Face::TorchServe { .. }) => {
                tracing::error!("{}", failure.message);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

async fn register(engine: &Engine, startup: &Startup) -> Result<Registered, Failure> {
    engine
        .register(startup.wishes())
        .await
        .map_err(|error| Failure::failed(format!("cannot load {}: {error}", startup.url)))
}

async fn embedded(engine: &Engine) -> Result<Registered, Failure> {
    let model = onnx::embedded::magika()
        .map_err(|error| Failure::failed(format!("the embedded model is damaged: {error}")))?;
    let wishes =
        Wishes { url: "embedded:magika".to_owned(), at_startup: true, ..Wishes::default() };
    engine
        .register_onnx(model, wishes)
        .await
        .map_err(|error| Failure::failed(format!("cannot load the embedded model: {error}")))
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
