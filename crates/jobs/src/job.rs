//! What is known of a job beside its request and its answer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::JobError;
use crate::webhook::JobWebhook;

/// A job's name: 128 bits of the system's own randomness, so that nobody guesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(u128);

impl JobId {
    /// One that nobody knows yet.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn fresh() -> Result<Self, JobError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| JobError::Random(error.to_string()))?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    #[cfg(test)]
    pub(crate) fn of(number: u128) -> Self {
        Self(number)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl FromStr for JobId {
    type Err = JobError;

    fn from_str(text: &str) -> Result<Self, JobError> {
        let digits =
            text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or(JobError::Unknown)
    }
}

impl TryFrom<String> for JobId {
    type Error = JobError;

    fn try_from(text: String) -> Result<Self, JobError> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

/// Who made a job: only they see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobOwner {
    /// The name of the key; none where keys have no names.
    pub key: Option<String>,
    /// The tenant that the operator's plugin named.
    pub tenant: Option<String>,
}

/// By what a client finds the job again that it may have made before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// What the client sent.
    pub text: String,
    /// SHA-256 of the request that came with it.
    pub request: String,
}

impl IdempotencyKey {
    /// The key of a request that consists of these parts.
    pub fn new(text: &str, parts: &[&[u8]]) -> Self {
        let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
        for part in parts {
            sum.update(&(part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        let sum = sum.finish();
        let request = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text: text.to_owned(), request }
    }
}

/// A job as it is written down. Times are milliseconds of Unix time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) id: JobId,
    pub(crate) owner: JobOwner,
    pub(crate) model: String,
    pub(crate) created: u64,
    /// What is kept of it: the request, later the answer.
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency: Option<IdempotencyKey>,
    /// Whether its request is kept beside its answer, so that it can be made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) again: bool,
    /// Whether its owner ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cancelled: bool,
    /// When it was answered, and with which status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<(u64, u16)>,
    /// Whom to tell of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<JobWebhook>,
}
