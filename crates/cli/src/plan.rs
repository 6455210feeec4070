//! A server that is ready to be started: `serve`, `demo` and `torchserve` each make a [`ServerPlan`] from
//! flags, files and environment, and [`crate::run`] runs it. A plan does not know where a value came
//! from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::admission::AdmissionLimits;
use jitney_engine::python::PythonConfig;
use jitney_engine::settings::{EndpointOptions, ModelDefaults, RegisterOptions};
use jitney_engine::store::{Limits, Sha256, ShownUrl, is_remote};
use jitney_engine::{GpuMemoryConfig, PluginPlan, RepositoryConfig};
use jitney_net::Networks;
use jitney_server::ServerConfig;
use jitney_settings::Values;
use jitney_telemetry::metrics::MeterPlan;

use crate::logs::LogPlan;
use crate::snapshot::Snapshots;
use crate::tls::FollowedTls;
use crate::traces::TracePlan;
use crate::url_rule::UrlRule;
use crate::webhooks::WebhookClient;

/// Where the keys with names are.
pub struct KeysPlan {
    /// `keys.yaml`.
    pub file: PathBuf,
    /// Whose claims about tenants count beside them.
    pub proxies: Networks,
}

/// A server that is ready to be started.
pub struct ServerPlan {
    /// Which command started it.
    pub kind: ServerKind,
    /// The listeners and protocols; access log and meter are added when the log has started.
    pub server: ServerConfig,
    /// The certificate of the listeners that speak TLS, where it is a file that may change.
    pub tls: Option<FollowedTls>,
    /// How long tokens are valid; `None` if no token is needed.
    pub tokens: Option<Duration>,
    /// Where the keys are that the operator gives; without it they are made.
    pub key_file: Option<PathBuf>,
    /// The keys with names, if there are any.
    pub keys: Option<KeysPlan>,
    /// What sends webhooks, where URLs are named that may be told.
    pub webhooks: Option<Arc<WebhookClient>>,
    /// Whether every request is logged.
    pub access_log: bool,
    /// Where changes and refused attempts are written, if anywhere.
    pub audit_log: Option<PathBuf>,
    /// The engine.
    pub engine: EnginePlan,
    /// The operator's plugins, started before the ports are bound.
    pub plugins: Vec<PluginPlan>,
    /// Models to load before the ports open.
    pub models: Vec<Startup>,
    /// Threads of the data plane.
    pub io_threads: usize,
    /// How the server ends.
    pub drain: Drain,
    /// How the ports come from the server before and go to the next one, if they do.
    pub handover: Option<HandoverPlan>,
    /// The log.
    pub logs: LogPlan,
    /// The metrics; their log is opened when the server starts.
    pub metrics: MeterPlan,
    /// Where traces of requests are sent, if anywhere.
    pub traces: Option<TracePlan>,
    /// How often the machine is sampled, if at all.
    pub sample_every: Option<Duration>,
    /// Snapshots of the configuration, if they are kept.
    pub snapshots: Option<Snapshots>,
    /// Where shares of versions are kept that a configuration does not say, if they are.
    pub traffic_file: Option<PathBuf>,
    /// How often the served repositories are looked into, if at all.
    pub poll: Option<Duration>,
    /// The shared list that models come from, if there is one.
    pub registrations: Option<RegistrationsPlan>,
    /// Whether definitions are loaded again when their code changes.
    pub watch: bool,
    /// Whether the end of standard input ends the server, as a signal does.
    pub until_eof: bool,
    /// The platform that the server runs on and what follows, for the log.
    pub platform: Option<String>,
    /// Remarks about the configuration, for the log.
    pub remarks: Vec<String>,
    /// Where the private scratch directory is made.
    pub temp_dir: PathBuf,
}

