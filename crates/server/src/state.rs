//! What all requests of a server share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use jitney_engine::Engine;
use jitney_jobs::Jobs;
use jitney_net::connection::Peer;
use jitney_net::http::HttpRules;
use jitney_settings::Dialect;
use jitney_telemetry::trace::Tracer;
use jitney_telemetry::{AccessLog, AuditLog, LogBook, Meter, Overview, Registrations};
use tokio::time::Instant;

use crate::auth::{Gate, GuardedOperation, Tokens};
use crate::config::{Cors, ServerConfig};
use crate::errors::Problem;
use crate::inference::InferenceService;
use crate::keys::{Caller, NamedKeys};
use crate::plugins::Plugins;
use crate::respond;
use crate::shared_memory::{SharedMemory, SharedReader};
use crate::webhook_sender::WebhookSender;

/// The living parts of a server that others made, and share with it.
#[derive(Clone, Default)]
pub struct ServerParts {
    /// What is measured, shared with the engine.
    pub meter: Arc<Meter>,
    /// What traces requests, if anything does.
    pub tracer: Option<Arc<Tracer>>,
    /// The tokens that requests must bring; without them and without keys any request is admitted.
    pub tokens: Option<Arc<Tokens>>,
    /// The keys with names, if there are any. A request that brings one needs no token.
    pub keys: Option<Arc<NamedKeys>>,
    /// The operator's plugins, if there are any.
    pub plugins: Option<Arc<Plugins>>,
    /// Where one line per request goes, if anywhere.
    pub access_log: Option<Arc<AccessLog>>,
    /// Where changes and refused attempts are noted, if anywhere.
    pub audit: Option<Arc<AuditLog>>,
    /// The last lines of the log and what is logged, where management may see and change it.
    pub log_book: Option<Arc<LogBook>>,
    /// What became of the shared list of models, if there is one.
    pub registrations: Arc<Registrations>,
    /// Whether there is memory for what a path holds, asked before clients register it.
    pub room: Option<Arc<dyn ModelRoom>>,
    /// What tells others of jobs that have ended, where that is allowed.
    pub webhooks: Option<Arc<dyn WebhookSender>>,
}

/// Whether there is memory for models that clients load and unload.
pub trait ModelRoom: Send + Sync {
    /// What is missing for what a path holds, if anything is. It reads files.
    fn shortage(&self, path: &str) -> Option<RoomShortage>;

    /// What the workers of this path's model held before it was unloaded, in bytes.
    fn note(&self, path: &str, bytes: u64);
}

/// Why there is no memory for a model, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomShortage {
    /// What the model will take.
    pub needed: u64,
    /// What is free.
    pub free: u64,
    /// What has to stay free.
    pub kept: u64,
}

impl ServerParts {
    /// Who sends a request with these headers.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap, now: Instant) -> Caller {
        match &self.keys {
            None => Caller::ANYBODY,
            Some(keys) => keys.caller(peer, headers, now),
        }
    }

    /// Lets a caller through a gate: with a key whose scopes allow what it is about to do, or with a token.
    ///
    /// # Errors
    /// It has neither.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        gate: Gate,
        (operation, model): (GuardedOperation, Option<&str>),
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        if gate == Gate::Open {
            return Ok(());
        }
        match (&self.keys, &self.tokens) {
            (Some(_), _) if caller.name().is_some() => caller.check(gate, operation, model),
            (Some(_), None) => Err(Problem::unknown_key()),
            (Some(_), Some(_)) if gate == Gate::Metrics => Err(Problem::unknown_key()),
            (_, Some(tokens)) => {
                tokens.admit(gate, headers.get(AUTHORIZATION).map(HeaderValue::as_bytes))
            }
            (None, None) => Ok(()),
        }
    }
}

/// Shared by all listeners and connections of a server.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) parts: ServerParts,
    pub(crate) engine: Arc<Engine>,
    pub(crate) inference: InferenceService,
    /// Connections so far.
    pub(crate) peers: Arc<AtomicU64>,
    /// What holds for every HTTP request and answer.
    pub(crate) http: HttpRules,
    /// The memory that clients share, where that is allowed.
    pub(crate) shared_memory: Option<SharedMemory>,
    /// What the dashboard shows.
    pub(crate) overview: Arc<Overview>,
    /// The requests that are answered later.
    pub(crate) jobs: Arc<Jobs>,
    /// When it began, in seconds of Unix time.
    pub(crate) started: u64,
}

impl ServerState {
    pub(crate) fn new(
        config: ServerConfig,
        parts: ServerParts,
        engine: Arc<Engine>,
        overview: Arc<Overview>,
        jobs: Arc<Jobs>,
    ) -> Self {
        let meter = Arc::clone(&parts.meter);
        let inference =
            InferenceService::new(Arc::clone(&engine), meter, config.dialect, config.full_status);
        let cors = match config.dialect {
            Dialect::TorchServe => config.cors.clone(),
            // `rest::cors` looks at who asks.
            Dialect::Jitney => Cors::default(),
        };
        let http = HttpRules {
            headers: respond::default_headers(&cors, config.content_types),
            decompress: config.decompress_requests,
            patience: config.head_timeout,
        };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let shared_memory = config.client_shared_memory.then(SharedMemory::new);
        let peers = Arc::new(AtomicU64::new(1));
        Self {
            config,
            parts,
            engine,
            inference,
            peers,
            http,
            shared_memory,
            overview,
            jobs,
            started,
        }
    }

    /// What reads the tensors of one request from shared memory.
    pub(crate) fn shared_reader(&self) -> SharedReader<'_> {
        let (memory, limit) = (self.shared_memory.as_ref(), self.config.max_request_bytes);
        SharedReader::new(memory, self.engine.admission(), limit)
    }
}
