//! Makes the engine's configuration and the packer of definitions from a plan, for servers and for
//! offline jobs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use jitney_engine::store::StoreConfig;
use jitney_engine::{Engine, EngineConfig};
use tokio::runtime::{Handle, Runtime};

use super::data_plane::DataPlane;
use super::scratch::ScratchDirectory;
use crate::definition::Packer;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::fetch::RemoteFetcher;
use crate::onnx_library;
use crate::plan::{EnginePlan, ServerPlan};

/// The engine's configuration.
pub fn engine_config(plan: &EnginePlan, scratch: &Path, env: &Env, admin: &Handle) -> EngineConfig {
    let fetcher = Arc::new(RemoteFetcher::new(Arc::clone(&plan.urls), env, admin.clone()));
    let store = |directory: Option<&PathBuf>| {
        let urls = Arc::clone(&plan.urls);
        StoreConfig {
            model_store: directory.cloned(),
            scratch: scratch.to_owned(),
            cache: onnx_library::cache(env),
            limits: plan.store_limits,
            url_allowed: Box::new(move |url| urls.allows(url)),
            remote: Some(Arc::clone(&fetcher) as _),
        }
    };
    EngineConfig {
        defaults: plan.defaults.clone(),
        limits: plan.limits,
        memory: plan.memory,
        gpu_memory: plan.gpu_memory.clone(),
        store: store(plan.model_store.as_ref()),
        workflow_store: plan.workflow_store.as_ref().map(|directory| store(Some(directory))),
        repository: plan.repository.clone(),
        python: plan.python.clone(),
        program: own_program(),
        local: Some(jitney_onnx::RUNTIME),
        local_options: onnx_library::options(&plan.python.interpreter, env),
        first_worker_id: plan.first_worker_id,
    }
}

/// This program, for its own workers. Not its path, since after an upgrade in place that is another
/// program; only without `/proc` there is nothing better.
fn own_program() -> Option<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Some(running) } else { std::env::args_os().next().map(PathBuf::from) }
}

/// The packer of Python definitions; it imports them from the current directory, as `python` would.
pub fn packer(
    plan: &EnginePlan,
    engine: &Engine,
    scratch: &Path,
    env: &Env,
) -> Result<Packer, Failure> {
    Ok(Packer {
        remote: RemoteFetcher::new(Arc::clone(&plan.urls), env, Handle::current()),
        limits: plan.store_limits,
        python: plan.python.interpreter.clone(),
        packages: engine.python_packages().to_owned(),
        env: plan.python.env.clone(),
        scratch: scratch.to_owned(),
        directory: std::env::current_dir().map_err(cannot("find the current directory"))?,
        count: AtomicU32::new(0),
    })
}

/// An engine that listens on no port, with what it needs.
pub struct EngineWithoutPorts {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The packer of definitions for it.
    pub packer: Packer,
    data: DataPlane,
    /// Removed with the engine.
    _scratch: ScratchDirectory,
}

impl EngineWithoutPorts {
    /// Starts it inside the runtime of the caller; `what` names that in failures.
    pub fn start(
        plan: &ServerPlan,
        env: &Env,
        threads: usize,
        what: &'static str,
    ) -> Result<Self, Failure> {
        let scratch = ScratchDirectory::new(&plan.temp_dir)?;
        let data = DataPlane::start(threads).map_err(cannot(what))?;
        let config = engine_config(&plan.engine, scratch.path(), env, &Handle::current());
        let engine = Engine::start(config, data.handles()).map_err(cannot(what))?;
        jitney_server::serve_workers(plan.server.clone(), &engine, &data.handles());
        let packer = packer(&plan.engine, &engine, scratch.path(), env)?;
        Ok(Self { engine, packer, data, _scratch: scratch })
    }

    /// Ends its threads.
    pub async fn end(self) {
        // Joining the threads of the data plane here would block this runtime.
        let data = self.data;
        let _ = tokio::task::spawn_blocking(move || data.end()).await;
    }
}

/// A runtime of this thread alone; `what` names in failures what it is for.
pub fn runtime(what: &'static str) -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot(what))
}
