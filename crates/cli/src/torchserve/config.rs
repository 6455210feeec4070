//! From TorchServe's flags and `config.properties` to a [`Plan`]: where the file is found, what its
//! values mean, what stops the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::PluginPlan;
use jitney_engine::settings::{Defaults, PolicyName};
use jitney_engine::store::Limits;
use jitney_server::{ConnectionAge, Cors, GrpcBind, ServerConfig};

use super::snapshot::{self, Snapshots};
use super::values::Values;
use super::{banner, metrics, models, properties, security, sequences};
use crate::address::{Address, Omitted};
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::logs::{LogPlan, Style};
use crate::origin::Origin;
use crate::plan::{Drain, EnginePlan, Face, Plan};
use crate::startup::Startup;
use crate::units::{Seconds, Size};
use crate::url_rule::UrlRule;
use crate::worker_env::Hidden;
use crate::{gpu, machine, plugins, python};

/// Long enough for anybody who looks at a worker with a debugger.
const DEBUG_SECONDS: u64 = 7 * 24 * 60 * 60;

/// What TorchServe takes from a `model-config.yaml` that says nothing about a time.
const SILENT_YAML_TIMEOUT: Duration = Duration::from_secs(120);

const ANY_URL: &str = "file://.*|http(s)?://.*";

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

/// The three doors.
struct Addresses {
    inference: Address,
    management: Address,
    metrics: Address,
}

impl Addresses {
    fn read(values: &Values) -> Result<Self, Failure> {
        let read = |key: &str, port: u16, http: u16, https: u16| match values.text(key) {
            Some(text) => Address::parse(key, text, Omitted { http, https }),
            None => Ok(Address::tcp("127.0.0.1", port)),
        };
        Ok(Self {
            inference: read("inference_address", 8080, 80, 443)?,
            management: read("management_address", 8081, 8081, 8444)?,
            metrics: read("metrics_address", 8082, 8082, 8445)?,
        })
    }

    fn all(&self) -> [&Address; 3] {
        [&self.inference, &self.management, &self.metrics]
    }
}

/// The two doors for gRPC; each has a host and a port of its own.
struct Grpc {
    inference: (Address, ConnectionAge),
    management: (Address, ConnectionAge),
}

impl Grpc {
    fn read(values: &Values) -> Result<Self, Failure> {
        let secure = values.truth("enable_grpc_ssl", false);
        let door = |name: &str, port: u16| {
            let key = |part: &str| format!("grpc_{name}_{part}");
            let millis = |part: &str| -> Result<Option<Duration>, Failure> {
                Ok(values.read(&key(part))?.map(Duration::from_millis))
            };
            let host = values.text(&key("address")).unwrap_or("127.0.0.1").trim();
            let address = Address::tcp(host, values.number(&key("port"), port)?).secured(secure);
            let (max, grace) =
                (millis("max_connection_age_ms")?, millis("max_connection_age_grace_ms")?);
            Ok::<_, Failure>((address, ConnectionAge { max, grace }))
        };
        Ok(Self { inference: door("inference", 7070)?, management: door("management", 7071)? })
    }
}

fn grpc_bind((address, age): &(Address, ConnectionAge)) -> Result<GrpcBind, Failure> {
    Ok(GrpcBind { bind: address.bind()?, age: *age })
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

fn engine(
    values: &Values,
    store: &Path,
    python: PathBuf,
    gpus: u32,
) -> Result<EnginePlan, Failure> {
    let text = |key| values.text(key).map(str::to_owned);
    let urls = UrlRule::patterns(values.text("allowed_urls").unwrap_or(ANY_URL))?;
    Ok(EnginePlan {
        defaults: defaults(values, gpus)?,
        model_store: Some(store.to_owned()),
        workflow_store: values.text("workflow_store").map(PathBuf::from),
        store_limits: store_limits(values)?,
        urls: Arc::new(urls),
        python,
        hidden: Hidden::pattern(values.text("blacklist_env_vars"))?,
        decode_input: values.truth("decode_input_request", true),
        limit_max_image_pixels: values.truth("limit_max_image_pixels", true),
        envelope: text("service_envelope"),
        first_worker_id: values.number("initial_worker_port", 9000)?,
        install_requirements: values.truth("install_py_dep_per_model", false),
        response_bytes_max: values.read("max_response_size")?,
        gpus,
        worker_env: ipex(values).into_iter().chain(sequences::variables(values)).collect(),
    })
}

/// Intel's extension is switched on inside the workers.
fn ipex(values: &Values) -> Vec<(&'static str, String)> {
    [("ipex_enable", "TS_IPEX_ENABLE"), ("ipex_gpu_enable", "TS_IPEX_GPU_ENABLE")]
        .into_iter()
        .filter(|(key, _)| values.truth(key, false))
        .map(|(_, variable)| (variable, "true".to_owned()))
        .collect()
}

fn store_limits(values: &Values) -> Result<Limits, Failure> {
    let ours = Limits::default();
    let bytes = |key, default: u64| -> Result<u64, Failure> {
        Ok(values.read::<Size>(key)?.map_or(default, |size| size.0))
    };
    Ok(Limits {
        fetched_bytes_max: bytes("max_download_size", ours.fetched_bytes_max)?,
        unpacked_bytes_max: bytes("max_unpacked_size", ours.unpacked_bytes_max)?,
        files_max: values.number("max_unpacked_files", ours.files_max)?,
    })
}

/// Without a number, start-up models get a worker per GPU, or per processor where there is none;
/// models registered later get none.
///
/// With `debug` it is one worker, which may take its time.
pub fn defaults(values: &Values, gpus: u32) -> Result<Defaults, Failure> {
    let ours = Defaults::default();
    // Zero is TorchServe's word for "as many as the machine has".
    let workers: Option<u32> = values.read("default_workers_per_model")?;
    let workers = workers.filter(|workers| *workers > 0);
    let debug = values.truth("debug", false);
    let by_machine = match gpus {
        _ if debug => 1,
        0 => machine::cpus(),
        gpus => gpus,
    };
    let seconds = |key: &str, ours: u64| {
        values.number(key, ours).map(|seconds| if debug { DEBUG_SECONDS } else { seconds })
    };
    let unregister_s =
        values.number("unregister_model_timeout", ours.unregister_timeout.as_secs())?;
    Ok(Defaults {
        workers: workers.unwrap_or(ours.workers),
        startup_workers: workers.unwrap_or(by_machine),
        response_timeout_s: seconds("default_response_timeout", ours.response_timeout_s)?,
        startup_timeout_s: seconds("default_startup_timeout", ours.startup_timeout_s)?,
        silent_yaml_timeout: (!debug).then_some(SILENT_YAML_TIMEOUT),
        queue_max: values.number("job_queue_size", ours.queue_max)?,
        // TorchServe has one queue for both its doors.
        mix_origins: true,
        policy: policy(values)?,
        handler: values.text("default_service_handler").map(str::to_owned),
        models: per_model(values)?,
        unregister_timeout: Duration::from_secs(unregister_s),
        sequence_headers: Arc::new(sequences::headers(values)?),
    })
}

fn policy(values: &Values) -> Result<Option<PolicyName>, Failure> {
    let named = values.text("batching_policy").map(str::parse::<PolicyName>);
    named.transpose().map_err(|why| Failure::failed(format!("batching_policy: {why}")))
}

fn per_model(values: &Values) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    let Some(text) = values.text("models") else { return Ok(serde_json::Map::new()) };
    serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("models: not a JSON object: {error}")))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
