//! `jitney serve` and `jitney demo`: from flags, variables and `jitney.yaml` to a [`Plan`].

mod archives;
mod explain;
mod file;
pub mod model;
pub mod options;
mod variables;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use jitney_engine::settings::ModelDefaults;
use jitney_server::{ServerConfig, Tls};

use crate::address::Address;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::{DemoFlags, ServeFlags};
use crate::logs::{LogPlan, Style};
use crate::metrics::MetricsPlan;
use crate::plan::{Drain, EnginePlan, Face, Plan};
use crate::startup::Startup;
use crate::url_rule::UrlRule;
use crate::worker_env::Hidden;
use crate::{gpu, key_file, machine, plugins, python, tls};
pub use explain::explain;
use options::{Network, Options, PerModel, Security};

/// Plans `jitney serve`.
pub fn plan(flags: ServeFlags, env: &Env) -> Result<Plan, Failure> {
    let variables = variables::read(env)?;
    let plugins = plugins::named(&flags.plugins, plugins::TIMEOUT)?;
    let file = flags.config.or_else(|| env.path("JITNEY_CONFIG"));
    let file = file.map(|path| file::read(&path)).transpose()?.unwrap_or_default();
    let above = flags.options.or(variables.options);
    let models = models(&flags.models, file.models, &above.per_model, &file.options.per_model)?;
    if models.is_empty() {
        return Err(nothing_to_serve());
    }
    let plan = assemble(Face::Jitney, above.or(file.options), models, variables.remarks, env)?;
    Ok(Plan { watch: flags.watch, until_eof: flags.until_eof, plugins, ..plan })
}

/// Plans `jitney demo`.
pub fn plan_demo(flags: DemoFlags, env: &Env) -> Result<Plan, Failure> {
    let variables = variables::read(env)?;
    let options = Options { network: flags.network, ..Options::default() }.or(variables.options);
    assemble(Face::Demo, options, Vec::new(), variables.remarks, env)
}

/// Plans one model without a server, for `jitney infer`: the same sources decide about it. Variables
/// that only a server knows are no news here.
pub fn plan_offline(model: Startup, options: Options, env: &Env) -> Result<Plan, Failure> {
    let options = options.or(variables::read(env)?.options);
    let per_model = options.per_model.clone().or(model.per_model);
    let model = Startup { per_model, ..model };
    assemble(Face::Jitney, options, vec![model], Vec::new(), env)
}

fn nothing_to_serve() -> Failure {
    Failure::usage("no model to serve")
        .hint("name an archive, a directory, an .onnx file or module:object, or try `jitney demo`")
}

/// The models of the command line, then those of the file. For each: what flags and variables say,
/// then its own entry, then what the file says about all models.
fn models(
    named: &[String],
    listed: Vec<file::Entry>,
    above: &PerModel,
    below: &PerModel,
) -> Result<Vec<Startup>, Failure> {
    let named = named.iter().map(|text| model::parse(text));
    let listed = listed.into_iter().map(model::from_entry);
    named
        .chain(listed)
        .map(|startup| {
            let mut startup = startup?;
            startup.per_model = above.clone().or(startup.per_model).or(below.clone());
            Ok(startup)
        })
        .collect()
}

fn assemble(
    face: Face,
    options: Options,
    models: Vec<Startup>,
    mut remarks: Vec<String>,
    env: &Env,
) -> Result<Plan, Failure> {
    let python = python::find(options.python.as_deref(), env);
    let needs_python = models.iter().any(|model| !model.url.ends_with(".onnx"));
    remarks.extend(python.remark.filter(|_| needs_python));
    Ok(Plan {
        face,
        server: server(&options, &mut remarks)?,
        tokens: options.security.token_auth.unwrap_or(false).then_some(key_file::LIFETIME),
        access_log: options.access_log.unwrap_or(false),
        engine: engine(&options, &models, python.interpreter, env)?,
        plugins: Vec::new(),
        models,
        io_threads: options.io_threads.unwrap_or_else(machine::io_threads).max(1),
        drain: drain(&options),
        logs: logs(options.log_level, env),
        metrics: MetricsPlan::default(),
        snapshots: None,
        watch: false,
        until_eof: false,
        remarks,
        temp_dir: env.temp_dir(),
    })
}

