//! An engine without listeners, for `jitney infer`: it has the store, workers and batches of a server,
//! and one model. It ends with the job.

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::settings::{PolicyName, RegisterOptions};
use jitney_engine::{Model, Registered};
use jitney_settings::SettingSource;
use jitney_settings::model::{MAX_BATCH_DELAY, MAX_LATENCY_MS, POLICY, QUEUE};

use super::application::{prepare, register};
use super::assembly::EngineWithoutPorts;
use crate::env::Env;
use crate::failure::Failure;
use crate::plan::{ServerPlan, Startup};

/// A latency target that no row exceeds: longer than any job, short enough for every clock.
const NO_LATENCY_TARGET: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long workers may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// An engine with one model.
pub struct OfflineEngine {
    engine: EngineWithoutPorts,
    /// The model, with workers that are ready.
    pub model: Arc<Model>,
    /// The number of workers.
    pub workers: u32,
}

impl OfflineEngine {
    /// Starts the engine, loads the only model of the plan and waits for its workers. `queue` is the
    /// most rows in flight, so that the model rejects none of them.
    pub async fn start(
        mut plan: ServerPlan,
        env: &Env,
        workers: Option<u32>,
        queue: u32,
    ) -> Result<Self, Failure> {
        let startup = plan.models.pop().ok_or_else(|| Failure::usage("no model to run"))?;
        let gpus = plan.engine.python.gpus;
        plan.engine.defaults.startup_workers = default_workers(gpus);
        let engine = EngineWithoutPorts::start(&plan, env, plan.io_threads, "start the engine")?;
        let mut prepared = prepare(&startup, &engine.packer).await?;
        prepared.root = for_throughput(prepared.root, queue);
        let part = |(name, options)| (name, for_throughput(options, queue));
        prepared.parts = prepared.parts.into_iter().map(part).collect();
        let (registered, _) = register(&engine.engine, &startup, prepared).await?;
        for part in registered.parts {
            start_workers(part, None, &startup).await?;
        }
        // What a model says is for a server, where others share the GPUs.
        let workers = workers.or(Some(registered.root.workers_min.max(gpus)));
        let (model, workers) = start_workers(registered.root, workers, &startup).await?;
        Ok(Self { engine, model, workers })
    }

    /// Ends the workers.
    pub async fn end(self) {
        self.engine.engine.begin_drain();
        self.engine.engine.drain(GRACE).await;
        self.engine.end().await;
    }
}

/// Latency does not matter: batches are as large as possible, and no row is rejected for its deadline.
fn for_throughput(options: RegisterOptions, queue: u32) -> RegisterOptions {
    let source = SettingSource::Default;
    let mut settings = options.settings;
    settings.remove(&MAX_BATCH_DELAY);
    settings.set(&POLICY, PolicyName::Opportunistic.as_str(), source.clone());
    settings.set(&MAX_LATENCY_MS, NO_LATENCY_TARGET, source.clone());
    settings.set(&QUEUE, queue, source);
    RegisterOptions { settings, ..options }
}

fn default_workers(gpus: u32) -> u32 {
    match gpus {
        0 => crate::machine::cpus().clamp(1, 8),
        gpus => gpus,
    }
}

async fn start_workers(
    registered: Registered,
    workers: Option<u32>,
    startup: &Startup,
) -> Result<(Arc<Model>, u32), Failure> {
    let Registered { model, workers_min, .. } = registered;
    let workers = workers.unwrap_or(workers_min).max(1);
    model.scale(workers, workers).await.map_err(|error| {
        let shown = startup.shown();
        Failure::failed(format!("cannot run {shown}: model {}: {error}", model.name()))
            .hint("--log-level info shows what its workers print")
    })?;
    Ok((model, workers))
}
