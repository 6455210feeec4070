//! `jitney serve` and `jitney demo`: from flags, variables and `jitney.yaml` to a [`ServerPlan`].

pub mod file;
pub mod model;
mod ray;
mod variables;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::python::PythonConfig;
use jitney_engine::settings::ModelDefaults;
use jitney_engine::store::{ShownUrl, is_remote, is_remote_folder};
use jitney_engine::{PluginPlan, RepositoryConfig, ServedDirectory};
use jitney_server::{RouteAliases, ServerConfig};
use jitney_settings::Dialect;
use jitney_settings::server::{
    ACCESS_LOG, AUDIT_LOG, CLIENT_CA, GPU_MEMORY, GRPC_MANAGEMENT_PORT, GRPC_PORT, HOST,
    INFERENCE_PORT, IO_THREADS, JOBS_DIR, KEY_FILE, KEYS, LOG_FORMAT, LOG_LEVEL, MANAGEMENT_HOST,
    MANAGEMENT_PORT, MAX_WORKERS_PER_MODEL, MEMORY, METRICS_PORT, MODEL_STORE, POLL, PYTHON,
    REGISTRATIONS, REGISTRATIONS_EVERY, TLS_CERT, TLS_KEY, TLS_MIN_VERSION, TOKEN_AUTH,
};
use jitney_settings::torchserve::{
    INITIAL_WORKER_PORT, METRIC_TIME_INTERVAL, PLUGIN_TIMEOUT, TOKEN_EXPIRATION_MIN,
};
use jitney_settings::{Setting, SettingSource, Values, server};
use jitney_telemetry::metrics::MeterPlan;

use crate::address::Address;
use crate::env::{Env, Hidden};
use crate::failure::Failure;
use crate::flags::{DemoFlags, ServeFlags};
use crate::gpu::FoundDevices;
use crate::logs::{LogPlan, Style};
use crate::plan::{EnginePlan, RegistrationsPlan, ServerKind, ServerPlan, Startup};
use crate::platform::{self, SagemakerRole};
use crate::tls::{FollowedTls, TlsFiles};
use crate::torchserve::TorchserveFolder;
use crate::traces::TracePlan;
use crate::url_rule::UrlRule;
use crate::{machine, parts, plugins, python};

/// What flags, variables and the file come to.
pub struct ServeConfig {
    /// Every setting of the server with its source, and those that are given to all models.
    pub values: Values,
    /// The models, with the settings that are given to each of them.
    pub models: Vec<Startup>,
    /// Warnings for the log.
    pub remarks: Vec<String>,
    plugins: Vec<PluginPlan>,
    /// Directories whose models are served.
    repositories: Vec<ServedDirectory>,
    registrations: Option<RegistrationsPlan>,
    watch: bool,
    until_eof: bool,
    /// What SageMaker wants of the server, if it is there.
    sagemaker: Option<SagemakerRole>,
    /// The platform, for the log.
    platform: Option<String>,
    /// Paths that the platform chose.
    aliases: RouteAliases,
    /// The one folder that is served, if it has TorchServe's layout.
    torchserve: Option<TorchserveFolder>,
}

