//! One question to a plugin: the facts of a request in, its answer out, within the time.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{
    Answer, Call, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, Priority,
};
use jitney_engine::error::CallError;
use tokio::time::{Instant, timeout};

use super::Listener;
use crate::errors::ErrorCode;

/// Who wants something of the server, as plugins see it.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    /// The address as the access log writes it.
    pub(crate) client: &'a str,
    pub(crate) origin: Origin,
}

/// What a plugin is to do.
pub(super) struct Question<'a> {
    /// `describe`, `authorize` or `endpoint`.
    pub(super) ask: &'static str,
    pub(super) endpoint: Option<&'a str>,
    pub(super) listener: Listener,
    pub(super) body: Bytes,
}

/// Why a plugin gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It did not answer in time.
    Late,
    /// Its function raised, or answered nonsense.
    Failed,
    /// Its process is gone or has too much to do.
    Away,
}

impl Silence {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Late => "did not answer in time",
            Self::Failed => "failed; the server's log says why",
            Self::Away => "is not available",
        }
    }

    pub(super) fn code(self) -> ErrorCode {
        match self {
            Self::Late | Self::Away => ErrorCode::PluginAway,
            Self::Failed => ErrorCode::PluginFailed,
        }
    }
}

/// Asks, and waits no longer than `patience`, whether for the plugin's turn or for its answer.
pub(super) async fn ask(
    plugin: &Model,
    question: Question<'_>,
    asker: Asker<'_>,
    patience: Duration,
) -> Result<Answer, Silence> {
    let call = Call {
        deadline: Instant::now().checked_add(patience),
        priority: Priority::Interactive,
        claim: Claim::default(),
        origin: asker.origin,
        alone: false,
        input: input(question, asker),
    };
    match timeout(patience, plugin.call(call)).await {
        Err(_) => Err(Silence::Late),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(silence(&error)),
    }
}

fn silence(error: &CallError) -> Silence {
    match error {
        CallError::Rejected { reason: jitney_engine::Rejection::Expired, .. } => Silence::Late,
        CallError::Model(_) | CallError::BadInput(_) => Silence::Failed,
        CallError::Rejected { .. }
        | CallError::ServerFull { .. }
        | CallError::Sequence(_)
        | CallError::WorkerExited { .. }
        | CallError::SlowReader
        | CallError::Gone => Silence::Away,
    }
}

fn input(question: Question<'_>, asker: Asker<'_>) -> Input {
    let mut headers = HeaderBlock::new();
    for (name, value) in asker.headers {
        headers.push(name.as_str(), value.as_bytes());
    }
    let protocol = if asker.origin.kind == OriginKind::Grpc { "grpc" } else { "http" };
    let facts = serde_json::json!({
        "ask": question.ask,
        "endpoint": question.endpoint,
        "listener": question.listener,
        "method": asker.method.as_str(),
        "path": asker.path,
        "query_string": asker.query.unwrap_or(""),
        "client": asker.client.trim_start_matches('/'),
        "protocol": protocol,
    });
    let parameter = |name: &'static str, value| Parameter {
        name: name.into(),
        content_type: "application/octet-stream".into(),
        value,
    };
    let parameters =
        vec![parameter("ask", Bytes::from(facts.to_string())), parameter("body", question.body)];
    Input { id: asker.id.to_owned(), headers, parameters }
}
