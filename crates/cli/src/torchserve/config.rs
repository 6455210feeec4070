//! From TorchServe's flags and `config.properties` to a [`ServerPlan`]: where the file is found, what its
//! values mean, what stops the start. Addresses and engine are in files beside it.

use std::path::{Path, PathBuf};

use jitney_engine::PluginPlan;
use jitney_net::Bind;
use jitney_server::{GrpcBind, ServerConfig};

use jitney_settings::server::{AUDIT_LOG, IO_THREADS, LOG_FORMAT, LOG_LEVEL, MODEL_STORE, PYTHON};
use jitney_settings::torchserve::{
    ENABLE_METRICS_API, ENABLE_MODEL_API, LOAD_MODELS, MODEL_SNAPSHOT, NUMBER_OF_GPU,
    PLUGIN_TIMEOUT, PLUGINS, PLUGINS_PATH, SAGEMAKER, TS_OPEN_INFERENCE_PROTOCOL, WORKFLOW_STORE,
    properties,
};
use jitney_settings::{Setting, SettingSource, Values, model};

use super::addresses::{Addresses, Grpc, grpc_bind};
use super::engine::engine;
use super::{banner, metrics, models, properties, restore, security, sources};
use crate::address::Address;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::gpu::FoundDevices;
use crate::logs::{LogPlan, Style};
use crate::plan::{ServerKind, ServerPlan, Startup};
use crate::snapshot::{self, Snapshots};
use crate::traces::TracePlan;
use crate::{machine, parts, plugins, python};

/// What flags, variables and the file come to.
pub struct TorchserveConfig {
    /// The file, if one was read.
    pub file: Option<PathBuf>,
    /// Every setting with its source.
    pub values: Values,
    /// Warnings for the log.
    pub remarks: Vec<String>,
}

/// Reads every source of `jitney torchserve`.
pub fn configure(flags: &TorchserveFlags, env: &Env) -> Result<TorchserveConfig, Failure> {
    let file = config_file(flags, env)?;
    let lines = file.as_deref().map(|file| properties::read(file, env)).transpose()?;
    let (mut values, mut remarks) = sources::read(lines.unwrap_or_default(), flags, env)?;
    parts::bound_request_size(&mut values, &mut remarks);
    let flags = flags.without_effect();
    if !flags.is_empty() {
        remarks.push(format!("accepted without effect: {}", flags.join(", ")));
    }
    machine::settle_memory(&mut values, &mut remarks);
    let limit = machine::workers_limit(&values);
    let values = values.or(&machine::defaults()).or(&limit);
    let defaults: Vec<&Setting> = properties()
        .filter(|it| model::SETTINGS.iter().all(|other| other.name != it.name))
        .collect();
    Ok(TorchserveConfig { file, values: values.or_torchserve_defaults(&defaults), remarks })
}

/// Plans the server.
pub fn plan(flags: &TorchserveFlags, env: &Env) -> Result<ServerPlan, Failure> {
    check_paths(flags, env)?;
    assemble(configure(flags, env)?, flags, env)
}

