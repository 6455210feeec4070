//! A model in this process, called as the server calls it. A row that is rejected for a reason that
//! passes is sent again, so that overload makes a job slower but loses no row.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jitney_engine::call::{
    Answer, Call, CallRoute, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, Priority,
};
use jitney_engine::error::CallError;
use jitney_engine::store::{RequestSizes, ValueForm};
use jitney_engine::{Model, Rejection};
use jitney_server::errors::FailedCall;
use jitney_settings::Dialect;

use crate::failure::Failure;
use crate::infer::row::{RowError, RowResult};

/// How long a rejected row waits before it is sent again.
const PAUSE: Duration = Duration::from_millis(5);

/// How often a row may exceed a time limit of the model, such as its client timeout.
const TIMEOUTS_MAX: u32 = 3;

/// The most bytes of an answer that comes in pieces.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The model.
#[derive(Clone)]
pub struct InProcessModel {
    model: Arc<Model>,
    endpoint: Option<Arc<str>>,
}

impl InProcessModel {
    /// Takes one of its endpoints, or its only one.
    pub fn new(model: Arc<Model>, endpoint: Option<&str>) -> Self {
        Self { model, endpoint: endpoint.map(Arc::from) }
    }

    /// Whether the endpoint takes tables.
    pub fn takes_tables(&self) -> bool {
        let Some(api) = self.model.api() else { return false };
        let asked = |name: &str| match &self.endpoint {
            Some(endpoint) => &**endpoint == name,
            None => api.endpoints.len() == 1 || ["call", "predict"].contains(&name),
        };
        let takes =
            |sizes: &RequestSizes| sizes.params.iter().any(|it| it.form == ValueForm::Frame);
        api.sizes.iter().any(|(name, sizes)| asked(name) && takes(sizes))
    }

    /// The result of the row of this number.
    pub async fn infer(
        self,
        number: u64,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<RowResult, Failure> {
        let mut timeouts = 0;
        loop {
            let call = self.call(number, content_type, body.clone());
            let error = match self.model.call(call).await {
                Ok(answer) => match collect(answer).await {
                    Ok(result) => return Ok(result),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            match reaction(&error) {
                Reaction::EndJob => return Err(self.stopped(&error)),
                Reaction::Retry => {}
                Reaction::RetryTimeout if timeouts < TIMEOUTS_MAX => timeouts += 1,
                Reaction::RetryTimeout | Reaction::FailRow => return Ok(self.failed(&error)),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn call(&self, number: u64, content_type: &'static str, value: Bytes) -> Call {
        let mut headers = HeaderBlock::new();
        headers.push("content-type", content_type.as_bytes());
        let endpoint = self.endpoint.as_deref().map(Into::into);
        let route = CallRoute { endpoint, ..CallRoute::default() };
        let (name, content_type) = ("body".into(), content_type.into());
        let parameter = Parameter { name, content_type, value: value.into() };
        Call {
            input: Box::new(Input {
                id: number.to_string(),
                headers,
                route,
                parameters: vec![parameter],
                tensors: None,
            }),
            deadline: None,
            origin: Origin { kind: OriginKind::Python, peer: 0 },
            priority: Priority::Bulk,
            claim: Claim::default(),
            quota: None,
            mark: None,
        }
    }

    fn failed_call(&self) -> FailedCall<'_> {
        let queue_max = self.model.settings().queue_max;
        let (model, purpose, dialect) = (self.model.name(), "inference", Dialect::Jitney);
        FailedCall { model, version: None, purpose, queue_max, dialect }
    }

    fn failed(&self, error: &CallError) -> RowResult {
        let problem = self.failed_call().problem(error);
        RowResult::Failed(RowError { status: problem.status, message: problem.message })
    }

    fn stopped(&self, error: &CallError) -> Failure {
        Failure::failed(self.failed_call().problem(error).message)
            .hint("--log-level info shows what the workers print")
    }
}

enum Reaction {
    /// The model cannot answer any row.
    EndJob,
    /// The reason passes by itself.
    Retry,
    /// The row waited longer than the model allows.
    RetryTimeout,
    /// Only this row fails.
    FailRow,
}

fn reaction(error: &CallError) -> Reaction {
    match error {
        CallError::Rejected { reason, .. } => match reason {
            Rejection::QueueFull | Rejection::Overload | Rejection::Quota => Reaction::Retry,
            Rejection::Expired | Rejection::Infeasible => Reaction::RetryTimeout,
            Rejection::NoWorker | Rejection::Draining | Rejection::Cancelled => Reaction::EndJob,
            Rejection::TooLarge => Reaction::FailRow,
        },
        CallError::ServerFull { .. } | CallError::Loading(_) => Reaction::Retry,
        CallError::NotLoaded(_) | CallError::Gone => Reaction::EndJob,
        CallError::Sequence(_)
        | CallError::BadInput(_)
        | CallError::UnknownEndpoint(_)
        | CallError::Model(_)
        | CallError::WorkerExited { .. }
        | CallError::Poisonous
        | CallError::SlowReader => Reaction::FailRow,
    }
}

/// Waits for the rest of an answer that comes in pieces.
async fn collect(answer: Answer) -> Result<RowResult, CallError> {
    let Answer { output, stream, .. } = answer;
    let status = output.status.map_or(200, |(code, _)| code);
    let kind = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let content_type = output.headers.iter().find(kind).map_or("", |(_, value)| value.as_str());
    let body = match stream {
        None => output.body,
        Some(mut stream) => {
            let mut body = BytesMut::from(&output.body[..]);
            while let Some(piece) = stream.next().await {
                body.extend_from_slice(&piece?);
                if body.len() > ANSWER_BYTES_MAX {
                    return Err(CallError::SlowReader);
                }
            }
            Bytes::from(body)
        }
    };
    Ok(RowResult::of(status, content_type, &body))
}
