//! An engine without doors, for `jitney infer`: the same store, workers and batches as a server has,
//! and one model in it. It binds no port and ends with the job.

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::settings::{PolicyName, RegisterOptions};
use jitney_engine::{Engine, Model, Registered};
use jitney_settings::SettingSource;
use jitney_settings::model::{MAX_BATCH_DELAY, MAX_LATENCY_MS, POLICY, QUEUE};
use tokio::runtime::Handle;

use super::data_plane::DataPlane;
use super::loading;
use super::scratch::Scratch;
use super::{cannot, engine_config, packer};
use crate::env::Env;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::startup::Startup;

/// No row of a job is ever too late: longer than any job, short enough for every clock.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long workers may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// An engine with one model.
pub struct Offline {
    engine: Arc<Engine>,
    data: DataPlane,
    /// The model; its workers are ready.
    pub model: Arc<Model>,
    /// How many there are.
    pub workers: u32,
    /// Gone with the engine.
    _scratch: Scratch,
}

impl Offline {
    /// Starts the engine, loads the plan's only model and waits for its workers. `queue` is the most
    /// that the job ever has under way, so that the model refuses none of it.
    pub async fn start(
        mut plan: Plan,
        env: &Env,
        workers: Option<u32>,
        queue: u32,
    ) -> Result<Self, Failure> {
        let startup = plan.models.pop().ok_or_else(|| Failure::usage("no model to run"))?;
        plan.engine.defaults.startup_workers = usual_workers(&plan);
        let scratch = Scratch::make(&plan.temp_dir).map_err(cannot("make a scratch directory"))?;
        let data = DataPlane::start(plan.io_threads).map_err(cannot("start the engine"))?;
        let config = engine_config(&plan.engine, &scratch, env, &Handle::current());
        let engine = Engine::start(config, data.handles()).map_err(cannot("start the engine"))?;
        let packer = packer(&plan.engine, &engine, &scratch, env)?;
        let options = match &startup.definition {
            None => startup.options(),
            Some(object) => {
                let packed = packer.pack(object, startup.version.as_deref()).await?;
                loading::options(&startup, &packed)
            }
        };
        let registered = engine.register(unhurried(options, queue)).await;
        let registered = registered
            .map_err(|error| Failure::failed(format!("cannot load {}: {error}", startup.url)))?;
        let (model, workers) = staff(registered, workers, &startup).await?;
        Ok(Self { engine, data, model, workers, _scratch: scratch })
    }

    /// Ends the workers.
    pub async fn end(self) {
        self.engine.begin_drain();
        self.engine.drain(GRACE).await;
        // Joining the data plane's threads would keep this runtime from turning.
        let data = self.data;
        let _ = tokio::task::spawn_blocking(move || data.end()).await;
    }
}

/// Nobody waits for a row: batches are as large as they can be, and none comes too late.
fn unhurried(options: RegisterOptions, queue: u32) -> RegisterOptions {
    let source = SettingSource::Default;
    let mut settings = options.settings;
    settings.remove(&MAX_BATCH_DELAY);
    settings.set(&POLICY, PolicyName::Opportunistic.as_str(), source.clone());
    settings.set(&MAX_LATENCY_MS, NEVER, source.clone());
    settings.set(&QUEUE, queue, source);
    RegisterOptions { settings, ..options }
}

fn usual_workers(plan: &Plan) -> u32 {
    match plan.engine.gpus {
        0 => crate::machine::cpus().clamp(1, 8),
        gpus => gpus,
    }
}

async fn staff(
    registered: Registered,
    asked: Option<u32>,
    startup: &Startup,
) -> Result<(Arc<Model>, u32), Failure> {
    let Registered { model, workers_min, .. } = registered;
    let workers = asked.unwrap_or(workers_min).max(1);
    model.scale(workers, workers).await.map_err(|error| {
        Failure::failed(format!("cannot run {}: {error}", startup.url))
            .hint("--log-level info shows what its workers print")
    })?;
    Ok((model, workers))
}
