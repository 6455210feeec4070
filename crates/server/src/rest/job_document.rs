//! What the owner of a job is told of it, and the clock that its times are of.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitney_jobs::{JobId, JobState, JobView, WebhookView};
use serde::Serialize;

/// A job as its owner sees it.
#[derive(Serialize)]
pub(super) struct JobDocument {
    id: JobId,
    state: &'static str,
    model: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// Of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<WebhookDocument>,
}

/// How far the webhook of a job is.
#[derive(Serialize)]
struct WebhookDocument {
    state: &'static str,
    attempts: u32,
}

impl JobDocument {
    pub(super) fn of(view: &JobView) -> Self {
        Self {
            id: view.id,
            state: word(view.state),
            model: view.model.clone(),
            created: shown(view.created),
            ended: view.ended.map(|(at, _)| shown(at)),
            status: view.ended.map(|(_, status)| status),
            expires: view.expires.map(shown),
            attempts: view.attempts,
            result: view.state.is_ended().then(|| format!("/jobs/{}/result", view.id)),
            webhook: view.webhook.map(|WebhookView { state, attempts }| WebhookDocument {
                state: state.word(),
                attempts,
            }),
        }
    }
}

/// Milliseconds of Unix time.
pub(super) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time for who reads it.
pub(super) fn shown(millis: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

/// The word of a state.
pub(super) fn word(state: JobState) -> &'static str {
    JobState::WORDS.iter().find(|(_, it)| *it == state).map_or("", |(word, _)| word)
}