/// Reads every source of `jitney serve`.
pub fn configure(flags: ServeFlags, env: &Env) -> Result<ServeConfig, Failure> {
    let (variables, remarks) = variables::read(env)?;
    let plugins = plugins::named(&flags.plugins, PLUGIN_TIMEOUT.default_value())?;
    let file = flags.config.or_else(|| env.path("JITNEY_CONFIG"));
    let file = file.map(|path| file::read(&path)).transpose()?.unwrap_or_default();
    let detected =
        platform::detect(platform::asked(flags.platform, env)?, env, platform::is_filled)?;
    let mut platform = detected.as_ref().map(|it| platform::read(it, env)).transpose()?;
    let given = platform.as_ref().map(|it| (it.above.clone(), it.below.clone()));
    let (of_platform, below) = given.unwrap_or_default();
    let above = flags.settings.0.or(&variables).or(&of_platform);
    let polls = poll(&above.clone().or(&file.settings)).is_some();
    let (mut repositories, named) = model::repositories(&flags.models, polls)?;
    let torchserve = match &repositories[..] {
        [only] if named.is_empty() && !polls => {
            TorchserveFolder::read(&only.path, only.name.as_deref(), env)?
        }
        _ => None,
    };
    let mut torchserve = torchserve.inspect(|_| repositories.clear());
    let named = named.into_iter().map(|text| model::parse(text));
    let listed = file.models.into_iter().map(model::from_entry);
    let given = above.clone();
    let settled = |startup: Startup| {
        let settings = given.clone().or(&startup.settings).or(&file.settings);
        let settings = settings.only(jitney_settings::model::SETTINGS);
        Startup { settings, ..startup }
    };
    let of_folder = torchserve.iter_mut().flat_map(|it| std::mem::take(&mut it.models)).map(Ok);
    let models = named.chain(listed).chain(of_folder).map(|startup| startup.map(settled));
    let mut models = models.collect::<Result<Vec<_>, Failure>>()?;
    let of_folder = torchserve.as_ref().map(|it| it.settings.clone()).unwrap_or_default();
    let values = above.or(&file.settings).or(&of_folder).or(&below);
    let registrations = registrations(&values, &given, &file.settings)?;
    let (watch, until_eof) = (flags.watch, flags.until_eof);
    let nothing_named = repositories.is_empty() && models.is_empty() && registrations.is_none();
    if let Some(platform) = platform.as_mut().filter(|_| nothing_named) {
        models = std::mem::take(&mut platform.models).into_iter().map(settled).collect();
    }
    let sagemaker = platform.as_ref().and_then(|it| it.sagemaker);
    let mut config = effective(values, models, remarks, env);
    config.remarks.extend(torchserve.iter_mut().flat_map(|it| std::mem::take(&mut it.remarks)));
    if let (Some(plan), Some(detected)) = (&mut platform, &detected) {
        config.platform = Some(plan.describe(detected, &config.values));
        config.aliases = std::mem::take(&mut plan.aliases);
        config.remarks.append(&mut plan.remarks);
    }
    // Without anything else the store is what is served. SageMaker names what it wants of it.
    let store: Option<PathBuf> = config.values.read(&MODEL_STORE);
    let nothing_else = nothing_named && config.models.is_empty();
    let only = store.filter(|_| nothing_else && sagemaker.is_none());
    let only = only.map(|path| ServedDirectory { path, name: None });
    config.repositories = repositories.into_iter().chain(only).collect();
    Ok(ServeConfig { plugins, registrations, watch, until_eof, sagemaker, torchserve, ..config })
}

/// The shared list of models. One on this machine has to be there; another machine may be away for a while.
fn registrations(
    values: &Values,
    above: &Values,
    below: &Values,
) -> Result<Option<RegistrationsPlan>, Failure> {
    let Some(source) = values.read::<String>(&REGISTRATIONS) else { return Ok(None) };
    let source = source.strip_prefix("file://").map_or(source.clone(), str::to_owned);
    let remote = source.contains("://");
    if remote && !is_remote(&source) {
        let shown = ShownUrl::of(&source);
        return Err(Failure::usage(format!("{shown}: a list of models cannot be read from there"))
            .hint("known: a file, a directory, http://, https://, s3://, gs://, az://, abfs://"));
    }
    if !remote && !std::path::Path::new(&source).exists() {
        return Err(Failure::usage(format!("--registrations: no such file: {source}")));
    }
    let every = values.value::<Duration>(&REGISTRATIONS_EVERY).max(EVERY_MIN);
    let (above, below) = (above.clone(), below.clone());
    Ok(Some(RegistrationsPlan { source, every, above, below }))
}

/// Where shares of versions are kept, in the folder of the jobs.
const TRAFFIC_FILE: &str = "traffic.json";

/// How often the shared list is read at most.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// Plans `jitney serve`.
pub fn plan(flags: ServeFlags, env: &Env) -> Result<ServerPlan, Failure> {
    let config = configure(flags, env)?;
    let none = config.models.is_empty() && config.repositories.is_empty();
    let told_later = config.sagemaker == Some(SagemakerRole::ManyModels);
    if let (true, Some(platform)) =
        (none && config.sagemaker.is_some() && !told_later, &config.platform)
    {
        return Err(Failure::usage(format!("no model to serve ({platform}): the folder is not there")).hint(
            "put the model there with its code/inference.py, or name another base in SAGEMAKER_BASE_DIR",
        ));
    }
    if none && config.registrations.is_none() && !told_later {
        return Err(Failure::usage("no model to serve").hint(
            "name an archive, a directory, an .onnx file, a folder of them or module:object, or try `jitney demo`",
        ));
    }
    assemble(ServerKind::Serve, config, env)
}

/// Plans `jitney demo`.
pub fn plan_demo(flags: DemoFlags, env: &Env) -> Result<ServerPlan, Failure> {
    let (variables, remarks) = variables::read(env)?;
    let values = flags.addresses.0.or(&variables);
    assemble(ServerKind::Demo, effective(values, Vec::new(), remarks, env), env)
}

/// Plans one model without a server, for `jitney infer`: the same sources decide about it. Variables
/// that only a server knows are no news here.
pub fn plan_offline(model: Startup, flags: Values, env: &Env) -> Result<ServerPlan, Failure> {
    let values = flags.or(&variables::read(env)?.0);
    let settings = values.only(jitney_settings::model::SETTINGS).or(&model.settings);
    let models = vec![Startup { settings, ..model }];
    assemble(ServerKind::Serve, effective(values, models, Vec::new(), env), env)
}

