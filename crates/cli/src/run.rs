//! Carries a [`Plan`] out: threads, engine, doors, models, the greeting, the wait for a signal, the
//! drain. Everything concrete meets here and nowhere else.
//!
//! The data plane has threads of its own, each with a runtime of its own; the main thread is the
//! admin plane, so that management and metrics answer while the data plane drowns.

mod data_plane;
mod greeting;
mod loading;
mod offline;
mod plugins;
mod preview;
mod recorder;
mod scratch;
mod signals;
mod system;
mod timers;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::SystemTime;

use jitney_engine::admission::AdmissionLimits;
use jitney_engine::python::PythonConfig;
use jitney_engine::store::StoreConfig;
use jitney_engine::{Engine, EngineConfig};
use jitney_server::auth::Tokens;
use jitney_server::metrics::MeterPlan;
use jitney_server::{AccessLog, Meter, Server};
use tokio::runtime::Handle;

use crate::definition::Packer;
use crate::env::Env;
use crate::failure::Failure;
use crate::fetch::Elsewhere;
use crate::gpu::Smi;
use crate::key_file::KeyFile;
use crate::logs::{self, Logs};
use crate::plan::{Drain, EnginePlan, Plan};
use data_plane::DataPlane;
pub use offline::Offline;
pub use preview::preview;
use recorder::Recorder;
use scratch::Scratch;
use signals::Signals;
use system::Cpu;

/// Runs the server until it is told to end, and returns the exit code. What goes wrong before the log
/// runs comes back as a failure; later failures are in the log.
pub fn run(plan: Plan, env: &Env) -> Result<u8, Failure> {
    let logs = Logs::start(&plan.logs)?;
    let ended = serve(plan, env, &logs);
    let code = ended.map_or_else(report, |()| 0);
    logs.finish();
    Ok(code)
}

fn report(failure: Failure) -> u8 {
    tracing::error!("{failure}");
    failure.code
}

fn serve(plan: Plan, env: &Env, logs: &Logs) -> Result<(), Failure> {
    plan.remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    let scratch = Scratch::make(&plan.temp_dir).map_err(cannot("make a scratch directory"))?;
    timers::be_punctual();
    let data = DataPlane::start(plan.io_threads).map_err(cannot("start the data plane"))?;
    let admin = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start the admin plane"))?;
    let config = engine_config(&plan.engine, &scratch, env, admin.handle());
    let meter = Arc::new(meter(&plan).map_err(cannot("log metrics"))?);
    let engine = Engine::start_observed(config, data.handles(), Arc::clone(&meter) as _)
        .map_err(cannot("start the engine"))?;
    let ended = admin.block_on(live(&plan, env, &engine, &meter, &data, &scratch, logs));
    data.end();
    // Whoever still watches the engine goes first.
    drop(admin);
    drop(engine);
    meter.finish();
    ended
}

/// Bind, load, open, wait, drain.
async fn live(
    plan: &Plan,
    env: &Env,
    engine: &Arc<Engine>,
    meter: &Arc<Meter>,
    data: &DataPlane,
    scratch: &Scratch,
    logs: &Logs,
) -> Result<(), Failure> {
    let packer = Arc::new(packer(&plan.engine, engine, scratch, env)?);
    let mut signals = Signals::listen(scratch.path()).map_err(cannot("listen for signals"))?;
    if plan.until_eof {
        signals.heed_input().map_err(cannot("watch standard input"))?;
    }
    let mut server = plan.server.clone();
    server.access_log = access_log(plan);
    server.meter = Arc::clone(meter);
    let tokens = tokens(plan)?;
    server.plugins = tokio::select! {
        started = plugins::start(&plan.plugins, engine) => started?,
        () = signals.first() => return Ok(()),
    };
    server.tokens.clone_from(&tokens);
    let doors = Server::bind(server, Arc::clone(engine), plan.io_threads)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let doors = Arc::new(doors);
    greeting::banner(plan);
    let cpu = Cpu::new();
    let definitions = tokio::select! {
        loaded = loading::load(plan, engine, &packer) => loaded?,
        () = signals.first() => return Ok(()),
    };
    let mut recorder = Recorder::start(plan.snapshots.as_ref(), engine);
    // Only now: a start that fails must not replace the keys of a server that runs.
    if let Some(tokens) = tokens {
        tokens.issue().map_err(cannot("write the key file"))?;
    }
    data.open(&doors);
    let admin = doors.run_admin(data.closing());
    look_after(plan, env, engine, meter, cpu);
    for watched in definitions.into_iter().filter(|_| plan.watch) {
        // Ends with the runtime.
        tokio::spawn(watch::watch(watched, Arc::clone(engine), Arc::clone(&packer)));
    }
    greeting::ready(plan, &doors, engine, logs);
    let ended = async {
        recorder.keep(signals.first()).await;
        recorder.finish();
        drain(plan.drain, engine, data).await;
        Ok(())
    };
    let (ended, admin) = tokio::join!(ended, admin);
    admin.map_err(cannot("serve the admin plane"))?;
    ended
}

