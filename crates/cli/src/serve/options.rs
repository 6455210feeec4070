//! The options of `jitney serve`, defined once: each field is a flag, a `JITNEY_*` variable and a key
//! of `jitney.yaml`. A source fills in what it knows; [`Options::or`] lays one over another.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::archives::Archives;
use crate::units::{Millis, Seconds, Size, scalar};

/// Where to listen.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Network {
    /// Address to listen on; anything but loopback opens the server to the network, see --token-auth
    /// [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Port for predictions; 0 takes a free one [default: 8080]
    #[arg(long)]
    pub port: Option<u16>,
    /// Port for management: register, scale, describe [default: 8081]
    #[arg(long, value_name = "PORT")]
    pub management_port: Option<u16>,
    /// Port for metrics [default: 8082]
    #[arg(long, value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// Port for predictions over gRPC [default: 7070]
    #[arg(long, value_name = "PORT")]
    pub grpc_port: Option<u16>,
    /// Port for management over gRPC [default: 7071]
    #[arg(long, value_name = "PORT")]
    pub grpc_management_port: Option<u16>,
}

/// Who may come in, and how the way is protected.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Security {
    /// Ask clients for a token; the keys are written to key_file.json in the current directory
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub token_auth: Option<bool>,
    /// Speak HTTPS with this certificate, PEM, with its chain if it has one
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

/// Most items in a batch where batching is enabled and no size is given: BentoML's default.
const BATCH_SIZE_ENABLED: u32 = 100;

/// When the batches of a model leave.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batching {
    /// Said in a file only: `false` is no batching whatever the size, `true` is batching without one.
    #[arg(skip)]
    pub enabled: Option<bool>,
    /// Most items in a batch; 1 means no batching [default: what the archive says, else 1]
    #[arg(long = "batch-size", visible_alias = "max-batch-size", value_name = "N")]
    #[serde(alias = "batch_size")]
    pub max_batch_size: Option<u32>,
    /// Latency to keep, such as 50 or 50ms; batches grow only as far as it allows
    #[arg(long, value_name = "TIME")]
    pub max_latency_ms: Option<Millis>,
    /// TorchServe's window: a batch leaves when full or when its oldest request has waited so long
    #[arg(long = "max-batch-delay-ms", visible_alias = "max-batch-delay", value_name = "TIME")]
    #[serde(alias = "max_batch_delay_ms")]
    pub max_batch_delay: Option<Millis>,
    /// When batches leave: adaptive, window or opportunistic [default: window if a delay is given,
    /// else adaptive]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<Policy>,
    /// Said in a file only: weights of tenants, by the names that requests give.
    #[arg(skip)]
    pub tenants: Option<BTreeMap<String, u32>>,
    /// Said in a file only: what an item weighs.
    #[arg(skip)]
    pub cost: Option<Cost>,
    /// Said in a file only: most cost in a batch.
    #[arg(skip)]
    pub max_cost: Option<u64>,
}

/// A policy by the name users type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy(pub jitney_engine::settings::PolicyName);

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer)
    }
}

/// A cost by the name users type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost(pub jitney_engine::shares::Cost);

impl std::str::FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer)
    }
}

/// What can be said about one model or about all of them.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct PerModel {
    /// Workers of each model: processes for Python, threads for ONNX [default: what the archive
    /// says, else 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Batching.
    #[command(flatten)]
    pub batching: Batching,
    /// Requests of a model that may wait; more are refused with 503 [default: 100]
    #[arg(long, value_name = "N")]
    pub queue: Option<u32>,
    /// Time a batch may run before its worker is replaced, such as 120 or 2m [default: 120s]
    #[arg(long, value_name = "TIME")]
    pub response_timeout: Option<Seconds>,
    /// Time a worker may take to load its model [default: 120s]
    #[arg(long, value_name = "TIME")]
    pub startup_timeout: Option<Seconds>,
}

