//! SageMaker's sessions, which are sequences whose ids the server makes: `X-Amzn-SageMaker-Session-Id: NEW_SESSION`
//! begins one, and a body `{"requestType": "CLOSE"}` ends it. The model gets both requests like any others.

use std::time::SystemTime;

use http::header::{Entry, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use jitney_engine::Model;
use jitney_engine::call::{Input, SequenceRef};
use jitney_net::request_id::RequestUuid;
use serde::Deserialize;

use crate::errors::{ErrorCode, Problem};
use crate::respond::HttpResponse;

const ID: HeaderName = HeaderName::from_static("x-amzn-sagemaker-session-id");
const BEGUN: HeaderName = HeaderName::from_static("x-amzn-sagemaker-new-session-id");
const CLOSED: HeaderName = HeaderName::from_static("x-amzn-sagemaker-closed-session-id");
/// What a client writes in place of an id.
const NEW: &str = "NEW_SESSION";
/// The longest id that SageMaker passes on.
const ID_BYTES_MAX: usize = 256;
/// The longest body that is looked into: one that closes a session says nothing else.
const BODY_BYTES_MAX: usize = 4096;

#[derive(Deserialize)]
struct SessionRequest {
    #[serde(rename = "requestType")]
    request_type: String,
}

/// What an answer says of its session.
pub(super) enum SessionChange {
    /// The new id, and when it is over without another request.
    Begun(HeaderValue),
    /// The id that is over.
    Closed(HeaderValue),
}

/// A model without sequences has no sessions; nobody may believe that it does.
pub(super) fn reject_new(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(ID).is_some_and(|id| id == NEW) {
        return Err(Problem::bad_request(
            "This model keeps no sessions: its model-config.yaml has to say sequenceBatching: true and sequenceMaxIdleMSec.",
        ));
    }
    Ok(())
}

/// Gives a request that begins a session its id, and finds the one that ends it.
pub(super) fn enter(model: &Model, input: &mut Input) -> Result<Option<SessionChange>, Problem> {
    let closes = closes(input);
    let Some(sequence) = input.route.sequence.as_mut() else { return Ok(None) };
    if sequence.id == NEW {
        return begin(model, sequence).map(Some);
    }
    let wrong = || {
        let message = format!(
            "Header {ID} must be {NEW}, or the id of a session: letters, digits and dashes, at most {ID_BYTES_MAX}."
        );
        Problem::bad_request(message)
    };
    let id = Some(&sequence.id).filter(|id| is_id(id)).ok_or_else(wrong)?;
    if !closes {
        return Ok(None);
    }
    let id = HeaderValue::from_str(id).map_err(|_| wrong())?;
    sequence.ends = true;
    Ok(Some(SessionChange::Closed(id)))
}

/// The id is a secret: who knows it can speak in the session.
fn begin(model: &Model, sequence: &mut SequenceRef) -> Result<SessionChange, Problem> {
    let failed = |what: &str| Problem::new(ErrorCode::Internal, format!("no session id: {what}"));
    let secret = RequestUuid::secret().map_err(|error| failed(&error.to_string()))?;
    *sequence = SequenceRef { id: format!("ts-seq-{}", secret.text()), starts: true, ends: false };
    let idle = model.settings().sequences().map(|limits| limits.idle).unwrap_or_default();
    let expires = SystemTime::now().checked_add(idle).unwrap_or(SystemTime::UNIX_EPOCH);
    let expires = humantime::format_rfc3339_seconds(expires);
    let told = HeaderValue::from_str(&format!("{}; Expires={expires}", sequence.id));
    told.map(SessionChange::Begun).map_err(|error| failed(&error.to_string()))
}

/// `^[a-zA-Z0-9](-*[a-zA-Z0-9])*$`
fn is_id(id: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    id.len() <= ID_BYTES_MAX && id.bytes().all(sound) && !id.starts_with('-') && !id.ends_with('-')
}

fn closes(input: &Input) -> bool {
    let mut bodies = input.parameters.iter().filter(|it| it.value.len() <= BODY_BYTES_MAX);
    bodies.any(|body| {
        let read = serde_json::from_slice::<SessionRequest>(&body.value);
        read.is_ok_and(|request| request.request_type == "CLOSE")
    })
}

impl SessionChange {
    /// The answer with the headers about it, unless the model wrote them, or failed.
    pub(super) fn tell(self, mut reply: HttpResponse) -> HttpResponse {
        if reply.status() != StatusCode::OK {
            return reply;
        }
        let (names, value) = match self {
            Self::Begun(value) => (&[ID, BEGUN][..], value),
            Self::Closed(value) => (&[CLOSED][..], value),
        };
        for name in names {
            if let Entry::Vacant(entry) = reply.headers_mut().entry(name) {
                entry.insert(value.clone());
            }
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_sagemaker_passes_on() {
        for id in ["a", "ts-seq-1f", "a--b9", &"x".repeat(256)] {
            assert!(is_id(id), "{id}");
        }
        for id in ["-a", "a-", "a b", "a_b", "ü", &"x".repeat(257)] {
            assert!(!is_id(id), "{id}");
        }
    }
}
