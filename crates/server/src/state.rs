//! What all requests of a server share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use jitney_engine::Engine;
use jitney_telemetry::overview::Overview;

use crate::config::ServerConfig;
use crate::inference::InferenceService;
use crate::respond::DefaultHeaders;
use crate::shared_memory::{SharedMemory, SharedReader};

/// Shared by all listeners and connections of a server.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) engine: Arc<Engine>,
    pub(crate) inference: InferenceService,
    /// Connections so far.
    pub(crate) peers: Arc<AtomicU64>,
    pub(crate) default_headers: DefaultHeaders,
    /// The memory that clients share, where that is allowed.
    pub(crate) shared_memory: Option<SharedMemory>,
    /// What the dashboard shows.
    pub(crate) overview: Arc<Overview>,
    /// When it began, in seconds of Unix time.
    pub(crate) started: u64,
}

impl ServerState {
    pub(crate) fn new(config: ServerConfig, engine: Arc<Engine>, overview: Arc<Overview>) -> Self {
        let meter = Arc::clone(&config.meter);
        let inference = InferenceService::new(Arc::clone(&engine), meter, config.dialect);
        let default_headers = DefaultHeaders::new(&config.cors, config.content_types);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let shared_memory = config.client_shared_memory.then(SharedMemory::new);
        let peers = Arc::new(AtomicU64::new(1));
        Self { config, engine, inference, peers, default_headers, shared_memory, overview, started }
    }

    /// What reads the tensors of one request from shared memory.
    pub(crate) fn shared_reader(&self) -> SharedReader<'_> {
        let (memory, limit) = (self.shared_memory.as_ref(), self.config.max_request_bytes);
        SharedReader::new(memory, self.engine.admission(), limit)
    }
}
