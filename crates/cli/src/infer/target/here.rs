//! A model in this process, asked as a door would ask it. A refusal that passes is waited out: the
//! job may be slow, a row may not be lost to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jitney_engine::call::{
    Answer, Call, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, Priority,
};
use jitney_engine::error::CallError;
use jitney_engine::{Model, Rejection};
use jitney_server::errors::FailedCall;

use crate::failure::Failure;
use crate::infer::answer::{Outcome, Trouble};
use crate::infer::row::{Given, Row};

/// How long a row waits before it asks again.
const PAUSE: Duration = Duration::from_millis(5);

/// How often a row may be too late for a limit of the model's own, such as its client timeout.
const LATE_MAX: u32 = 3;

/// Bytes of an answer that comes in pieces.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The model.
#[derive(Clone)]
pub struct Here {
    model: Arc<Model>,
    endpoint: Option<Arc<str>>,
}

impl Here {
    /// Asks one of its endpoints, or the only one.
    pub fn new(model: Arc<Model>, endpoint: Option<&str>) -> Self {
        Self { model, endpoint: endpoint.map(Arc::from) }
    }

    /// Asks for one row.
    pub async fn ask(self, row: Row) -> Result<Outcome, Failure> {
        let mut late = 0;
        loop {
            let Some(call) = self.call(&row) else { return Ok(broken(&row)) };
            let error = match self.model.call(call).await {
                Ok(answer) => match whole(answer).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            match verdict(&error) {
                Verdict::Stop => return Err(self.stopped(&error)),
                Verdict::Later => {}
                Verdict::Late if late < LATE_MAX => late += 1,
                Verdict::Late | Verdict::Failed => return Ok(self.failed(&error)),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn call(&self, row: &Row) -> Option<Call> {
        let (content_type, value) = match &row.given {
            Given::Json(json) => ("application/json", json.clone()),
            Given::File { content_type, bytes, .. } => (*content_type, bytes.clone()),
            Given::Broken { .. } => return None,
        };
        let mut headers = HeaderBlock::new();
        headers.push("content-type", content_type.as_bytes());
        if let Some(endpoint) = &self.endpoint {
            headers.push("url_path", endpoint.as_bytes());
        }
        let parameter = Parameter { name: "body".into(), content_type: content_type.into(), value };
        Some(Call {
            input: Input { id: row.number.to_string(), headers, parameters: vec![parameter] },
            deadline: None,
            origin: Origin { kind: OriginKind::Python, peer: 0 },
            priority: Priority::Bulk,
            claim: Claim::default(),
            alone: false,
        })
    }

    fn asked(&self) -> FailedCall<'_> {
        let queue_max = self.model.settings().queue_max;
        FailedCall { model: self.model.name(), version: None, purpose: "inference", queue_max }
    }

    fn failed(&self, error: &CallError) -> Outcome {
        let problem = self.asked().problem(error);
        Outcome::Failed(Trouble { status: problem.status, message: problem.message })
    }

    fn stopped(&self, error: &CallError) -> Failure {
        Failure::failed(self.asked().problem(error).message)
            .hint("--log-level info shows what the workers print")
    }
}

fn broken(row: &Row) -> Outcome {
    match &row.given {
        Given::Broken { why, .. } => Outcome::bad_input(why),
        Given::Json(_) | Given::File { .. } => Outcome::bad_input("the row cannot be asked"),
    }
}

enum Verdict {
    /// Nobody is there to answer any row.
    Stop,
    /// It passes by itself.
    Later,
    /// It waited longer than the model allows.
    Late,
    /// The row's own end.
    Failed,
}

fn verdict(error: &CallError) -> Verdict {
    match error {
        CallError::Rejected { reason, .. } => match reason {
            Rejection::QueueFull | Rejection::Overload | Rejection::Quota => Verdict::Later,
            Rejection::Expired | Rejection::Hopeless => Verdict::Late,
            Rejection::NoWorker | Rejection::Draining | Rejection::Cancelled => Verdict::Stop,
            Rejection::TooLarge => Verdict::Failed,
        },
        CallError::ServerFull { .. } => Verdict::Later,
        CallError::Gone => Verdict::Stop,
        CallError::Sequence(_)
        | CallError::BadInput(_)
        | CallError::Model(_)
        | CallError::WorkerExited { .. }
        | CallError::SlowReader => Verdict::Failed,
    }
}

/// Waits for the rest of an answer that comes in pieces.
async fn whole(answer: Answer) -> Result<Outcome, CallError> {
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
    Ok(Outcome::of(status, content_type, &body))
}