/// Everything a source may say.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Options {
    /// Where to listen.
    #[command(flatten)]
    pub network: Network,
    /// Who may come in.
    #[command(flatten)]
    pub security: Security,
    /// About every model.
    #[command(flatten)]
    pub per_model: PerModel,
    /// Directory in which the management API finds archives by file name
    #[arg(long, value_name = "DIR")]
    pub model_store: Option<PathBuf>,
    /// Largest request body, such as 64MiB [default: 6553500]
    #[arg(long, value_name = "SIZE")]
    pub max_request_size: Option<Size>,
    /// How large a model may be.
    #[command(flatten)]
    pub archives: Archives,
    /// Threads that serve connections [default: a quarter of the processors]
    #[arg(long, value_name = "N")]
    pub io_threads: Option<usize>,
    /// Python for Python models [default: the one beside this program, of the active virtual
    /// environment, or python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Install what a model's requirements file asks for, for that model alone
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub install_requirements: Option<bool>,
    /// What to log: error, warn, info, debug, trace, or per part as in info,jitney_engine=debug
    /// [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Write a line per request to stderr
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub access_log: Option<bool>,
    /// On SIGTERM, time between readiness falling and the ports closing, for load balancers to
    /// notice [default: 0s]
    #[arg(long, value_name = "TIME")]
    pub drain_delay: Option<Seconds>,
    /// On SIGTERM, time for admitted requests to be answered [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<Seconds>,
}

impl Network {
    /// These, and where they are silent the others.
    pub fn or(self, lower: Self) -> Self {
        Self {
            host: self.host.or(lower.host),
            port: self.port.or(lower.port),
            management_port: self.management_port.or(lower.management_port),
            metrics_port: self.metrics_port.or(lower.metrics_port),
            grpc_port: self.grpc_port.or(lower.grpc_port),
            grpc_management_port: self.grpc_management_port.or(lower.grpc_management_port),
        }
    }
}

impl Security {
    /// These, and where they are silent the others.
    pub fn or(self, lower: Self) -> Self {
        Self {
            token_auth: self.token_auth.or(lower.token_auth),
            tls_cert: self.tls_cert.or(lower.tls_cert),
            tls_key: self.tls_key.or(lower.tls_key),
        }
    }
}

impl Batching {
    /// With what `enabled` means for the size.
    pub fn settled(mut self) -> Self {
        self.max_batch_size = match (self.enabled, self.max_batch_size) {
            (Some(false), _) => Some(1),
            (Some(true), None) => Some(BATCH_SIZE_ENABLED),
            (_, size) => size,
        };
        self
    }

    /// These, and where they are silent the others.
    pub fn or(self, lower: Self) -> Self {
        Self {
            enabled: self.enabled.or(lower.enabled),
            max_batch_size: self.max_batch_size.or(lower.max_batch_size),
            max_latency_ms: self.max_latency_ms.or(lower.max_latency_ms),
            max_batch_delay: self.max_batch_delay.or(lower.max_batch_delay),
            policy: self.policy.or(lower.policy),
            tenants: self.tenants.or(lower.tenants),
            cost: self.cost.or(lower.cost),
            max_cost: self.max_cost.or(lower.max_cost),
        }
    }
}

impl PerModel {
    /// These, and where they are silent the others.
    pub fn or(self, lower: Self) -> Self {
        Self {
            workers: self.workers.or(lower.workers),
            batching: self.batching.or(lower.batching),
            queue: self.queue.or(lower.queue),
            response_timeout: self.response_timeout.or(lower.response_timeout),
            startup_timeout: self.startup_timeout.or(lower.startup_timeout),
        }
    }
}

impl Options {
    /// These, and where they are silent the others.
    pub fn or(self, lower: Self) -> Self {
        Self {
            network: self.network.or(lower.network),
            security: self.security.or(lower.security),
            per_model: self.per_model.or(lower.per_model),
            model_store: self.model_store.or(lower.model_store),
            max_request_size: self.max_request_size.or(lower.max_request_size),
            archives: self.archives.or(lower.archives),
            io_threads: self.io_threads.or(lower.io_threads),
            python: self.python.or(lower.python),
            install_requirements: self.install_requirements.or(lower.install_requirements),
            log_level: self.log_level.or(lower.log_level),
            access_log: self.access_log.or(lower.access_log),
            drain_delay: self.drain_delay.or(lower.drain_delay),
            drain_timeout: self.drain_timeout.or(lower.drain_timeout),
        }
    }
}
