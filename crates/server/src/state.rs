//! What all requests of a server share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use jitney_engine::Engine;

use crate::config::ServerConfig;
use crate::inference::InferenceService;
use crate::respond::DefaultHeaders;

/// Shared by all listeners and connections of a server.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) engine: Arc<Engine>,
    pub(crate) inference: InferenceService,
    /// Connections so far.
    pub(crate) peers: AtomicU64,
    pub(crate) default_headers: DefaultHeaders,
    /// When it began, in seconds of Unix time.
    pub(crate) started: u64,
}

impl ServerState {
    pub(crate) fn new(config: ServerConfig, engine: Arc<Engine>) -> Self {
        let meter = Arc::clone(&config.meter);
        let inference = InferenceService::new(Arc::clone(&engine), meter, config.dialect);
        let default_headers = DefaultHeaders::new(&config.cors, config.content_types);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { config, engine, inference, peers: AtomicU64::new(1), default_headers, started }
    }
}