/// Adds what no source sets: what the machine decides, then the declared defaults.
fn effective(
    mut values: Values,
    models: Vec<Startup>,
    mut remarks: Vec<String>,
    env: &Env,
) -> ServeConfig {
    let python = python::find(values.read::<PathBuf>(&PYTHON).as_deref(), env);
    let needs_python = models.iter().any(|model| !model.url.ends_with(".onnx"));
    remarks.extend(python.remark.filter(|_| needs_python));
    let source = values.source(&PYTHON);
    values.set(&PYTHON, python.interpreter.to_string_lossy().into_owned(), source);
    parts::bound_request_size(&mut values, &mut remarks);
    // Who gives keys wants them to be asked for.
    if values.has(&KEY_FILE) && !values.has(&TOKEN_AUTH) {
        let source = values.source(&KEY_FILE);
        values.set(&TOKEN_AUTH, true, source);
    }
    machine::settle_memory(&mut values, &mut remarks);
    let limit = machine::workers_limit(&values);
    let values = values.or(&machine::defaults()).or(&limit).or_defaults(server::SETTINGS);
    ServeConfig {
        values,
        models,
        remarks,
        plugins: Vec::new(),
        repositories: Vec::new(),
        registrations: None,
        watch: false,
        until_eof: false,
        sagemaker: None,
        platform: None,
        aliases: RouteAliases::default(),
        torchserve: None,
    }
}

/// How often the served folders are looked into again.
fn poll(values: &Values) -> Option<Duration> {
    values.read(&POLL).filter(|every: &Duration| !every.is_zero())
}

/// Turns the configuration into a plan.
pub fn assemble(kind: ServerKind, config: ServeConfig, env: &Env) -> Result<ServerPlan, Failure> {
    let ServeConfig { values, models, mut remarks, plugins, repositories, .. } = config;
    let ServeConfig { registrations, watch, until_eof, sagemaker, platform, aliases, .. } = config;
    let color = std::io::stderr().is_terminal() && !env.no_color();
    let (format, filter) = (values.value(&LOG_FORMAT), values.value(&LOG_LEVEL));
    let tls = tls(&values)?;
    let mut engine = engine(&values, &models, repositories, registrations.as_ref(), env)?;
    if sagemaker.is_some() {
        engine = platform::on_sagemaker(engine, env);
    }
    Ok(ServerPlan {
        server: ServerConfig { aliases, ..server(&values, tls.as_ref(), sagemaker, &mut remarks)? },
        tls,
        key_file: values.read(&KEY_FILE),
        keys: parts::keys(&values)?,
        webhooks: parts::webhooks(&values)?,
        tokens: values.flag(&TOKEN_AUTH).then(|| TOKEN_EXPIRATION_MIN.default_value()),
        access_log: values.flag(&ACCESS_LOG),
        audit_log: values.read(&AUDIT_LOG),
        engine: match config.torchserve {
            Some(folder) => folder.engine(engine),
            None => engine,
        },
        poll: poll(&values),
        plugins,
        models,
        io_threads: values.read(&IO_THREADS).unwrap_or(1),
        drain: parts::drain(&values),
        handover: parts::handover(&values),
        logs: LogPlan { style: Style::Human { color }, format, filter },
        metrics: MeterPlan::default(),
        traces: TracePlan::read(&values, env, &mut remarks)?,
        sample_every: Some(METRIC_TIME_INTERVAL.default_value()),
        snapshots: None,
        traffic_file: matches!(kind, ServerKind::Serve)
            .then(|| values.value::<PathBuf>(&JOBS_DIR).join(TRAFFIC_FILE)),
        registrations,
        watch,
        until_eof,
        platform,
        remarks,
        temp_dir: env.temp_dir(),
        kind,
    })
}

