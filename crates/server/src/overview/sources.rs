//! Where the overview is read from.

use std::sync::Arc;
use std::time::SystemTime;

use jitney_engine::Engine;

use crate::config::ServerConfig;
use crate::dialect::Dialect;
use crate::log_book::LogBook;
use crate::metrics::Meter;

/// The parts of a server that know how it is, and what never changes about it.
pub(super) struct OverviewSources {
    pub(super) engine: Arc<Engine>,
    pub(super) meter: Arc<Meter>,
    pub(super) dialect: Dialect,
    pub(super) started: SystemTime,
    pub(super) token_needed: bool,
    pub(super) model_api: bool,
    /// Knows what is logged.
    pub(super) log_book: Option<Arc<LogBook>>,
}

impl OverviewSources {
    pub(super) fn new(config: &ServerConfig, engine: Arc<Engine>) -> Self {
        Self {
            engine,
            meter: Arc::clone(&config.meter),
            dialect: config.dialect,
            started: SystemTime::now(),
            token_needed: config.tokens.is_some(),
            model_api: config.model_api,
            log_book: config.log_book.clone(),
        }
    }
}
