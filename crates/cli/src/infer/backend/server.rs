//! A model of a running server, called over HTTP with bulk priority, so that interactive requests go
//! first. A row is sent again while the server is overloaded; a server that stays unreachable ends
//! the job, which can be resumed later.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::fetch::client::{self, error_chain};
use crate::infer::row::{RowError, RowResult};
use crate::url_rule::UrlRule;

/// How often a row is sent before the server counts as unreachable.
const TRIES: u32 = 12;

/// The pause between two tries: it doubles up to a maximum.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The model.
#[derive(Clone)]
pub struct ServerModel {
    client: Client,
    url: Arc<Url>,
    token: Option<Arc<str>>,
}

/// An error body of Jitney and TorchServe.
#[derive(Deserialize)]
struct ErrorResponse {
    #[serde(default, rename = "type")]
    kind: String,
    message: String,
}

/// What one try came to.
enum Attempt {
    Done(RowResult),
    Retry { wait: Option<Duration>, reason: String },
    EndJob(String),
}

impl ServerModel {
    /// Makes a client for the model at a URL.
    pub fn new(text: &str, endpoint: Option<&str>, env: &Env) -> Result<Self, Failure> {
        let mut url = Url::parse(text)
            .map_err(|error| Failure::usage(format!("{text} is not a URL: {error}")))?;
        if matches!(url.path(), "" | "/") {
            return Err(Failure::usage(format!("{text} names no model"))
                .hint("use a URL like http://127.0.0.1:8080/predictions/NAME"));
        }
        if let (Some(endpoint), Ok(mut path)) = (endpoint, url.path_segments_mut()) {
            path.pop_if_empty().push(endpoint);
        }
        let rule = UrlRule::named([url.as_str()]);
        let client = client::make(Arc::new(rule)).map_err(cannot("make an HTTP client"))?;
        let token = env.text("JITNEY_TOKEN").map(Arc::from);
        Ok(Self { client, url: Arc::new(url), token })
    }

    /// The result of one row.
    pub async fn infer(self, content_type: &str, body: Bytes) -> Result<RowResult, Failure> {
        let mut last = String::new();
        for attempt in 0..TRIES {
            match self.try_once(content_type, body.clone()).await {
                Attempt::Done(result) => return Ok(result),
                Attempt::EndJob(reason) => {
                    return Err(Failure::failed(format!("{}: {reason}", self.url)));
                }
                Attempt::Retry { wait, reason } => {
                    last = reason;
                    let usual = PAUSE * (1 << attempt.min(10));
                    tokio::time::sleep(wait.unwrap_or(usual).min(PAUSE_MAX)).await;
                }
            }
        }
        Err(Failure::failed(format!("{} does not answer: {last}", self.url))
            .hint("the same command resumes the job when the server answers again"))
    }

    async fn try_once(&self, content_type: &str, body: Bytes) -> Attempt {
        let mut request = self.client.post(Url::clone(&self.url));
        request = request.header(CONTENT_TYPE, content_type).header("x-jitney-priority", "bulk");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        match request.body(body).send().await {
            Ok(response) => read(response).await,
            Err(error) => unreachable(error),
        }
    }
}

async fn read(response: Response) -> Attempt {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default().to_owned();
    let wait = header(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let body = match response.bytes().await {
        Ok(body) => body,
        Err(error) => return unreachable(error),
    };
    if status.is_success() {
        return Attempt::Done(RowResult::of(200, &content_type, &body));
    }
    let error = serde_json::from_slice::<ErrorResponse>(&body).unwrap_or_else(|_| ErrorResponse {
        kind: String::new(),
        message: String::from_utf8_lossy(&body).into_owned(),
    });
    classify(status, wait, error)
}

/// A 503 of a handler fails the row; a 503 of the server means that the row is sent again.
fn classify(status: StatusCode, wait: Option<Duration>, error: ErrorResponse) -> Attempt {
    let ErrorResponse { kind, message } = error;
    let busy = wait.is_some() || kind == "ServiceUnavailableException";
    match status {
        StatusCode::TOO_MANY_REQUESTS => Attempt::Retry { wait, reason: message },
        StatusCode::SERVICE_UNAVAILABLE if busy => Attempt::Retry { wait, reason: message },
        StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Attempt::EndJob(message)
        }
        _ if kind == "InvalidKeyException" => Attempt::EndJob(message),
        _ => Attempt::Done(RowResult::Failed(RowError { status: status.as_u16(), message })),
    }
}

fn unreachable(error: reqwest::Error) -> Attempt {
    Attempt::Retry { wait: None, reason: error_chain(&error.without_url()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sent_again_to_busy_servers_and_not_to_failed_handlers() {
        let classified = |status: u16, wait: Option<u64>, kind: &str| {
            let error = ErrorResponse { kind: kind.to_owned(), message: String::new() };
            let status = StatusCode::from_u16(status).expect("a status");
            match classify(status, wait.map(Duration::from_secs), error) {
                Attempt::Done(_) => "done",
                Attempt::Retry { .. } => "retry",
                Attempt::EndJob(_) => "end",
            }
        };
        assert_eq!(classified(503, Some(1), ""), "retry");
        assert_eq!(classified(503, None, "ServiceUnavailableException"), "retry");
        assert_eq!(classified(503, None, "InternalServerException"), "done");
        assert_eq!(classified(400, None, "BadRequestException"), "done");
        assert_eq!(classified(400, None, "InvalidKeyException"), "end");
        assert_eq!(classified(404, None, "ModelNotFoundException"), "end");
        assert_eq!(classified(429, None, ""), "retry");
    }

    #[test]
    fn a_url_must_name_a_model() {
        let env = Env::default();
        assert!(ServerModel::new("http://127.0.0.1:8080/", None, &env).is_err());
        let model = ServerModel::new("http://127.0.0.1:8080/m", Some("one"), &env).expect("reads");
        assert_eq!(model.url.as_str(), "http://127.0.0.1:8080/m/one");
    }
}
