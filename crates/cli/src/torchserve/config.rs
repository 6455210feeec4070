//! From TorchServe's flags and `config.properties` to a [`Plan`]: where the file is found, what its
//! values mean, what stops the start. What they say about doors and engine is in files beside it.

use std::path::{Path, PathBuf};

use jitney_engine::PluginPlan;
use jitney_server::{Cors, ServerConfig};

use super::addresses::{Addresses, Grpc, grpc_bind};
use super::engine::engine;
use super::snapshot::{self, Snapshots};
use super::values::Values;
use super::{banner, metrics, models, properties, security};
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::logs::{LogPlan, Style};
use crate::origin::Origin;
use crate::plan::{Drain, Face, Plan};
use crate::startup::Startup;
use crate::units::Seconds;
use crate::{gpu, machine, plugins, python};

/// Plans the server.
pub fn plan(flags: &TorchserveFlags, env: &Env) -> Result<Plan, Failure> {
    check_paths(flags, env)?;
    let file = config_file(flags, env)?;
    let properties = file.as_deref().map(|file| properties::read(file, env)).transpose()?;
    let values = Values::resolve(properties.unwrap_or_default(), flags, env)?;
    let store = stores(&values)?;
    let addresses = Addresses::read(&values)?;
    let grpc = Grpc::read(&values)?;
    let mut remarks = remarks(flags, &values);
    let python = interpreter(&values, env);
    remarks.extend(python.remark);
    let metrics = metrics::plan(&values, &mut remarks)?;
    let logs = logs(env);
    let snapshots = snapshots(flags, &values, file.as_deref(), &store, &addresses, env);
    let gpus = gpu::count(env).min(values.number("number_of_gpu", u32::MAX)?);
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
    let drain = drain(&values)?;
    let doors = addresses.all().into_iter().chain([&grpc.inference.0, &grpc.management.0]);
    let secure = doors.filter(|door| door.is_secure());
    let tls = security::tls(&values, secure.collect(), &mut remarks)?;
    Ok(Plan {
        face: Face::TorchServe { banner },
        server: ServerConfig { tls, ..server(&values, &addresses, &grpc, drain)? },
        tokens: security::tokens(&values)?,
        access_log: true,
        engine: engine(&values, &store, python.interpreter, gpus)?,
        plugins: plugins(&values, &mut remarks)?,
        models: startups(&values, &store, &mut remarks)?,
        io_threads: values.number("io_threads", machine::io_threads())?.max(1),
        drain,
        logs,
        metrics,
        snapshots,
        watch: false,
        until_eof: false,
        remarks,
        temp_dir: env.temp_dir(),
    })
}

/// Refuses what scripts are refused before anything is read: files that only the original uses, and
/// a temporary directory, are still to be there.
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
    let Some(text) = values.text(snapshot::KEY) else {
        return Ok(models::parse(values.text("load_models").unwrap_or("none"), store));
    };
    if let Some(Origin::Flag(flag)) = values.origin("load_models") {
        let file = values.origin(snapshot::KEY).map(Origin::place).unwrap_or_default();
        remarks.push(format!("{flag} has no effect: the models are those of the snapshot {file}"));
    }
    snapshot::startups(text, store)
}

/// The model store; both directories must exist if they are named.
fn stores(values: &Values) -> Result<PathBuf, Failure> {
    let Some(store) = values.text("model_store") else {
        return Err(Failure::failed("Missing mandatory parameter --model-store"));
    };
    for (flag, path) in
        [("--model-store", Some(store)), ("--workflow-store", values.text("workflow_store"))]
    {
        if let Some(path) = path.filter(|path| !Path::new(path).is_dir()) {
            return Err(Failure::failed(format!("{flag} directory not found: {path}")));
        }
    }
    std::path::absolute(store).map_err(|error| Failure::failed(format!("{store}: {error}")))
}

/// The files that `plugins` names and those that lie in `plugins_path`.
fn plugins(values: &Values, remarks: &mut Vec<String>) -> Result<Vec<PluginPlan>, Failure> {
    let timeout = values.number("plugin_timeout", Seconds(plugins::TIMEOUT))?.0;
    let mut sources: Vec<String> = values.text("plugins").map(plugins::listed).unwrap_or_default();
    if let Some(dir) = values.text("plugins_path") {
        sources.extend(plugins::inside(Path::new(dir), remarks)?);
    }
    plugins::named(&sources, timeout)
}

fn remarks(flags: &TorchserveFlags, values: &Values) -> Vec<String> {
    let mut remarks = values.remarks();
    let flags = flags.without_effect();
    if !flags.is_empty() {
        remarks.push(format!("accepted without effect: {}", flags.join(", ")));
    }
    remarks
}

fn interpreter(values: &Values, env: &Env) -> python::Python {
    let asked = env.path("JITNEY_PYTHON").or_else(|| values.text("python").map(PathBuf::from));
    python::find(asked.as_deref(), env)
}

fn logs(env: &Env) -> LogPlan {
    LogPlan {
        style: Style::TorchServe {
            logs: log_location(env),
            metrics: env.path("METRICS_LOCATION").unwrap_or_else(|| PathBuf::from("logs")),
        },
        filter: env.text("JITNEY_LOG").unwrap_or("info").to_owned(),
    }
}

fn drain(values: &Values) -> Result<Drain, Failure> {
    let defaults = Drain::default();
    Ok(Drain {
        delay: values.number("drain_delay", Seconds(defaults.delay))?.0,
        timeout: values.number("drain_timeout", Seconds(defaults.timeout))?.0,
    })
}

fn server(
    values: &Values,
    addresses: &Addresses,
    grpc: &Grpc,
    drain: Drain,
) -> Result<ServerConfig, Failure> {
    let text = |key| values.text(key).map(str::to_owned);
    let metrics = values.truth("enable_metrics_api", true);
    let metrics = metrics.then(|| addresses.metrics.bind()).transpose()?;
    let defaults = ServerConfig::default();
    Ok(ServerConfig {
        inference: addresses.inference.bind()?,
        management: addresses.management.bind()?,
        metrics,
        grpc_inference: Some(grpc_bind(&grpc.inference)?),
        grpc_management: Some(grpc_bind(&grpc.management)?),
        max_request_bytes: values.number("max_request_size", defaults.max_request_bytes)?,
        shutdown_grace: drain.timeout,
        model_api: values.truth("enable_model_api", false),
        oip: values.truth("ts_open_inference_protocol", false),
        sagemaker: values.truth("sagemaker", false),
        cors: Cors {
            origin: text("cors_allowed_origin"),
            methods: text("cors_allowed_methods"),
            headers: text("cors_allowed_headers"),
        },
        server_version: super::VERSION.to_owned(),
        ..defaults
    })
}

#[cfg(test)]
mod tests;
