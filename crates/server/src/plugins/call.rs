//! One call to a plugin: the facts of a request in, its answer out, within the time.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{
    Answer, Call, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, Priority,
};
use jitney_engine::error::CallError;
use tokio::time::Instant;

use super::ApiKind;
use crate::errors::ErrorCode;

/// Who wants something of the server, as plugins see it.
#[derive(Clone, Copy)]
pub(crate) struct PluginRequest<'a> {
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
pub(super) struct PluginCall<'a> {
    /// `describe`, `authorize` or `endpoint`.
    pub(super) ask: &'static str,
    pub(super) endpoint: Option<&'a str>,
    pub(super) listener: ApiKind,
    pub(super) body: Bytes,
}

/// Why a plugin gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PluginFailure {
    /// It did not answer in time.
    Late,
    /// Its function raised, or answered nonsense.
    Failed,
    /// Its process is gone or has too much to do.
    Away,
}

impl PluginFailure {
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

/// Asks, and waits no longer than `timeout`, whether for the plugin's turn or for its answer.
pub(super) async fn ask(
    plugin: &Model,
    call: PluginCall<'_>,
    request: PluginRequest<'_>,
    timeout: Duration,
) -> Result<Answer, PluginFailure> {
    let call = Call {
        deadline: Instant::now().checked_add(timeout),
        priority: Priority::Interactive,
        claim: Claim::default(),
        origin: request.origin,
        alone: false,
        input: input(call, request),
    };
    match tokio::time::timeout(timeout, plugin.call(call)).await {
        Err(_) => Err(PluginFailure::Late),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure(&error)),
    }
}

fn failure(error: &CallError) -> PluginFailure {
    match error {
        CallError::Rejected { reason: jitney_engine::Rejection::Expired, .. } => {
            PluginFailure::Late
        }
        CallError::Model(_) | CallError::BadInput(_) => PluginFailure::Failed,
        CallError::Rejected { .. }
        | CallError::ServerFull { .. }
        | CallError::Sequence(_)
        | CallError::WorkerExited { .. }
        | CallError::SlowReader
        | CallError::Gone => PluginFailure::Away,
    }
}

fn input(call: PluginCall<'_>, request: PluginRequest<'_>) -> Input {
    let mut headers = HeaderBlock::new();
    for (name, value) in request.headers {
        headers.push(name.as_str(), value.as_bytes());
    }
    let protocol = if request.origin.kind == OriginKind::Grpc { "grpc" } else { "http" };
    let facts = serde_json::json!({
        "ask": call.ask,
        "endpoint": call.endpoint,
        "listener": call.listener,
        "method": request.method.as_str(),
        "path": request.path,
        "query_string": request.query.unwrap_or(""),
        "client": request.client.trim_start_matches('/'),
        "protocol": protocol,
    });
    let parameter = |name: &'static str, value| Parameter {
        name: name.into(),
        content_type: "application/octet-stream".into(),
        value,
    };
    let parameters =
        vec![parameter("ask", Bytes::from(facts.to_string())), parameter("body", call.body)];
    Input { id: request.id.to_owned(), headers, parameters }
}
