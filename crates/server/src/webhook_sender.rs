//! What sends webhooks: a part that the program brings along, since this crate opens no connections of its own.

use std::pin::Pin;

use bytes::Bytes;

/// A message that tells of a job.
pub struct WebhookMessage {
    /// What the receiver knows it by: the same in every attempt.
    pub id: String,
    /// JSON.
    pub body: Bytes,
}

/// Why a message was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookFailure {
    /// Why, for the log.
    pub why: String,
    /// Whether another attempt may help.
    pub again: bool,
}

/// Why no message may be sent to a URL.
#[derive(Debug, PartialEq, Eq)]
pub enum WebhookRejection {
    /// It is no URL of a receiver.
    Unreadable(String),
    /// The operator does not allow it.
    NotAllowed(String),
}

/// A message under way.
pub type WebhookSending<'a> = Pin<Box<dyn Future<Output = Result<(), WebhookFailure>> + Send + 'a>>;

/// Sends messages, and knows to which addresses it may.
pub trait WebhookSender: Send + Sync {
    /// The URL as it is written down.
    ///
    /// # Errors
    /// Nothing may be sent there.
    fn check(&self, url: &str) -> Result<String, WebhookRejection>;

    /// Sends a message once.
    fn send<'a>(&'a self, url: &'a str, message: WebhookMessage) -> WebhookSending<'a>;
}