/// Measures the machine now and then, where somebody reads it; ends with the runtime.
fn look_after(plan: &Plan, env: &Env, engine: &Arc<Engine>, meter: &Arc<Meter>, cpu: Cpu) {
    if let Some(every) = plan.metrics.look_every {
        let smi = (plan.engine.gpus > 0).then(|| Smi::find(env)).flatten();
        tokio::spawn(system::watch(every, Arc::clone(meter), Arc::clone(engine), cpu, smi));
    }
}

/// Files that cannot be opened cost a warning, not the start.
fn meter(plan: &Plan) -> std::io::Result<Meter> {
    let metrics = &plan.metrics;
    let sinks = logs::metric_sinks(&plan.logs.style);
    let sinks = sinks.inspect_err(|error| tracing::warn!(%error, "metrics are not logged"));
    Meter::new(MeterPlan {
        mode: metrics.mode,
        declared: metrics.declared.clone(),
        auto_detect: metrics.auto_detect,
        hostname: metrics.hostname.clone(),
        sinks: sinks.ok().flatten(),
    })
}

/// A log that cannot be opened costs a warning, not the start.
fn access_log(plan: &Plan) -> Option<Arc<AccessLog>> {
    let sink = plan.access_log.then(|| logs::access_sink(&plan.logs.style))?;
    let opened = sink.and_then(AccessLog::new);
    opened.map(Arc::new).inspect_err(|error| tracing::warn!(%error, "no access log")).ok()
}

fn tokens(plan: &Plan) -> Result<Option<Arc<Tokens>>, Failure> {
    let Some(lifetime) = plan.tokens else { return Ok(None) };
    let here = KeyFile::here().map_err(cannot("find the current directory"))?;
    let tokens = Tokens::new(lifetime, Box::new(here), Box::new(SystemTime::now));
    tokens.map(|tokens| Some(Arc::new(tokens))).map_err(cannot("make tokens"))
}

/// Readiness falls first, then the ports close, then everything admitted is answered.
async fn drain(drain: Drain, engine: &Arc<Engine>, data: &DataPlane) {
    tracing::info!(timeout_s = drain.timeout.as_secs(), "draining");
    engine.begin_drain();
    tokio::time::sleep(drain.delay).await;
    data.close();
    if engine.drain(drain.timeout).await {
        tracing::info!("drained");
    } else {
        tracing::warn!("some requests were not answered in time");
    }
}

fn engine_config(plan: &EnginePlan, scratch: &Scratch, env: &Env, admin: &Handle) -> EngineConfig {
    let elsewhere = Arc::new(Elsewhere::new(Arc::clone(&plan.urls), env, admin.clone()));
    let store = |directory: Option<&PathBuf>| {
        let urls = Arc::clone(&plan.urls);
        StoreConfig {
            model_store: directory.cloned(),
            scratch: scratch.path().to_owned(),
            limits: plan.store_limits,
            url_allowed: Box::new(move |url| urls.allows(url)),
            remote: Some(Arc::clone(&elsewhere) as _),
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

/// Definitions are imported from where the user stands, as `python` itself would.
fn packer(
    plan: &EnginePlan,
    engine: &Engine,
    scratch: &Scratch,
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

fn cannot(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}