/// The management API may change models: it is what the user runs on the own machine. Opening it to
/// others is possible and remarked on.
fn server(
    values: &Values,
    tls: Option<&FollowedTls>,
    sagemaker: Option<SagemakerRole>,
    remarks: &mut Vec<String>,
) -> Result<ServerConfig, Failure> {
    let host: String = values.value(&HOST);
    let one_port = sagemaker == Some(SagemakerRole::ManyModels);
    let management: String = values.read(&MANAGEMENT_HOST).unwrap_or_else(|| host.clone());
    let managed = if one_port { &host } else { &management };
    remarks.extend(
        openness(&host, managed).filter(|_| !values.flag(&TOKEN_AUTH) && !values.has(&KEYS)),
    );
    // Whoever takes any free port has another server here, so the other ports are any free ones, too.
    let any = values.value::<u16>(&INFERENCE_PORT) == 0;
    let bind = |host: &str, setting: &Setting| {
        let chosen = values.source(setting) != SettingSource::Default;
        let port = if any && !chosen { 0 } else { values.value(setting) };
        Address::tcp(host, port).secured(tls.is_some()).bind()
    };
    Ok(ServerConfig {
        inference: bind(&host, &INFERENCE_PORT)?,
        management: bind(&management, &MANAGEMENT_PORT)?,
        metrics: Some(bind(&host, &METRICS_PORT)?),
        grpc_inference: Some(bind(&host, &GRPC_PORT)?.into()),
        grpc_management: Some(bind(&management, &GRPC_MANAGEMENT_PORT)?.into()),
        tls: tls.map(|followed| followed.tls.clone()),
        one_port,
        model_api: true,
        oip: true,
        natural: true,
        sagemaker: sagemaker.is_some(),
        dialect: Dialect::Jitney,
        content_types: true,
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..parts::server(values)?
    })
}

/// A remark on who reaches the server, if others than this machine do.
fn openness(host: &str, management: &str) -> Option<String> {
    let open = |host: &str| !Address::tcp(host, 0).is_local();
    match (open(host), open(management)) {
        (_, true) => Some(format!(
            "listening on {management} without a token: whoever reaches it may use it"
        )),
        (true, false) => Some(format!(
            "listening on {host} without a token: whoever reaches it may ask for predictions"
        )),
        (false, false) => None,
    }
}

/// The certificate of all listeners, if they have one.
fn tls(values: &Values) -> Result<Option<FollowedTls>, Failure> {
    let client_ca = values.read(&CLIENT_CA);
    match (values.read(&TLS_CERT), values.read(&TLS_KEY)) {
        (None, None) if client_ca.is_some() => {
            Err(Failure::usage("--client-ca needs --tls-cert and --tls-key"))
        }
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let min_version = values.read(&TLS_MIN_VERSION).unwrap_or_default();
            TlsFiles { certificate, key, client_ca, min_version }.load().map(Some)
        }
        (Some(_), None) => Err(Failure::usage("--tls-cert needs --tls-key")),
        (None, Some(_)) => Err(Failure::usage("--tls-key needs --tls-cert")),
    }
}

fn engine(
    values: &Values,
    models: &[Startup],
    repositories: Vec<ServedDirectory>,
    registrations: Option<&RegistrationsPlan>,
    env: &Env,
) -> Result<EnginePlan, Failure> {
    let model_store: Option<PathBuf> = values.read(&MODEL_STORE);
    if let Some(store) = model_store.as_ref().filter(|store| !store.is_dir()) {
        return Err(Failure::usage(format!(
            "--model-store directory not found: {}",
            store.display()
        )));
    }
    let needs_store = |model: &&Startup| model.is_remote() && !is_remote_folder(&model.url);
    if let Some(model) = models.iter().filter(|_| model_store.is_none()).find(needs_store) {
        return Err(Failure::usage(format!(
            "{}: no model store configured",
            ShownUrl::of(&model.url)
        ))
        .hint("name a directory for downloads with --model-store"));
    }
    let named = models.iter().map(|model| model.url.as_str());
    let named = named.chain(registrations.map(|list| list.source.as_str()));
    let settings = values.only(jitney_settings::model::SETTINGS);
    let devices = FoundDevices::find(env);
    let gpu_memory = devices.memory(values.value(&GPU_MEMORY), devices.count);
    let by_memory = gpu_memory.is_some();
    let is_served = |store: &PathBuf| repositories.iter().any(|served| served.path == *store);
    let store = model_store.clone().filter(|store| !is_served(store));
    Ok(EnginePlan {
        repository: RepositoryConfig {
            directories: repositories,
            store,
            settings: settings.clone(),
        },
        defaults: ModelDefaults {
            settings,
            workers_limit: values.read(&MAX_WORKERS_PER_MODEL),
            ..ModelDefaults::default()
        },
        model_store,
        workflow_store: None,
        limits: parts::admission_limits(values),
        memory: values.value(&MEMORY),
        gpu_memory,
        store_limits: parts::store_limits(values),
        urls: Arc::new(UrlRule::named(named)),
        python: PythonConfig {
            env: devices.in_order(Hidden::default().filter(env), by_memory),
            gpus: devices.count,
            gpu_nodes: devices.nodes(),
            ray: ray::read(values)?,
            ..parts::python(values, values.read(&PYTHON).unwrap_or_default())
        },
        first_worker_id: INITIAL_WORKER_PORT.default_value(),
    })
}

#[cfg(test)]
mod tests;
