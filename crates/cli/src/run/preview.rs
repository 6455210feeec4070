//! What the models of a plan would be registered as, for `jitney config`: the models are opened, and
//! definitions packed, as at a start. Nothing is registered or started.

use jitney_engine::Engine;
use jitney_engine::settings::{ModelSettings, RegisterOptions};
use jitney_settings::SettingSource;

use super::application::{Prepared, prepare};
use super::assembly::{EngineWithoutPorts, runtime};
use crate::env::Env;
use crate::failure::Failure;
use crate::plan::{ServerPlan, Startup};

/// A model's name and settings, or why it cannot be opened.
pub type Previewed = Result<(String, ModelSettings), Failure>;

/// Every model of the plan.
pub fn preview(plan: &ServerPlan, env: &Env) -> Result<Vec<Previewed>, Failure> {
    runtime("read the models")?.block_on(async {
        let started = EngineWithoutPorts::start(plan, env, 1, "read the models")?;
        let mut models = Vec::new();
        for startup in &plan.models {
            match prepare(startup, &started.packer).await {
                Ok(Prepared { parts, root, .. }) => {
                    models.push(open(&started.engine, startup, root).await);
                    for (_, part) in parts {
                        models.push(open(&started.engine, startup, part).await);
                    }
                }
                Err(failure) => models.push(Err(failure)),
            }
        }
        started.end().await;
        Ok(models)
    })
}

async fn open(engine: &Engine, startup: &Startup, options: RegisterOptions) -> Previewed {
    let failed = |why: String| Failure::failed(format!("cannot load {}: {why}", startup.shown()));
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
            settings.values.set(
                setting,
                value,
                SettingSource::Archive(startup.shown().to_string()),
            );
        }
    }
    Ok((name, settings))
}
