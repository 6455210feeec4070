//! From TorchServe's flags and `config.properties` to a [`Plan`]: where the file is found, what its
//! values mean, what stops the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::settings::{Defaults, PolicyName};
use jitney_server::{ConnectionAge, Cors, GrpcBind, ServerConfig};

use super::values::Values;
use super::{banner, models, properties};
use crate::address::Address;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::logs::{LogPlan, Style};
use crate::plan::{Drain, EnginePlan, Face, Plan};
use crate::units::Seconds;
use crate::url_rule::UrlRule;
use crate::worker_env::Hidden;
use crate::{machine, python};

const ANY_URL: &str = "file://.*|http(s)?://.*";

/// Plans the server.
pub fn plan(flags: &TorchserveFlags, env: &Env) -> Result<Plan, Failure> {
    let file = config_file(flags, env)?;
    let properties = file.as_deref().map(|file| properties::read(file, env)).transpose()?;
    let values = Values::resolve(properties.unwrap_or_default(), flags, env)?;
    let store = stores(&values)?;
    let addresses = Addresses::read(&values)?;
    let grpc = Grpc::read(&values)?;
    let mut remarks = remarks(flags, &values);
    remarks.extend(tokens(&values, &addresses, &grpc)?);
    let python = interpreter(&values, env);
    remarks.extend(python.remark);
    let logs = logs(env);
    let banner = banner::text(&banner::Facts {
        values: &values,
        file: file.as_deref(),
        store: &store,
        python: &python.interpreter,
        style: &logs.style,
        temp_dir: &env.temp_dir(),
        addresses: [&addresses.inference, &addresses.management, &addresses.metrics],
    });
    let drain = drain(&values)?;
    Ok(Plan {
        face: Face::TorchServe { banner },
        server: server(&values, &addresses, &grpc, drain)?,
        access_log: true,
        engine: engine(&values, &store, python.interpreter)?,
        models: models::parse(values.text("load_models").unwrap_or("none"), &store),
        io_threads: values.number("io_threads", machine::io_threads())?.max(1),
        drain,
        logs,
        remarks,
        temp_dir: env.temp_dir(),
    })
}

/// `TS_CONFIG_FILE`, `--ts-config`, `./config.properties`, in this order.
fn config_file(flags: &TorchserveFlags, env: &Env) -> Result<Option<PathBuf>, Failure> {
    if let Some(named) = flags.ts_config.as_ref().filter(|file| !file.is_file()) {
        return Err(Failure::failed(format!("--ts-config file not found: {}", named.display())));
    }
    let here = PathBuf::from("config.properties");
    let named = env.path("TS_CONFIG_FILE").or_else(|| flags.ts_config.clone());
    Ok(named.or_else(|| here.is_file().then_some(here)))
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

/// The three doors.
struct Addresses {
    inference: Address,
    management: Address,
    metrics: Address,
}

impl Addresses {
    fn read(values: &Values) -> Result<Self, Failure> {
        let read = |key: &str, port: u16, port_omitted: u16| match values.text(key) {
            Some(text) => Address::parse(key, text, port_omitted),
            None => Ok(Address::tcp("127.0.0.1", port)),
        };
        Ok(Self {
            inference: read("inference_address", 8080, 80)?,
            management: read("management_address", 8081, 8081)?,
            metrics: read("metrics_address", 8082, 8082)?,
        })
    }
}

/// The two doors for gRPC; each has a host and a port of its own.
struct Grpc {
    inference: (Address, ConnectionAge),
    management: (Address, ConnectionAge),
}

impl Grpc {
    fn read(values: &Values) -> Result<Self, Failure> {
        let door = |name: &str, port: u16| {
            let key = |part: &str| format!("grpc_{name}_{part}");
            let millis = |part: &str| -> Result<Option<Duration>, Failure> {
                Ok(values.read(&key(part))?.map(Duration::from_millis))
            };
            let host = values.text(&key("address")).unwrap_or("127.0.0.1").trim();
            let address = Address::tcp(host, values.number(&key("port"), port)?);
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

/// Tokens are on unless switched off, as upstream. This version cannot check them yet, so it serves
/// nobody but this machine then.
fn tokens(values: &Values, addresses: &Addresses, grpc: &Grpc) -> Result<Option<String>, Failure> {
    if values.truth("disable_token_authorization", false) {
        return Ok(None);
    }
    let doors =
        [&addresses.inference, &addresses.management, &grpc.inference.0, &grpc.management.0];
    match doors.into_iter().find(|door| !door.is_local()) {
        Some(door) => Err(Failure::failed(format!(
            "token authorization is enabled but this version cannot enforce it, so it will not listen on {door}"
        ))
        .hint("pass --disable-token-auth to let anyone in, or listen on 127.0.0.1")),
        None => Ok(Some(
            "token authorization is enabled but not enforced by this version; only this machine can reach the server".to_owned(),
        )),
    }
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
    let place = |name| env.path(name).unwrap_or_else(|| PathBuf::from("logs"));
    LogPlan {
        style: Style::TorchServe {
            logs: place("LOG_LOCATION"),
            metrics: place("METRICS_LOCATION"),
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
        cors: Cors {
            origin: text("cors_allowed_origin"),
            methods: text("cors_allowed_methods"),
            headers: text("cors_allowed_headers"),
        },
        server_version: super::VERSION.to_owned(),
        hostname: machine::hostname(),
        ..defaults
    })
}

fn engine(values: &Values, store: &Path, python: PathBuf) -> Result<EnginePlan, Failure> {
    let text = |key| values.text(key).map(str::to_owned);
    let urls = UrlRule::patterns(values.text("allowed_urls").unwrap_or(ANY_URL))?;
    Ok(EnginePlan {
        defaults: defaults(values)?,
        model_store: Some(store.to_owned()),
        urls: Arc::new(urls),
        python,
        hidden: Hidden::pattern(values.text("blacklist_env_vars"))?,
        decode_input: values.truth("decode_input_request", true),
        limit_max_image_pixels: values.truth("limit_max_image_pixels", true),
        envelope: text("service_envelope"),
        first_worker_id: values.number("initial_worker_port", 9000)?,
    })
}

/// Without a number, start-up models get a worker per GPU, or per processor where there is none;
/// models registered later get none.
fn defaults(values: &Values) -> Result<Defaults, Failure> {
    let ours = Defaults::default();
    let workers: Option<u32> = values.read("default_workers_per_model")?;
    let gpus = machine::gpus().min(values.number("number_of_gpu", u32::MAX)?);
    let by_machine = if gpus > 0 { gpus } else { machine::cpus() };
    let unregister_s =
        values.number("unregister_model_timeout", ours.unregister_timeout.as_secs())?;
    Ok(Defaults {
        workers: workers.unwrap_or(ours.workers),
        startup_workers: workers.unwrap_or(by_machine),
        response_timeout_s: values.number("default_response_timeout", ours.response_timeout_s)?,
        startup_timeout_s: values.number("default_startup_timeout", ours.startup_timeout_s)?,
        queue_max: values.number("job_queue_size", ours.queue_max)?,
        // TorchServe has one queue for both its doors.
        mix_origins: true,
        policy: policy(values)?,
        handler: values.text("default_service_handler").map(str::to_owned),
        models: per_model(values)?,
        unregister_timeout: Duration::from_secs(unregister_s),
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