/// Turns the configuration into a plan.
pub fn assemble(
    config: TorchserveConfig,
    flags: &TorchserveFlags,
    env: &Env,
) -> Result<ServerPlan, Failure> {
    let TorchserveConfig { file, values, mut remarks } = config;
    let store = stores(&values)?;
    let addresses = Addresses::read(&values)?;
    let grpc = Grpc::read(&values);
    let python = interpreter(&values, env);
    remarks.extend(python.remark);
    let metrics = metrics::plan(&values, &mut remarks);
    let logs = logs(&values, env);
    let snapshots = snapshots(flags, &values, file.as_deref(), &store, &addresses, env);
    let devices = FoundDevices::find(env);
    let gpus = devices.count.min(values.read(&NUMBER_OF_GPU).unwrap_or(u32::MAX));
    let banner = banner::text(&banner::Facts {
        values: &values,
        file: file.as_deref(),
        store: &store,
        python: &python.interpreter,
        style: &logs.style,
        temp_dir: &env.temp_dir(),
        gpus,
        addresses: addresses.all(),
    });
    let listeners = addresses.all().into_iter().chain([&grpc.inference.0, &grpc.management.0]);
    let secure = listeners.filter(|address| address.is_secure());
    let (certificate, tls) = security::tls(&values, secure.collect(), &mut remarks)?;
    Ok(ServerPlan {
        registrations: None,
        key_file: None,
        keys: parts::keys(&values)?,
        webhooks: parts::webhooks(&values)?,
        kind: ServerKind::TorchServe { banner },
        server: ServerConfig {
            tls: certificate,
            also_inference: flags.kserve_port.map(everywhere),
            also_grpc: kserve_grpc(flags, &addresses, &grpc, &mut remarks),
            ..server(&values, &addresses, &grpc)?
        },
        tls,
        tokens: security::tokens(&values)?,
        access_log: true,
        audit_log: values.read(&AUDIT_LOG),
        engine: engine(&values, &store, python.interpreter, (&devices, gpus), env)?,
        plugins: plugins(&values, &mut remarks)?,
        models: startups(&values, &store, &mut remarks)?,
        io_threads: values.read(&IO_THREADS).unwrap_or(1),
        drain: parts::drain(&values),
        handover: parts::handover(&values),
        logs,
        metrics,
        traces: TracePlan::read(&values, env, &mut remarks)?,
        sample_every: metrics::sample_every(&values),
        snapshots,
        traffic_file: None,
        poll: None,
        watch: false,
        until_eof: false,
        platform: None,
        remarks,
        temp_dir: env.temp_dir(),
    })
}

fn everywhere(port: u16) -> Bind {
    Bind::Tcp(([0, 0, 0, 0], port).into())
}

/// Where KServe asks over gRPC, unless the file has another use for the port.
fn kserve_grpc(
    flags: &TorchserveFlags,
    addresses: &Addresses,
    grpc: &Grpc,
    remarks: &mut Vec<String>,
) -> Option<GrpcBind> {
    let wanted = flags.kserve_grpc_port?;
    let mut named = addresses.all().into_iter().chain([&grpc.inference.0, &grpc.management.0]);
    if wanted != 0 && named.any(|at| matches!(at, Address::Tcp { port, .. } if *port == wanted)) {
        remarks.push(format!(
            "port {wanted} has another use in config.properties, so KServe's gRPC is not answered there; \
             give that address another port"
        ));
        return None;
    }
    Some(GrpcBind { bind: everywhere(wanted), age: grpc.inference.1 })
}

/// Rejects missing paths before anything is read: files that only TorchServe uses, and the temporary
/// directory, must exist.
fn check_paths(flags: &TorchserveFlags, env: &Env) -> Result<(), Failure> {
    for (flag, file) in
        [("--log-config", &flags.log_config), ("--cpp-log-config", &flags.cpp_log_config)]
    {
        if let Some(file) = file.as_ref().filter(|file| !file.is_file()) {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            return Err(Failure::failed(format!("{flag} file not found: {}", file.display())));
        }
    }
    match env.path("TEMP").filter(|temp| !temp.is_dir()) {
        Some(temp) => Err(Failure::failed(format!(
            "Invalid temp directory: {}, please check TEMP environment variable.",
            temp.display()
        ))),
        None => Ok(()),
    }
}

/// `TS_CONFIG_FILE`, `--ts-config`, the newest snapshot, `./config.properties`, in this order.
pub fn config_file(flags: &TorchserveFlags, env: &Env) -> Result<Option<PathBuf>, Failure> {
    let named = env.path("TS_CONFIG_FILE").or_else(|| flags.ts_config.clone());
    if let Some(named) = named.as_ref().filter(|file| !file.is_file()) {
        return Err(Failure::failed(format!("--ts-config file not found: {}", named.display())));
    }
    let here = PathBuf::from("config.properties");
    let named = named.or_else(|| newest_snapshot(flags, env));
    Ok(named.or_else(|| here.is_file().then_some(here)))
}

fn newest_snapshot(flags: &TorchserveFlags, env: &Env) -> Option<PathBuf> {
    if flags.no_config_snapshots { None } else { snapshot::newest(&log_location(env)) }
}

fn log_location(env: &Env) -> PathBuf {
    env.path("LOG_LOCATION").unwrap_or_else(|| PathBuf::from("logs"))
}

