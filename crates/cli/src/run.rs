//! Runs the server of a [`ServerPlan`]: starts threads, engine, listeners and models, prints the addresses,
//! waits for a signal and drains.
//!
//! The data plane has its own threads, each with its own runtime. The main thread is the admin plane,
//! so that management and metrics answer while the data plane is overloaded.

mod application;
mod assembly;
mod data_plane;
mod greeting;
mod loading;
mod offline;
mod ports;
mod preview;
mod processes;
mod registrations;
mod reload;
mod room;
mod scratch;
mod service_manager;
mod signals;
mod snapshots;
mod state_recorder;
mod system;
#[cfg(test)]
mod tests;
mod traffic_file;
mod traffic_state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jitney_engine::Engine;
use jitney_net::GivenSockets;
use jitney_server::auth::{KeyStrength, TokenClock, Tokens};
use jitney_server::keys::NamedKeys;
use jitney_server::{FieldChanges, ModelRoom, Server, ServerParts};
use jitney_settings::Setting;
use jitney_settings::server::{KEY_FILE, KEYS, POLL, TLS_CERT};
use jitney_telemetry::metrics::MeterPlan;
use jitney_telemetry::{AccessLog, AuditLog, EngineObserver, Meter, WriteTime};
use percent_encoding::percent_decode_str;
use rustix::process::DumpableBehavior;
use tokio::runtime::Handle;

use crate::definition::Packer;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::follow::FileAudit;
use crate::gpu::NvidiaSmi;
use crate::key_file::{GivenKeys, KeyFile};
use crate::logs::{self, StartedLog, Style};
use crate::plan::{KeysPlan, ServerKind, ServerPlan};
use crate::traces::{OtlpExporter, TracePlan};
use crate::{machine, plugins};

pub use assembly::runtime;
use assembly::{engine_config, packer};
use data_plane::DataPlane;
use loading::{LoadedModels, ServedDefinition};
pub use offline::OfflineEngine;
use ports::{Ports, Successor};
pub use preview::preview;
use processes::ProcReader;
use scratch::ScratchDirectory;
use service_manager::ServiceManager;
use signals::ShutdownSignals;
pub use signals::stop_signal;
use state_recorder::StateRecorder;
use system::CpuUsage;
#[cfg(test)]
pub use tests::registered;

/// Runs the server until a signal ends it, and returns the exit code. Failures before the log has
/// started are returned; later ones are logged.
pub fn run(plan: ServerPlan, env: &Env) -> Result<u8, Failure> {
    hide_from_workers();
    let given = ports::lent(env)?;
    let logs = logs::start(&plan.logs)?;
    let ended = serve(plan, given, env, &logs);
    let code = ended.map_or_else(log_failure, |()| 0);
    logs.finish();
    Ok(code)
}

/// Keeps other processes of the same user, such as handlers, from reading this one's environment, memory
/// and directory through `/proc`. It also means that this process leaves no core file. A worker's own
/// start undoes it for the worker.
fn hide_from_workers() {
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = hidden {
        tracing::debug!(%error, "the process is not hidden from its workers");
    }
}

/// Ends the worker processes of the server at the other end of standard input when that server is gone.
pub fn guard_groups() -> Result<u8, Failure> {
    let runtime = runtime("start the guard")?;
    let _context = runtime.enter();
    // It stays as long as the server: whoever stops both with a signal stops the server.
    let _signals = stop_signal().map_err(cannot("listen for signals"))?;
    jitney_engine::guard_groups(std::io::stdin().lock());
    Ok(0)
}

fn log_failure(failure: Failure) -> u8 {
    tracing::error!("{failure}");
    failure.code
}