/// Which command started a server, and so what it prints.
pub enum ServerKind {
    /// `jitney serve`: addresses and an example request.
    Serve,
    /// `jitney demo`: the same, with an embedded model.
    Demo,
    /// `jitney torchserve`: TorchServe's banner and log lines.
    TorchServe {
        /// The text of the banner.
        banner: String,
    },
}

/// The engine, as flags and files configure it.
pub struct EnginePlan {
    /// Defaults of every model.
    pub defaults: ModelDefaults,
    /// Where archives are found by name.
    pub model_store: Option<PathBuf>,
    /// Where workflows are found by name; by default where models are.
    pub workflow_store: Option<PathBuf>,
    /// Where models are loaded from by their names.
    pub repository: RepositoryConfig,
    /// How much may be under way, and how slow clients may be.
    pub limits: AdmissionLimits,
    /// Bytes of memory for models.
    pub memory: u64,
    /// How workers are placed by the memory of GPUs, where they are.
    pub gpu_memory: Option<GpuMemoryConfig>,
    /// How much may be downloaded and unpacked for one model.
    pub store_limits: Limits,
    /// Which URLs may be opened.
    pub urls: Arc<UrlRule>,
    /// The Python workers.
    pub python: PythonConfig,
    /// The id of the first worker.
    pub first_worker_id: u32,
}

/// A list of models that several servers share.
#[derive(Clone, Debug)]
pub struct RegistrationsPlan {
    /// A file, a directory or a URL.
    pub source: String,
    /// How often it is read.
    pub every: Duration,
    /// Settings of models that win over those of the list: flags and variables.
    pub above: Values,
    /// Settings of models that the list wins over: those of the configuration.
    pub below: Values,
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long it keeps answering after it has stopped being ready.
    pub delay: Duration,
    /// How long admitted requests may take.
    pub timeout: Duration,
}

/// How the ports go from one server to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverPlan {
    /// The Unix socket at which servers meet.
    pub path: PathBuf,
    /// Whether there must be memory for the workers of both.
    pub check_memory: bool,
}

/// What to load, and the settings that flags, variables and files give it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Startup {
    /// The name to serve it under; without one the archive's own.
    pub name: Option<String>,
    /// File of the store, path or URL.
    pub url: String,
    /// `module:object`, if it is a definition in Python; then the url only repeats it.
    pub definition: Option<String>,
    /// The version to serve it as.
    pub version: Option<String>,
    /// The handler, if not the archive's own.
    pub handler: Option<String>,
    /// The runtime, if not the archive's own.
    pub runtime: Option<String>,
    /// Settings given from outside the archive.
    pub settings: Values,
    /// Whether it is restored from a snapshot.
    pub restored: bool,
    /// The sum its file must have.
    pub sha256: Option<Sha256>,
    /// What single endpoints of a definition take.
    pub endpoints: BTreeMap<String, EndpointOptions>,
    /// Settings of the parts of an application, by their names.
    pub parts: BTreeMap<String, Values>,
    /// Whether this version answers when none is named; else the first one loaded does.
    pub default: bool,
}

impl Startup {
    /// A model under the archive's name.
    pub fn unnamed(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// A model under a name of its own.
    pub fn named(name: &str, url: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::unnamed(url) }
    }

    /// What to load, as it may be shown.
    pub fn shown(&self) -> ShownUrl {
        ShownUrl::of(&self.url)
    }

    /// Whether it has to be fetched from another machine.
    pub fn is_remote(&self) -> bool {
        is_remote(&self.url)
    }

    /// What the engine is given.
    pub fn options(&self) -> RegisterOptions {
        RegisterOptions {
            url: self.url.clone(),
            model_name: self.name.clone(),
            version: self.version.clone(),
            handler: self.handler.clone(),
            runtime: self.runtime.clone(),
            settings: self.settings.clone(),
            endpoints: self.endpoints.clone(),
            at_startup: true,
            restored: self.restored,
            sha256: self.sha256,
            ..RegisterOptions::default()
        }
    }
}
