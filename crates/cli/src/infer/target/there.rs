//! A model of a running server, asked over HTTP, as bulk so that it never stands in the way of people.
//! Overload is waited out as long as the server says; one that stays away stops the job, which then
//! can go on later.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use crate::env::Env;
use crate::failure::Failure;
use crate::fetch::client;
use crate::infer::answer::{Outcome, Trouble};
use crate::infer::row::{Given, Row};
use crate::url_rule::UrlRule;

/// How often a row is sent before the server counts as away.
const TRIES: u32 = 12;

/// Between two tries: doubling, up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The model's address.
#[derive(Clone)]
pub struct There {
    client: Client,
    url: Arc<Url>,
    token: Option<Arc<str>>,
}

/// What Jitney and TorchServe say about a failure.
#[derive(Deserialize)]
struct Problem {
    #[serde(default, rename = "type")]
    kind: String,
    message: String,
}

enum Word {
    Settled(Outcome),
    Later { wait: Option<Duration>, why: String },
    Stop(String),
}

impl There {
    /// Makes a client for the model at a URL.
    pub fn new(text: &str, endpoint: Option<&str>, env: &Env) -> Result<Self, Failure> {
        let mut url = Url::parse(text)
            .map_err(|error| Failure::usage(format!("{text} is no address: {error}")))?;
        if matches!(url.path(), "" | "/") {
            return Err(Failure::usage(format!("{text} names no model"))
                .hint("write it like http://127.0.0.1:8080/predictions/NAME"));
        }
        if let (Some(endpoint), Ok(mut path)) = (endpoint, url.path_segments_mut()) {
            path.pop_if_empty().push(endpoint);
        }
        let rule = UrlRule::Named([url.to_string()].into());
        let client = client::make(Arc::new(rule))
            .map_err(|error| Failure::failed(format!("cannot make an HTTP client: {error}")))?;
        let token = env.text("JITNEY_TOKEN").map(Arc::from);
        Ok(Self { client, url: Arc::new(url), token })
    }

    /// Asks for one row.
    pub async fn ask(self, row: Row) -> Result<Outcome, Failure> {
        let mut reason = String::new();
        for attempt in 0..TRIES {
            match self.once(&row).await {
                Word::Settled(outcome) => return Ok(outcome),
                Word::Stop(why) => return Err(Failure::failed(format!("{}: {why}", self.url))),
                Word::Later { wait, why } => {
                    reason = why;
                    let usual = PAUSE * (1 << attempt.min(10));
                    tokio::time::sleep(wait.unwrap_or(usual).min(PAUSE_MAX)).await;
                }
            }
        }
        Err(Failure::failed(format!("{} does not answer: {reason}", self.url))
            .hint("the same command goes on when it does"))
    }

    async fn once(&self, row: &Row) -> Word {
        let (content_type, body) = match &row.given {
            Given::Json(json) => ("application/json", json.clone()),
            Given::File { content_type, bytes, .. } => (*content_type, bytes.clone()),
            Given::Broken { why, .. } => return Word::Settled(Outcome::bad_input(why)),
        };
        let mut request = self.client.post(Url::clone(&self.url));
        request = request.header(CONTENT_TYPE, content_type).header("x-jitney-priority", "bulk");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        match request.body(body).send().await {
            Ok(response) => read(response).await,
            Err(error) => Word::Later { wait: None, why: words(&error) },
        }
    }
}

async fn read(response: Response) -> Word {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default().to_owned();
    let wait = header(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let body = match response.bytes().await {
        Ok(body) => body,
        Err(error) => return Word::Later { wait: None, why: words(&error) },
    };
    if status.is_success() {
        return Word::Settled(Outcome::of(200, &content_type, &body));
    }
    let problem = serde_json::from_slice::<Problem>(&body).unwrap_or_else(|_| Problem {
        kind: String::new(),
        message: String::from_utf8_lossy(&body).into_owned(),
    });
    judge(status, wait, problem)
}

/// A handler's own 503 is the row's end; the server's is an invitation to come back.
fn judge(status: StatusCode, wait: Option<Duration>, problem: Problem) -> Word {
    let Problem { kind, message } = problem;
    let busy = wait.is_some() || kind == "ServiceUnavailableException";
    match status {
        StatusCode::TOO_MANY_REQUESTS => Word::Later { wait, why: message },
        StatusCode::SERVICE_UNAVAILABLE if busy => Word::Later { wait, why: message },
        StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Word::Stop(message)
        }
        _ if kind == "InvalidKeyException" => Word::Stop(message),
        _ => Word::Settled(Outcome::Failed(Trouble { status: status.as_u16(), message })),
    }
}

fn words(error: &reqwest::Error) -> String {
    let below = std::error::Error::source(error).map(ToString::to_string);
    below.unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_servers_are_asked_again_and_handlers_that_failed_are_not() {
        let judged = |status: u16, wait: Option<u64>, kind: &str| {
            let problem = Problem { kind: kind.to_owned(), message: String::new() };
            let status = StatusCode::from_u16(status).expect("a status");
            match judge(status, wait.map(Duration::from_secs), problem) {
                Word::Settled(_) => "settled",
                Word::Later { .. } => "later",
                Word::Stop(_) => "stop",
            }
        };
        assert_eq!(judged(503, Some(1), ""), "later");
        assert_eq!(judged(503, None, "ServiceUnavailableException"), "later");
        assert_eq!(judged(503, None, "InternalServerException"), "settled");
        assert_eq!(judged(400, None, "BadRequestException"), "settled");
        assert_eq!(judged(400, None, "InvalidKeyException"), "stop");
        assert_eq!(judged(404, None, "ModelNotFoundException"), "stop");
        assert_eq!(judged(429, None, ""), "later");
    }

    #[test]
    fn an_address_must_name_a_model() {
        let env = Env::default();
        assert!(There::new("http://127.0.0.1:8080/", None, &env).is_err());
        let there = There::new("http://127.0.0.1:8080/m", Some("one"), &env).expect("reads");
        assert_eq!(there.url.as_str(), "http://127.0.0.1:8080/m/one");
    }
}
