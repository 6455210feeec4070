//! Loads one model of the shared list, and changes a running one. A model of a new name is found at once, so
//! that it can be asked how far it is; another one of a name that is served stays unseen until it is ready.

use std::sync::Arc;

use jitney_engine::traffic_split::TrafficSplit;
use jitney_engine::{Engine, Model, Reconfigure};
use jitney_server::FollowedFiles;
use jitney_settings::Values;
use jitney_settings::model::{MAX_WORKERS, TRAFFIC, WORKERS};
use tokio::sync::oneshot;

use super::super::application::{Prepared, RegisteredParts, prepare, prepared, register};
use crate::definition::Packer;
use crate::failure::Failure;
use crate::plan::Startup;
use crate::serve::model::from_entry;

/// Loads models.
#[derive(Clone)]
pub struct Loader {
    /// Where they run.
    pub engine: Arc<Engine>,
    /// Packs those that are Python definitions.
    pub packer: Arc<Packer>,
    /// The list, for the audit log.
    pub followed: FollowedFiles,
}

/// A model of the list that runs, or could not.
#[derive(Clone)]
pub struct ListedRun {
    /// The model.
    pub model: Arc<Model>,
    /// The parts that it calls, if it is an application: the first to start first.
    parts: Vec<Arc<Model>>,
    /// The version that its first packing had, if it is a definition; later ones count from there.
    packed_version: Option<String>,
    count: u32,
}

/// How loading ended.
pub struct LoadOutcome {
    /// Whose it was.
    pub id: u64,
    /// What was asked for.
    pub wanted: Startup,
    /// What runs, or why it does not.
    pub outcome: Result<ListedRun, NotLoaded>,
}

/// Why a model was not loaded.
pub enum NotLoaded {
    /// Nobody wants it any more.
    Cancelled,
    /// It failed; the model if it can be asked why.
    Failed(String, Option<ListedRun>),
}

impl ListedRun {
    /// Ends it: requests do not find it any more, and its parts go after it.
    pub fn retire(&self, engine: &Engine) {
        let parts = self.parts.iter().rev();
        engine.retire([&self.model].into_iter().chain(parts).cloned().collect());
    }
}

impl Loader {
    /// Loads a model, in the place of another one if there is one, until nobody wants it any more.
    pub async fn load(
        self,
        id: u64,
        wanted: Startup,
        old: Option<ListedRun>,
        cancelled: oneshot::Receiver<()>,
    ) -> LoadOutcome {
        let (before, mut begun) = (self.followed.look(), None);
        let attempt = tokio::select! {
            outcome = self.attempt(&wanted, old.as_ref(), &mut begun) => Some(outcome),
            _ = cancelled => None,
        };
        let outcome = match (attempt, begun) {
            (Some(Ok(())), Some(run)) => {
                old.iter().for_each(|old| old.retire(&self.engine));
                Ok(run)
            }
            (Some(Err(reason)), Some(run)) if self.engine.holds(&run.model) => {
                Err(NotLoaded::Failed(reason, Some(run)))
            }
            (attempt, begun) => {
                begun.iter().for_each(|run| run.retire(&self.engine));
                Err(match attempt {
                    Some(Err(reason)) => NotLoaded::Failed(reason, None),
                    Some(Ok(())) | None => NotLoaded::Cancelled,
                })
            }
        };
        self.followed.note(before, wanted.name.as_deref());
        LoadOutcome { id, wanted, outcome }
    }

    async fn attempt(
        &self,
        wanted: &Startup,
        old: Option<&ListedRun>,
        begun: &mut Option<ListedRun>,
    ) -> Result<(), String> {
        let in_words = |failure: Failure| failure.to_string();
        let startup = from_entry(wanted.clone()).map_err(in_words)?;
        let mut new = self.prepared(&startup, old).await.map_err(in_words)?;
        new.root.apart = true;
        let packed_version = match old.and_then(|old| old.packed_version.clone()) {
            Some(first) => Some(first),
            None => new.packed.as_ref().map(|packed| packed.version.clone()),
        };
        let registered = match old {
            Some(_) => self.beside(new).await?,
            None => register(&self.engine, &startup, new).await.map_err(in_words)?.0,
        };
        let model = Arc::clone(&registered.root.model);
        let run = begun.insert(ListedRun {
            model: Arc::clone(&model),
            parts: registered.parts.iter().map(|part| Arc::clone(&part.model)).collect(),
            packed_version,
            count: old.map_or(1, |old| old.count + 1),
        });
        registered.start().await?;
        if let Some(old) = old {
            self.engine.exchange(Some(&old.model), &model).map_err(|error| error.to_string())?;
        }
        for part in &run.parts {
            // Nobody else has them, unless by hand.
            let _ = self.engine.set_default(part.name(), part.version());
        }
        Ok(())
    }

    /// What is to be registered. A definition whose version nobody chose gets another one each time, so that
    /// its parts can lie beside those of the one before.
    async fn prepared(
        &self,
        startup: &Startup,
        old: Option<&ListedRun>,
    ) -> Result<Prepared, Failure> {
        let again = old.and_then(|old| Some((old.packed_version.as_ref()?, old.count + 1)));
        match (&startup.definition, again) {
            (Some(_), Some((first, count))) if startup.version.is_none() => {
                let version = format!("{first}-{count}");
                prepared(startup, self.packer.pack(startup, Some(&version)).await?)
            }
            _ => prepare(startup, &self.packer).await,
        }
    }

    /// Registers the parts, and starts the model itself where nobody finds it yet.
    async fn beside(&self, new: Prepared) -> Result<RegisteredParts, String> {
        let mut parts = Vec::new();
        let failed = |name: &str, error: String| format!("its part {name}: {error}");
        let mut outcome = Ok(());
        for (name, options) in new.parts {
            match self.engine.register(options).await {
                Ok(registered) => parts.push(registered),
                Err(error) => outcome = Err(failed(&name, error.to_string())),
            }
            if outcome.is_err() {
                break;
            }
        }
        let root = match outcome {
            Ok(()) => self.engine.start_beside(&new.root).await.map_err(|error| error.to_string()),
            Err(reason) => Err(reason),
        };
        root.map(|root| RegisteredParts { parts: std::mem::take(&mut parts), root }).inspect_err(
            |_| {
                self.engine
                    .retire(parts.iter().rev().map(|part| Arc::clone(&part.model)).collect());
            },
        )
    }

    /// Changes settings of a running model, until nobody wants that any more.
    pub async fn change(
        self,
        id: u64,
        wanted: Startup,
        run: ListedRun,
        settings: Values,
        cancelled: oneshot::Receiver<()>,
    ) -> LoadOutcome {
        let before = self.followed.look();
        let outcome = tokio::select! {
            outcome = changed(&self.engine, &run.model, settings) => {
                outcome.map_err(|reason| NotLoaded::Failed(reason, None))
            }
            _ = cancelled => Err(NotLoaded::Cancelled),
        };
        self.followed.note(before, wanted.name.as_deref());
        LoadOutcome { id, wanted, outcome: outcome.map(|()| run) }
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
    let traffic = settings.read::<String>(&TRAFFIC);
    let traffic = traffic.map(|text| text.parse::<TrafficSplit>()).transpose()?;
    if !settings.is_empty() {
        model.reconfigure(Reconfigure { endpoint: None, settings }).await?;
    }
    if let Some(traffic) = traffic {
        engine.bring_traffic(model.name(), traffic).map_err(|error| error.to_string())?;
    }
    match asked {
        true => model.scale(min, max).await.map_err(|error| error.to_string()),
        false => Ok(()),
    }
}