/// What is the same in every snapshot of this server. The addresses are always written, since they
/// are what clients depend on.
fn snapshots(
    flags: &TorchserveFlags,
    values: &Values,
    file: Option<&Path>,
    store: &Path,
    addresses: &Addresses,
    env: &Env,
) -> Option<Snapshots> {
    if flags.no_config_snapshots {
        return None;
    }
    let mut more = vec![
        ("inference_address", addresses.inference.to_string()),
        ("management_address", addresses.management.to_string()),
        ("metrics_address", addresses.metrics.to_string()),
        ("model_store", store.display().to_string()),
        ("version", super::VERSION.to_owned()),
    ];
    more.extend(file.map(|file| ("tsConfigFile", file.display().to_string())));
    Some(Snapshots::new(&log_location(env), store, values, &more))
}

/// The models of a snapshot if there is one, else those that `load_models` names.
pub fn startups(
    values: &Values,
    store: &Path,
    remarks: &mut Vec<String>,
) -> Result<Vec<Startup>, Failure> {
    let Some(text) = values.read::<String>(&MODEL_SNAPSHOT) else {
        let list: String = values.value(&LOAD_MODELS);
        return Ok(models::parse(&list, store));
    };
    let file = values.source(&MODEL_SNAPSHOT).detail();
    if let SettingSource::Flag(flag) = values.source(&LOAD_MODELS) {
        remarks.push(format!("{flag} has no effect: the models are those of the snapshot {file}"));
    }
    restore::startups(&text, store, &SettingSource::Snapshot(file))
}

/// The model store; both directories must exist if they are named.
fn stores(values: &Values) -> Result<PathBuf, Failure> {
    let Some(store) = values.show(&MODEL_STORE) else {
        return Err(Failure::failed("Missing mandatory parameter --model-store"));
    };
    let named = [
        ("--model-store", Some(store.clone())),
        ("--workflow-store", values.show(&WORKFLOW_STORE)),
    ];
    for (flag, path) in named {
        if let Some(path) = path.filter(|path| !Path::new(path).is_dir()) {
            return Err(Failure::failed(format!("{flag} directory not found: {path}")));
        }
    }
    std::path::absolute(&store).map_err(|error| Failure::failed(format!("{store}: {error}")))
}

/// The files that `plugins` names and those that lie in `plugins_path`.
fn plugins(values: &Values, remarks: &mut Vec<String>) -> Result<Vec<PluginPlan>, Failure> {
    let timeout = values.value(&PLUGIN_TIMEOUT);
    let listed = values.show(&PLUGINS);
    let mut sources: Vec<String> = listed.as_deref().map(plugins::listed).unwrap_or_default();
    if let Some(dir) = values.read::<PathBuf>(&PLUGINS_PATH) {
        sources.extend(plugins::inside(&dir, remarks)?);
    }
    plugins::named(&sources, timeout)
}

fn interpreter(values: &Values, env: &Env) -> python::Python {
    let asked = env.path("JITNEY_PYTHON").or_else(|| values.read(&PYTHON));
    python::find(asked.as_deref(), env)
}

fn logs(values: &Values, env: &Env) -> LogPlan {
    LogPlan {
        style: Style::TorchServe {
            logs: log_location(env),
            metrics: env.path("METRICS_LOCATION").unwrap_or_else(|| PathBuf::from("logs")),
        },
        format: values.value(&LOG_FORMAT),
        filter: env.text("JITNEY_LOG").map_or_else(|| LOG_LEVEL.default_value(), str::to_owned),
    }
}

fn server(values: &Values, addresses: &Addresses, grpc: &Grpc) -> Result<ServerConfig, Failure> {
    let metrics = values.flag(&ENABLE_METRICS_API);
    let metrics = metrics.then(|| addresses.metrics.bind()).transpose()?;
    Ok(ServerConfig {
        inference: addresses.inference.bind()?,
        management: addresses.management.bind()?,
        metrics,
        grpc_inference: Some(grpc_bind(&grpc.inference)?),
        grpc_management: Some(grpc_bind(&grpc.management)?),
        model_api: values.flag(&ENABLE_MODEL_API),
        oip: values.flag(&TS_OPEN_INFERENCE_PROTOCOL),
        sagemaker: values.flag(&SAGEMAKER),
        server_version: super::VERSION.to_owned(),
        ..parts::server(values)?
    })
}

#[cfg(test)]
mod tests;