fn serve(
    mut plan: ServerPlan,
    given: GivenSockets,
    env: &Env,
    logs: &StartedLog,
) -> Result<(), Failure> {
    plan.platform.iter().for_each(|platform| tracing::info!("{platform}"));
    plan.remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    let open_files = machine::raise_open_files();
    plan.server.open_files = open_files.now;
    plan.engine.python.open_files = open_files.inherited;
    let scratch = ScratchDirectory::new(&plan.temp_dir)?;
    data_plane::reduce_timer_slack();
    let data = DataPlane::start(plan.io_threads).map_err(cannot("start the data plane"))?;
    let admin = runtime("start the admin plane")?;
    let config = engine_config(&plan.engine, scratch.path(), env, admin.handle());
    let traces = plan.traces.take().map(Arc::new);
    let spans = traces.as_ref().map(|plan| OtlpExporter::spans(plan, admin.handle()));
    let (tracer, exporter) = spans.transpose()?.unzip();
    let audit = plan.audit_log.as_deref();
    let audit = audit.map(|path| audit_log(path, traces.as_ref(), admin.handle()));
    let (audit, lines) = audit.transpose()?.unzip();
    if let Some(tls) = plan.tls.take() {
        admin.spawn(tls.follow(file_audit(audit.as_ref(), &TLS_CERT)));
    }
    let metrics = std::mem::take(&mut plan.metrics);
    let processes = Box::new(ProcReader::new(logs.writer.dropped()));
    let metrics = MeterPlan { processes, ..metrics };
    let meter = Arc::new(meter(metrics, &plan.logs.style).map_err(cannot("log metrics"))?);
    let observer = EngineObserver { meter: Arc::clone(&meter), tracer: tracer.clone() };
    let engine = Engine::start_observed(config, data.handles(), Arc::new(observer))
        .map_err(cannot("start the engine"))?;
    let parts = ServerParts {
        meter: Arc::clone(&meter),
        tracer,
        access_log: access_log(&plan, meter.log_time()),
        audit,
        log_book: Some(Arc::clone(&logs.book)),
        room: plan.server.one_port.then(|| Arc::new(room::Room::default()) as Arc<dyn ModelRoom>),
        webhooks: plan.webhooks.take().map(|client| client as _),
        ..ServerParts::default()
    };
    let ports = Ports::new(&plan, given);
    let running = serve_until_signal(ports, env, &engine, &parts, &data, scratch.path(), logs);
    let ended = admin.block_on(running);
    data.end();
    for exporter in exporter.into_iter().chain(lines.flatten()) {
        admin.block_on(exporter.finish());
    }
    // Tasks that hold the engine end before it.
    drop(admin);
    drop(engine);
    meter.finish();
    ended
}

/// Binds the ports, loads the models, serves, and drains after a signal.
async fn serve_until_signal(
    mut ports: Ports<'_>,
    env: &Env,
    engine: &Arc<Engine>,
    parts: &ServerParts,
    data: &DataPlane,
    scratch: &Path,
    logs: &StartedLog,
) -> Result<(), Failure> {
    let plan = ports.plan;
    let packer = Arc::new(packer(&plan.engine, engine, scratch, env)?);
    let mut signals = ShutdownSignals::listen(scratch).map_err(cannot("listen for signals"))?;
    if plan.until_eof {
        signals.watch_stdin().map_err(cannot("watch standard input"))?;
    }
    let loaded = tokio::select! {
        loaded = load(&mut ports, env, engine, parts, data, &packer) => loaded?,
        () = signals.first() => return Ok(()),
    };
    let LoadedServer { server, cpu, definitions } = loaded;
    let recorder = StateRecorder::start(plan, engine, ports.are_taken());
    data.open(&server);
    server.serve_jobs(&data.handles());
    server.serve_webhooks();
    server.note_returns();
    let admin = server.run_admin(data.closing());
    watch_system(plan, env, engine, &parts.meter, cpu);
    watch_models(plan, engine, &packer, definitions, &server);
    greeting::ready(plan, &server, engine, logs);
    let manager = Arc::new(ServiceManager::find(env));
    manager.ready(&server.addresses().inference.to_string());
    // Ends with the runtime.
    tokio::spawn(Arc::clone(&manager).keep_alive(data.handles()));
    let mut successor = ports.opened(engine).await;
    let ended = async {
        let replaced = run_until_end(&mut signals, &mut successor, recorder).await;
        manager.stopping();
        let lent = successor.lent;
        // With it the last descriptors of the ports beside those of the listeners.
        drop(successor);
        if replaced {
            tracing::info!("another server has the ports");
            tokio::select! {
                () = retire(&server, plan.drain.timeout) => {}
                () = signals.first() => {}
            }
        } else {
            tracing::info!(timeout_s = plan.drain.timeout.as_secs(), "draining");
            engine.begin_drain();
            tokio::time::sleep(plan.drain.delay).await;
            if lent {
                retire(&server, plan.drain.timeout).await;
            }
        }
        drain(plan.drain.timeout, engine, data).await;
    };
    let ((), admin) = tokio::join!(ended, admin);
    admin.map_err(cannot("serve the admin plane"))
}

/// Returns when a signal ends the server, or, with true, when another server has its ports. That one writes the
/// snapshots from then on.
async fn run_until_end(
    signals: &mut ShutdownSignals,
    successor: &mut Successor,
    recorder: Option<StateRecorder<'_>>,
) -> bool {
    let end = async {
        tokio::select! {
            () = signals.first() => false,
            () = successor.has_taken_over() => true,
        }
    };
    let Some(mut recorder) = recorder else { return end.await };
    let replaced = tokio::select! {
        replaced = end => replaced,
        () = recorder.write_changes() => false,
    };
    if !replaced {
        recorder.write_last();
    }
    replaced
}

