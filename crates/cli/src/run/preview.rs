//! What the models of a plan would be registered as, for `jitney config`: the models are opened, and
//! definitions packed, as at a start. Nothing is registered or started.

use jitney_engine::Engine;
use jitney_engine::settings::{ModelSettings, RegisterOptions};
use jitney_settings::SettingSource;
use tokio::runtime::Handle;

use super::assembly::{cannot, engine_config, packer};
use super::data_plane::DataPlane;
use super::loading::prepare;
use super::scratch::ScratchDir;
use crate::env::Env;
use crate::failure::Failure;
use crate::plan::ServerPlan;
use crate::startup::Startup;

/// A model's name and settings, or why it cannot be opened.
pub type Previewed = Result<(String, ModelSettings), Failure>;

/// Every model of the plan.
pub fn preview(plan: &ServerPlan, env: &Env) -> Result<Vec<Previewed>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("read the models"))?;
    runtime.block_on(async {
        let scratch =
            ScratchDir::make(&plan.temp_dir).map_err(cannot("make a scratch directory"))?;
        let data = DataPlane::start(1).map_err(cannot("read the models"))?;
        let config = engine_config(&plan.engine, &scratch, env, &Handle::current());
        let engine = Engine::start(config, data.handles()).map_err(cannot("read the models"))?;
        let packer = packer(&plan.engine, &engine, &scratch, env)?;
        let mut models = Vec::new();
        for startup in &plan.models {
            models.push(match prepare(startup, &packer).await {
                Ok((options, _)) => open(&engine, startup, options).await,
                Err(failure) => Err(failure),
            });
        }
        drop(engine);
        let _ = tokio::task::spawn_blocking(move || data.end()).await;
        Ok(models)
    })
}

async fn open(
    engine: &Engine,
    startup: &Startup,
    options: RegisterOptions,
) -> Result<(String, ModelSettings), Failure> {
    let failed = |why: String| Failure::failed(format!("cannot load {}: {why}", startup.url));
    if startup.is_remote() {
        return Err(failed("it is not fetched here, so its own settings are unknown".to_owned()));
    }
    let found = engine.preview(&options).await;
    let (name, mut settings) = found.map_err(|error| failed(error.to_string()))?;
    // The directory that a definition was packed into is gone soon.
    for setting in jitney_settings::model::SETTINGS {
        if let (SettingSource::Archive(_), Some(value)) =
            (settings.values.source(setting), settings.values.get(setting).cloned())
        {
            settings.values.set(setting, value, SettingSource::Archive(startup.url.clone()));
        }
    }
    Ok((name, settings))
}

/// The settings of the plan's models as they are when the models are registered.
#[cfg(test)]
pub fn registered(plan: &ServerPlan, env: &Env) -> Vec<(String, ModelSettings)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let scratch = ScratchDir::make(&plan.temp_dir).unwrap();
        let data = DataPlane::start(1).unwrap();
        let config = engine_config(&plan.engine, &scratch, env, &Handle::current());
        let engine = Engine::start(config, data.handles()).unwrap();
        let mut models = Vec::new();
        for startup in &plan.models {
            let model = engine.register(startup.options()).await.unwrap().model;
            models.push((model.name().to_owned(), ModelSettings::clone(&model.settings())));
        }
        engine.begin_drain();
        engine.drain(std::time::Duration::ZERO).await;
        drop(engine);
        let _ = tokio::task::spawn_blocking(move || data.end()).await;
        models
    })
}
