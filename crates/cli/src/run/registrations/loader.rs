//! Loads one model of the shared list, and changes a running one. A model of a new name is found at once, so
//! that it can be asked how far it is; another one of a name that is served stays unseen until it is ready.

use std::sync::Arc;

use jitney_engine::settings::RegisterOptions;
use jitney_engine::{Engine, Model, Reconfigure, Registered};
use jitney_settings::Values;
use jitney_settings::model::{MAX_WORKERS, WORKERS};
use tokio::sync::oneshot;

use super::super::loading;
use crate::definition::Packer;
use crate::plan::Startup;
use crate::serve::model::from_entry;

/// Loads models.
#[derive(Clone)]
pub struct Loader {
    /// Where they run.
    pub engine: Arc<Engine>,
    /// Packs those that are Python definitions.
    pub packer: Arc<Packer>,
}

/// How loading ended.
pub struct LoadOutcome {
    /// Whose it was.
    pub id: u64,
    /// What was asked for.
    pub wanted: Startup,
    /// What runs, or why it does not.
    pub outcome: Result<Arc<Model>, NotLoaded>,
}

/// Why a model was not loaded.
pub enum NotLoaded {
    /// Nobody wants it any more.
    Cancelled,
    /// It failed; the model if it can be asked why.
    Failed(String, Option<Arc<Model>>),
}

impl Loader {
    /// Loads a model, in the place of another one if there is one, until nobody wants it any more.
    pub async fn load(
        self,
        id: u64,
        wanted: Startup,
        old: Option<Arc<Model>>,
        cancelled: oneshot::Receiver<()>,
    ) -> LoadOutcome {
        let mut begun = None;
        let attempt = tokio::select! {
            outcome = self.attempt(&wanted, old.as_ref(), &mut begun) => Some(outcome),
            _ = cancelled => None,
        };
        let outcome = match (attempt, begun) {
            (Some(Ok(model)), _) => Ok(model),
            (Some(Err(reason)), Some(model)) if self.engine.holds(&model) => {
                Err(NotLoaded::Failed(reason, Some(model)))
            }
            (attempt, begun) => {
                begun.iter().for_each(|model| self.engine.withdraw(model));
                Err(match attempt {
                    Some(Err(reason)) => NotLoaded::Failed(reason, None),
                    Some(Ok(_)) | None => NotLoaded::Cancelled,
                })
            }
        };
        LoadOutcome { id, wanted, outcome }
    }

    async fn attempt(
        &self,
        wanted: &Startup,
        old: Option<&Arc<Model>>,
        begun: &mut Option<Arc<Model>>,
    ) -> Result<Arc<Model>, String> {
        let startup = from_entry(wanted.clone()).map_err(|failure| failure.to_string())?;
        let prepared = loading::prepare(&startup, &self.packer).await;
        let (options, _) = prepared.map_err(|failure| failure.to_string())?;
        let options = RegisterOptions { apart: true, ..options };
        let registered = match old {
            Some(_) => self.engine.start_beside(&options).await,
            None => self.engine.register(options).await,
        };
        let registered = registered.map_err(|error| error.to_string())?;
        let Registered { model, workers_min, workers_max } = registered;
        *begun = Some(Arc::clone(&model));
        if workers_min > 0 {
            model.scale(workers_min, workers_max).await.map_err(|error| error.to_string())?;
        }
        if old.is_some() {
            self.engine.exchange(old, &model).map_err(|error| error.to_string())?;
        }
        Ok(model)
    }

    /// Changes settings of a running model, until nobody wants that any more.
    pub async fn change(
        self,
        id: u64,
        wanted: Startup,
        model: Arc<Model>,
        settings: Values,
        cancelled: oneshot::Receiver<()>,
    ) -> LoadOutcome {
        let outcome = tokio::select! {
            outcome = changed(&self.engine, &model, settings) => {
                outcome.map_err(|reason| NotLoaded::Failed(reason, None))
            }
            _ = cancelled => Err(NotLoaded::Cancelled),
        };
        LoadOutcome { id, wanted, outcome: outcome.map(|()| model) }
    }
}

async fn changed(engine: &Engine, model: &Model, mut settings: Values) -> Result<(), String> {
    let asked = settings.has(&WORKERS) || settings.has(&MAX_WORKERS);
    let (min, max) = model.worker_target();
    let min = settings.read(&WORKERS).unwrap_or(min);
    let max = settings.read(&MAX_WORKERS).unwrap_or(if asked { min } else { max }).max(min);
    engine.check_workers(max)?;
    settings.remove(&WORKERS);
    settings.remove(&MAX_WORKERS);
    if !settings.is_empty() {
        model.reconfigure(Reconfigure { endpoint: None, settings }).await?;
    }
    match asked {
        true => model.scale(min, max).await.map_err(|error| error.to_string()),
        false => Ok(()),
    }
}