/// A server whose ports are bound and whose models are loaded.
struct LoadedServer {
    server: Arc<Server>,
    cpu: CpuUsage,
    definitions: Vec<ServedDefinition>,
}

/// Starts the plugins, binds the ports and loads the models. A signal ends it at any point. Where another server is
/// replaced, its ports come last: it goes on if anything fails.
async fn load(
    ports: &mut Ports<'_>,
    env: &Env,
    engine: &Arc<Engine>,
    parts: &ServerParts,
    data: &DataPlane,
    packer: &Arc<Packer>,
) -> Result<LoadedServer, Failure> {
    let plan = ports.plan;
    let audit = parts.audit.as_ref();
    let (tokens, keys) = (tokens(plan, audit)?, named_keys(plan, audit)?);
    let plugins = plugins::start(&plan.plugins, engine).await?;
    let parts = ServerParts { plugins, tokens: tokens.clone(), keys, ..parts.clone() };
    let reports = Arc::clone(&parts.registrations);
    let server = Server::new(plan.server.clone(), parts, Arc::clone(engine), plan.io_threads)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let server = Arc::new(server);
    ports.bind_if_free(&server).await?;
    server.serve_workers(&data.handles());
    greeting::banner(plan);
    engine.cluster_joined().await.map_err(Failure::usage)?;
    let cpu = CpuUsage::new();
    let LoadedModels { definitions, mut starting } =
        loading::load(plan, engine, packer, ports.are_taken()).await?;
    // Before the ports open, so that readiness is right from the first probe on.
    registrations::follow(plan, env, engine, packer, &reports, &server);
    if ports.are_taken() {
        loading::wait(&mut starting).await?;
        registrations::settled(&reports).await;
        ports.take_over(&server).await?;
    }
    starting.detach_all();
    // Only now: a start that fails must not replace the keys of a running server.
    if let Some(tokens) = tokens {
        tokens.issue().map_err(cannot("write the key file"))?;
    }
    Ok(LoadedServer { server, cpu, definitions })
}

/// Loads again what changes on disk, where the plan asks for it; ends with the runtime.
fn watch_models(
    plan: &ServerPlan,
    engine: &Arc<Engine>,
    packer: &Arc<Packer>,
    definitions: Vec<ServedDefinition>,
    server: &Server,
) {
    for definition in definitions.into_iter().filter(|_| plan.watch) {
        let followed = server.follows("watch", &definition.startup.url);
        tokio::spawn(reload::watch(definition, Arc::clone(engine), Arc::clone(packer), followed));
    }
    let others = plan.models.iter().filter(|startup| plan.watch && startup.definition.is_none());
    for startup in others {
        let file = startup.url.strip_prefix("file://").unwrap_or(&startup.url);
        let path = PathBuf::from(&*percent_decode_str(file).decode_utf8_lossy());
        if path.exists() {
            let followed = server.follows("watch", &startup.url);
            tokio::spawn(reload::watch_files(startup.clone(), path, Arc::clone(engine), followed));
        }
    }
    if let Some(every) = plan.poll {
        let folders = plan.engine.repository.directories.iter();
        let folders: Vec<String> = folders.map(|it| it.path.display().to_string()).collect();
        let followed = server.follows(POLL.name, &folders.join(", "));
        tokio::spawn(reload::follow_repository(every, Arc::clone(engine), followed));
    }
}

/// Samples the machine at intervals; ends with the runtime.
fn watch_system(
    plan: &ServerPlan,
    env: &Env,
    engine: &Arc<Engine>,
    meter: &Arc<Meter>,
    cpu: CpuUsage,
) {
    let smi = (plan.engine.python.gpus > 0).then(|| NvidiaSmi::find(env)).flatten();
    let every = plan.sample_every;
    tokio::spawn(system::watch(every, Arc::clone(meter), Arc::clone(engine), cpu, smi));
}

/// If the files of metrics cannot be opened, the server starts with a warning.
fn meter(metrics: MeterPlan, style: &Style) -> std::io::Result<Meter> {
    let sinks = logs::metric_sinks(style);
    let sinks = sinks.inspect_err(|error| tracing::warn!(%error, "metrics are not logged"));
    Meter::new(MeterPlan { hostname: machine::hostname(), sinks: sinks.ok().flatten(), ..metrics })
}

