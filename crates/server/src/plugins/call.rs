//! One call to a plugin: the facts of a request in, its answer out, within the time.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{
    Answer, Call, CallRoute, HeaderBlock, Input, Origin, OriginKind, Parameter,
};
use jitney_engine::error::CallError;
use tokio::time::Instant;

use super::intent::Intent;
use crate::auth::Gate;
use crate::errors::ErrorCode;
use crate::inference::plain_call;
use crate::route::Apis;

/// Which of the two listeners something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ApiKind {
    /// Where predictions are asked for.
    Inference,
    /// Where models are managed.
    Management,
}

impl ApiKind {
    /// Whose rules hold for what a gate opens.
    pub(crate) fn behind(gate: Gate) -> Self {
        match gate {
            Gate::Management | Gate::Renewal => Self::Management,
            Gate::Open | Gate::Inference | Gate::Either | Gate::Metrics => Self::Inference,
        }
    }

    /// What opens whatever belongs to it, wherever it answers.
    pub(crate) fn gate(self) -> Gate {
        match self {
            Self::Inference => Gate::Inference,
            Self::Management => Gate::Management,
        }
    }

    pub(super) fn is_of(self, apis: Apis) -> bool {
        match self {
            Self::Inference => apis.inference,
            Self::Management => apis.management,
        }
    }
}

/// A request as plugins see it.
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
    /// What the request is about to do.
    pub(super) intent: Option<&'a Intent<'a>>,
    pub(super) body: Bytes,
}

impl PluginCall<'_> {
    pub(super) fn new(ask: &'static str) -> Self {
        let (endpoint, listener, intent) = (None, ApiKind::Inference, None);
        Self { ask, endpoint, listener, intent, body: Bytes::new() }
    }
}

/// Why a plugin gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PluginFailure {
    /// It did not answer in time.
    Late,
    /// Its function raised, or its answer is not valid.
    Failed,
    /// Its process is gone or overloaded.
    Away,
}

impl PluginFailure {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Late => "did not answer in time",
            Self::Failed => "failed; see the server's log",
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

/// Calls a plugin and waits for `timeout` at most.
pub(super) async fn call_plugin(
    plugin: &Model,
    call: PluginCall<'_>,
    request: PluginRequest<'_>,
    timeout: Duration,
) -> Result<Answer, PluginFailure> {
    let deadline = Instant::now().checked_add(timeout);
    let origin = request.origin;
    let call = Call { deadline, ..plain_call(Box::new(input(call, request)), origin) };
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
        CallError::Model(_) | CallError::BadInput(_) | CallError::UnknownEndpoint(_) => {
            PluginFailure::Failed
        }
        CallError::Rejected { .. }
        | CallError::NotLoaded(_)
        | CallError::Loading(_)
        | CallError::ServerFull { .. }
        | CallError::Sequence(_)
        | CallError::WorkerExited { .. }
        | CallError::Poisonous
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
        "operation": call.intent.map(|intent| intent.operation),
        "model": call.intent.and_then(Intent::model_name),
        "version": call.intent.and_then(Intent::version),
        "workflow": call.intent.and_then(|intent| intent.workflow),
    });
    let parameter = |name: &'static str, value: Bytes| Parameter {
        name: name.into(),
        content_type: "application/octet-stream".into(),
        value: value.into(),
    };
    let parameters =
        vec![parameter("ask", Bytes::from(facts.to_string())), parameter("body", call.body)];
    Input {
        id: request.id.to_owned(),
        headers,
        route: CallRoute::default(),
        parameters,
        tensors: None,
    }
}
