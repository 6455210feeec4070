//! Where the overview is read from.

use std::sync::Arc;
use std::time::SystemTime;

use jitney_engine::Engine;
use jitney_settings::Dialect;

use crate::log_book::LogBook;
use crate::metrics::Meter;
use crate::registrations::Registrations;

/// The parts of a server that know how it is, and what never changes about it.
pub struct OverviewSources {
    /// The models.
    pub engine: Arc<Engine>,
    /// The machine.
    pub meter: Arc<Meter>,
    /// Whose rules it follows.
    pub dialect: Dialect,
    /// When it began.
    pub started: SystemTime,
    /// Whether clients need a token.
    pub token_needed: bool,
    /// Whether models can be registered and removed.
    pub model_api: bool,
    /// The shared list of models.
    pub registrations: Arc<Registrations>,
    /// Knows what is logged.
    pub log_book: Option<Arc<LogBook>>,
}