/// The management API may change models: it is what the user runs on the own machine. Opening it to
/// others is possible and remarked on.
fn server(options: &Options, remarks: &mut Vec<String>) -> Result<ServerConfig, Failure> {
    let network = options.network.clone();
    let Network { port, management_port, metrics_port, grpc_port, grpc_management_port, .. } =
        network;
    let host = network.host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let Security { token_auth, tls_cert, tls_key } = options.security.clone();
    let tls = certificate(tls_cert, tls_key)?;
    if !Address::tcp(&host, 0).is_local() && token_auth != Some(true) {
        remarks.push(format!("listening on {host} without a token: whoever reaches it may use it"));
    }
    let bind = |port: Option<u16>, default| {
        Address::tcp(&host, port.unwrap_or(default)).secured(tls.is_some()).bind()
    };
    let grpc = |port: Option<u16>, default: u16| bind(port, default).map(|bind| Some(bind.into()));
    let defaults = ServerConfig::default();
    Ok(ServerConfig {
        inference: bind(port, 8080)?,
        management: bind(management_port, 8081)?,
        metrics: Some(bind(metrics_port, 8082)?),
        grpc_inference: grpc(grpc_port, 7070)?,
        grpc_management: grpc(grpc_management_port, 7071)?,
        tls,
        max_request_bytes: options
            .max_request_size
            .map_or(defaults.max_request_bytes, |size| size.0),
        shutdown_grace: drain(options).timeout,
        model_api: true,
        oip: true,
        natural: true,
        ..defaults
    })
}

fn certificate(cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Tls>, Failure> {
    match (cert, key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => tls::read(&cert, &key).map(Some),
        (Some(_), None) => Err(Failure::usage("--tls-cert needs --tls-key")),
        (None, Some(_)) => Err(Failure::usage("--tls-key needs --tls-cert")),
    }
}

fn engine(
    options: &Options,
    models: &[Startup],
    python: PathBuf,
    env: &Env,
) -> Result<EnginePlan, Failure> {
    if let Some(store) = options.model_store.as_ref().filter(|store| !store.is_dir()) {
        return Err(Failure::usage(format!(
            "--model-store directory not found: {}",
            store.display()
        )));
    }
    if let Some(model) =
        models.iter().find(|model| options.model_store.is_none() && model.is_remote())
    {
        return Err(Failure::usage(format!("{}: nowhere to keep it", model.url))
            .hint("name a directory for downloads with --model-store"));
    }
    let named = models.iter().map(|model| model.url.clone()).collect();
    Ok(EnginePlan {
        defaults: defaults(&options.per_model),
        model_store: options.model_store.clone(),
        workflow_store: None,
        store_limits: options.archives.limits(),
        urls: Arc::new(UrlRule::Named(named)),
        python,
        hidden: Hidden::default(),
        decode_input: true,
        limit_max_image_pixels: true,
        envelope: None,
        first_worker_id: 9000,
        install_requirements: options.install_requirements.unwrap_or(false),
        response_bytes_max: None,
        gpus: gpu::count(env),
        worker_env: Vec::new(),
    })
}

/// What models that are registered later get.
fn defaults(per_model: &PerModel) -> ModelDefaults {
    let ours = ModelDefaults::default();
    ModelDefaults {
        workers: per_model.workers.unwrap_or(ours.workers),
        startup_workers: 1,
        response_timeout_s: per_model
            .response_timeout
            .map_or(ours.response_timeout_s, |t| t.whole()),
        startup_timeout_s: per_model.startup_timeout.map_or(ours.startup_timeout_s, |t| t.whole()),
        queue_max: per_model.queue.unwrap_or(ours.queue_max),
        policy: per_model.batching.policy.map(|policy| policy.0),
        ..ours
    }
}

fn drain(options: &Options) -> Drain {
    let defaults = Drain::default();
    Drain {
        delay: options.drain_delay.map_or(defaults.delay, |time| time.0),
        timeout: options.drain_timeout.map_or(defaults.timeout, |time| time.0),
    }
}

fn logs(level: Option<String>, env: &Env) -> LogPlan {
    let color = std::io::stderr().is_terminal() && !env.no_color();
    LogPlan { style: Style::Human { color }, filter: level.unwrap_or_else(|| "info".to_owned()) }
}

#[cfg(test)]
mod tests;