/// If the access log cannot be opened, the server starts with a warning.
fn access_log(plan: &ServerPlan, time: WriteTime) -> Option<Arc<AccessLog>> {
    let sink = plan.access_log.then(|| logs::access_sink(&plan.logs.style))?;
    let opened = sink.and_then(|sink| AccessLog::new(sink, time, plan.logs.format));
    opened.map(Arc::new).inspect_err(|error| tracing::warn!(%error, "requests are not logged")).ok()
}

/// A server whose operator wants to know who changed it does not start without that.
fn audit_log(
    path: &Path,
    collector: Option<&Arc<TracePlan>>,
    runtime: &Handle,
) -> Result<(Arc<AuditLog>, Option<OtlpExporter>), Failure> {
    let exporter = collector.map(|plan| OtlpExporter::audit(plan, runtime)).transpose()?;
    let (lines, exporter) = exporter.flatten().unzip();
    let opened = logs::audit_sink(path).and_then(|sink| AuditLog::new(sink, lines));
    let log = opened.map_err(|error| Failure::file("write", path, &error))?;
    Ok((Arc::new(log), exporter))
}

/// Where it is noted what the file of this setting changes.
fn file_audit(log: Option<&Arc<AuditLog>>, setting: &'static Setting) -> FileAudit {
    FileAudit { log: log.cloned(), setting: setting.name }
}

fn tokens(
    plan: &ServerPlan,
    audit: Option<&Arc<AuditLog>>,
) -> Result<Option<Arc<Tokens>>, Failure> {
    let Some(lifetime) = plan.tokens else { return Ok(None) };
    let here = KeyFile::here().map_err(cannot("find the current directory"))?;
    let clock = TokenClock { wall: Box::new(SystemTime::now), steady: Box::new(machine::uptime) };
    if let Some(path) = &plan.key_file {
        return given_tokens(path, clock, file_audit(audit, &KEY_FILE)).map(Some);
    }
    let strength = match plan.kind {
        ServerKind::TorchServe { .. } => KeyStrength::TorchServe,
        ServerKind::Serve | ServerKind::Demo => KeyStrength::Strong,
    };
    let tokens = Tokens::new(strength, lifetime, Box::new(here), clock);
    tokens.map(|tokens| Some(Arc::new(tokens))).map_err(cannot("make tokens"))
}

/// The keys of the operator's file, which is followed; that ends with the runtime.
fn given_tokens(path: &Path, clock: TokenClock, audit: FileAudit) -> Result<Arc<Tokens>, Failure> {
    let wrong = |why: String| Failure::usage(format!("--key-file {}: {why}", path.display()));
    let keys = GivenKeys::read(path).map_err(|error| wrong(error.to_string()))?;
    let tokens = Arc::new(Tokens::given(keys.text(), clock).map_err(wrong)?);
    let following = Arc::clone(&tokens);
    let give = move |text: &str| following.give(text).map(|()| FieldChanges::default());
    tokio::spawn(keys.follow(audit, give));
    Ok(tokens)
}

/// The keys with names, whose file is followed; that ends with the runtime.
fn named_keys(
    plan: &ServerPlan,
    audit: Option<&Arc<AuditLog>>,
) -> Result<Option<Arc<NamedKeys>>, Failure> {
    let Some(KeysPlan { file, proxies }) = &plan.keys else { return Ok(None) };
    let wrong = |why: String| {
        Failure::usage(format!("--keys {}: {why}", file.display()))
            .hint("`jitney keys new NAME` makes a key and writes its row")
    };
    let given = GivenKeys::read(file).map_err(|error| wrong(error.to_string()))?;
    let keys = NamedKeys::new(given.text(), plan.engine.limits, proxies.clone()).map_err(wrong)?;
    let keys = Arc::new(keys);
    let following = Arc::clone(&keys);
    tokio::spawn(given.follow(file_audit(audit, &KEYS), move |text| following.give(text)));
    Ok(Some(keys))
}

/// Others have the ports, now or soon: no connection is accepted any more, and none is closed that may bring a
/// request.
async fn retire(server: &Server, timeout: Duration) {
    let retiring = async {
        server.retire().await;
        tracing::info!("no connection is accepted any more; open ones are served to their ends");
        server.retired().await;
    };
    if tokio::time::timeout(timeout, retiring).await.is_err() {
        tracing::warn!("connections were open for the whole drain timeout");
    }
}

/// The ports close, then admitted requests are answered.
async fn drain(timeout: Duration, engine: &Arc<Engine>, data: &DataPlane) {
    data.close();
    if engine.drain(timeout).await {
        tracing::info!("drained");
    } else {
        tracing::warn!("some requests were not answered before the drain timeout");
    }
}
