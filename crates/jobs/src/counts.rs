//! How many jobs there are, and how many there were: for metrics and the overview.

use crate::webhook::WebhookOutcome;

/// Jobs by how far they are, and what became of jobs since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// They wait for their turn, or for another attempt.
    pub queued: usize,
    /// They are being answered.
    pub running: usize,
    /// Their answers are kept.
    pub succeeded: usize,
    /// The same of those that were answered with an error, or cancelled.
    pub failed: usize,
    /// What is kept of all of them.
    pub bytes: u64,
    /// When the oldest one came that waits, in milliseconds of Unix time.
    pub waiting_since: Option<u64>,
    /// What became of jobs since the server began.
    pub totals: JobTotals,
}

/// What became of jobs since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTotals {
    /// They were kept.
    pub submitted: u64,
    /// They were answered.
    pub succeeded: u64,
    /// They were answered with an error, or cancelled.
    pub failed: u64,
    /// Their answers were forgotten when their time was over.
    pub expired: u64,
    /// What became of webhooks.
    pub webhooks: WebhookTotals,
}

/// What became of webhooks since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookTotals {
    /// They were accepted.
    pub delivered: u64,
    /// Attempts after which there is another one.
    pub again: u64,
    /// They are not sent any more.
    pub failed: u64,
}

impl WebhookTotals {
    pub(crate) fn count(&mut self, outcome: WebhookOutcome) {
        *match outcome {
            WebhookOutcome::Delivered => &mut self.delivered,
            WebhookOutcome::Again(_) => &mut self.again,
            WebhookOutcome::Failed => &mut self.failed,
        } += 1;
    }
}
