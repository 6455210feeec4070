//! What a server tells about itself: metrics, traces, logs and the overview.
//!
//! Everything here is told or reads what models and connections count; nothing here decides anything. The
//! crate has no endpoint and picks no status: it makes the pages, lines and documents that others send. It
//! reads no file, flag or environment.

mod access_log;
mod audit;
mod export;
mod follow;
mod jobs_overview;
pub mod log_book;
mod log_line;
pub mod log_text;
pub mod metrics;
mod model_facts;
mod model_watch;
pub mod overview;
mod registrations;
mod spool;
pub mod trace;

pub use access_log::{AccessLog, AccessRecord, RecordNames};
pub use audit::{AuditLine, AuditLog, AuditOutcome, AuditRecord};
pub use export::{ExportQueue, ExportSender, export_queue};
pub use follow::{FollowError, LiveStream};
pub use jobs_overview::{JobsOverview, JobsReader};
pub use log_book::{LogBook, LogFilter};
pub use log_line::LogLine;
pub use metrics::{EngineObserver, Meter};
pub use model_facts::{
    ModelLink, called_models, counted, duration_millis, millis, own_latency, policy_times,
};
pub use model_watch::ModelWatch;
pub use overview::Overview;
pub use registrations::{
    ListedModel, ListedModelView, ListedState, Registrations, RegistrationsReport,
    RegistrationsView,
};
pub use spool::WriteTime;
