//! The jobs of a server: requests that are answered later.

use serde::{Deserialize, Serialize};

/// Jobs by how far they are, and what became of jobs since the server began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct JobsOverview {
    /// They wait for their turn.
    pub queued: u64,
    /// They are being answered.
    pub running: u64,
    /// Their answers are kept.
    pub succeeded: u64,
    /// The same of those that were answered with an error, or cancelled.
    pub failed: u64,
    /// What is kept of all of them.
    pub bytes: u64,
    /// How long the oldest one has waited; null if none waits.
    pub oldest_seconds: Option<f64>,
    /// Kept since the server began.
    pub submitted_total: u64,
    /// Answered since then.
    pub succeeded_total: u64,
    /// Answered with an error, or cancelled, since then.
    pub failed_total: u64,
    /// Answers that were forgotten because their time was over.
    pub expired_total: u64,
    /// Webhooks that were delivered since the server began.
    pub webhooks_delivered_total: u64,
    /// Attempts to send a webhook after which there is another one.
    pub webhooks_again_total: u64,
    /// Webhooks that are not sent any more.
    pub webhooks_failed_total: u64,
}

/// Tells of the jobs; nothing before the first one.
pub type JobsReader = Box<dyn Fn() -> Option<JobsOverview> + Send + Sync>;
