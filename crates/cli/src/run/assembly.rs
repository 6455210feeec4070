//! Makes the engine's configuration and the packer of definitions from a plan, for servers and for
//! offline jobs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use jitney_engine::admission::AdmissionLimits;
use jitney_engine::python::PythonConfig;
use jitney_engine::store::StoreConfig;
use jitney_engine::{Engine, EngineConfig};
use tokio::runtime::Handle;

use super::scratch::ScratchDir;
use crate::definition::Packer;
use crate::env::Env;
use crate::failure::Failure;
use crate::fetch::RemoteFetcher;
use crate::plan::EnginePlan;

/// The engine's configuration.
pub fn engine_config(
    plan: &EnginePlan,
    scratch: &ScratchDir,
    env: &Env,
    admin: &Handle,
) -> EngineConfig {
    let fetcher = Arc::new(RemoteFetcher::new(Arc::clone(&plan.urls), env, admin.clone()));
    let store = |directory: Option<&PathBuf>| {
        let urls = Arc::clone(&plan.urls);
        StoreConfig {
            model_store: directory.cloned(),
            scratch: scratch.path().to_owned(),
            limits: plan.store_limits,
            url_allowed: Box::new(move |url| urls.allows(url)),
            remote: Some(Arc::clone(&fetcher) as _),
        }
    };
    EngineConfig {
        defaults: plan.defaults.clone(),
        limits: AdmissionLimits::default(),
        store: store(plan.model_store.as_ref()),
        workflow_store: plan.workflow_store.as_ref().map(|directory| store(Some(directory))),
        python: PythonConfig {
            interpreter: plan.python.clone(),
            env: worker_env(plan, env),
            decode_input: plan.decode_input,
            limit_max_image_pixels: plan.limit_max_image_pixels,
            envelope: plan.envelope.clone(),
            install_requirements: plan.install_requirements,
            response_bytes_max: plan.response_bytes_max,
            gpus: plan.gpus,
        },
        local: Some(jitney_onnx::RUNTIME),
        first_worker_id: plan.first_worker_id,
    }
}

/// The packer of Python definitions; it imports them from the current directory, as `python` would.
pub fn packer(
    plan: &EnginePlan,
    engine: &Engine,
    scratch: &ScratchDir,
    env: &Env,
) -> Result<Packer, Failure> {
    Ok(Packer {
        python: plan.python.clone(),
        packages: engine.python_packages().to_owned(),
        env: plan.hidden.filter(env),
        scratch: scratch.path().to_owned(),
        directory: std::env::current_dir().map_err(cannot("find the current directory"))?,
        count: AtomicU32::new(0),
    })
}

fn worker_env(plan: &EnginePlan, env: &Env) -> Vec<(OsString, OsString)> {
    let mut variables = plan.hidden.filter(env);
    let more = plan.worker_env.iter();
    variables.extend(more.map(|(name, value)| (OsString::from(name), OsString::from(value))));
    variables
}

/// The failure of a step of the start.
pub fn cannot(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}
