//! What is about to run, every source already resolved: `serve`, `demo` and `torchserve` each make a
//! [`Plan`], and [`crate::run`] carries any of them out. Past this line nobody asks where a value came
//! from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::PluginPlan;
use jitney_engine::settings::ModelDefaults;
use jitney_engine::store::Limits;
use jitney_server::ServerConfig;

use crate::logs::LogPlan;
use crate::metrics::MetricsPlan;
use crate::startup::Startup;
use crate::torchserve::snapshot::Snapshots;
use crate::url_rule::UrlRule;
use crate::worker_env::Hidden;

/// A server to be.
pub struct Plan {
    /// Which face it shows at start-up.
    pub face: Face,
    /// The doors; the access log and the meter are added when the log runs.
    pub server: ServerConfig,
    /// How long tokens live; without tokens anyone may come in.
    pub tokens: Option<Duration>,
    /// Whether every request leaves a line.
    pub access_log: bool,
    /// What the engine is made from.
    pub engine: EnginePlan,
    /// The operator's own processes, started before the doors are bound.
    pub plugins: Vec<PluginPlan>,
    /// Models to load before the doors open.
    pub models: Vec<Startup>,
    /// Threads of the data plane.
    pub io_threads: usize,
    /// How the server ends.
    pub drain: Drain,
    /// The log.
    pub logs: LogPlan,
    /// The metrics.
    pub metrics: MetricsPlan,
    /// Snapshots of the configuration, if they are kept.
    pub snapshots: Option<Snapshots>,
    /// Whether definitions are loaded again when their code changes.
    pub watch: bool,
    /// Whether the end of standard input ends the server, as a signal does.
    pub until_eof: bool,
    /// Sentences about the configuration, for the log.
    pub remarks: Vec<String>,
    /// Where the private scratch directory is made.
    pub temp_dir: PathBuf,
}

/// How the server introduces itself.
pub enum Face {
    /// Addresses and a line to paste.
    Jitney,
    /// The same, and it brings its own model.
    Demo,
    /// TorchServe's banner, whose text was prepared beside the configuration.
    TorchServe {
        /// The banner.
        banner: String,
    },
}

/// What the engine is made from, as far as flags and files decide it.
pub struct EnginePlan {
    /// What applies to every model.
    pub defaults: ModelDefaults,
    /// Where archives are found by name.
    pub model_store: Option<PathBuf>,
    /// Where workflows are found by name; without it where models are.
    pub workflow_store: Option<PathBuf>,
    /// How much may be downloaded and unpacked for one model.
    pub store_limits: Limits,
    /// Which URLs may be opened.
    pub urls: Arc<UrlRule>,
    /// The interpreter of Python workers.
    pub python: PathBuf,
    /// Variables that workers do not see.
    pub hidden: Hidden,
    /// Whether bodies are decoded for handlers.
    pub decode_input: bool,
    /// Whether PIL's limit on image sizes holds.
    pub limit_max_image_pixels: bool,
    /// A request envelope for every model.
    pub envelope: Option<String>,
    /// The id of the first worker.
    pub first_worker_id: u32,
    /// Whether a model's requirements are installed for it.
    pub install_requirements: bool,
    /// Bytes of one answer.
    pub response_bytes_max: Option<u64>,
    /// GPUs that workers are spread over.
    pub gpus: u32,
    /// What workers see beside the server's own variables.
    pub worker_env: Vec<(&'static str, String)>,
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long it keeps answering while readiness already says no.
    pub delay: Duration,
    /// How long admitted requests may take.
    pub timeout: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { delay: Duration::ZERO, timeout: Duration::from_secs(30) }
    }
}
