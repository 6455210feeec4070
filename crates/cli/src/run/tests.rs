//! What the tests of `jitney config` compare its output with.

use std::time::Duration;

use jitney_engine::settings::ModelSettings;

use super::assembly::EngineWithoutPorts;
use crate::env::Env;
use crate::plan::ServerPlan;

/// The settings of the plan's models as they are when the models are registered.
pub fn registered(plan: &ServerPlan, env: &Env) -> Vec<(String, ModelSettings)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let started = EngineWithoutPorts::start(plan, env, 1, "start").unwrap();
        let mut models = Vec::new();
        for startup in &plan.models {
            let model = started.engine.register(startup.options()).await.unwrap().model;
            models.push((model.name().to_owned(), ModelSettings::clone(&model.settings())));
        }
        started.engine.begin_drain();
        started.engine.drain(Duration::ZERO).await;
        started.end().await;
        models
    })
}
