//! Whom to tell that a job has ended, and how far that is (ADR 0056). Who tells them, and how, is an affair of the server.

use serde::{Deserialize, Serialize};

/// How far a webhook is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookState {
    /// The job has not ended, or the next attempt is to come.
    #[default]
    Waiting,
    /// The receiver accepted it.
    Delivered,
    /// There will be no further attempt.
    Failed,
}

impl WebhookState {
    /// Each with its word.
    pub const WORDS: [(&'static str, Self); 3] =
        [("waiting", Self::Waiting), ("delivered", Self::Delivered), ("failed", Self::Failed)];

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, it)| *it == self).map_or("", |(word, _)| word)
    }
}

/// What a job's owner sees of its webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookView {
    /// How far it is.
    pub state: WebhookState,
    /// How often it was sent.
    pub attempts: u32,
}

/// A webhook as it is written down with its job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobWebhook {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) state: WebhookState,
    /// Attempts that were made.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// When the next one is due, in milliseconds of Unix time; the first one with the end of the job.
    #[serde(default)]
    pub(crate) due: u64,
}

impl JobWebhook {
    pub(crate) fn new(url: String) -> Self {
        Self { url, state: WebhookState::Waiting, attempts: 0, due: 0 }
    }

    pub(crate) fn view(&self) -> WebhookView {
        WebhookView { state: self.state, attempts: self.attempts }
    }

    /// The same after an attempt.
    pub(crate) fn after(&mut self, outcome: WebhookOutcome) {
        self.attempts += 1;
        (self.state, self.due) = (outcome.state(), outcome.due().unwrap_or_default());
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// The receiver accepted it.
    Delivered,
    /// It is sent again at this time, in milliseconds of Unix time.
    Again(u64),
    /// It is not sent again.
    Failed,
}

/// Who is told by the webhooks of a URL: all of a host and port count as one.
pub fn receiver(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or_default()
}

impl WebhookOutcome {
    /// How far the webhook is then.
    pub(crate) fn state(self) -> WebhookState {
        match self {
            Self::Delivered => WebhookState::Delivered,
            Self::Again(_) => WebhookState::Waiting,
            Self::Failed => WebhookState::Failed,
        }
    }

    /// When the next attempt is due, if there is one.
    pub(crate) fn due(self) -> Option<u64> {
        match self {
            Self::Again(at) => Some(at),
            Self::Delivered | Self::Failed => None,
        }
    }
}
