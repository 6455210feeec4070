//! One call to a model on behalf of a gRPC client; the services only differ in what they send.

use http::{HeaderMap, HeaderName, HeaderValue};
use jitney_engine::Model;
use jitney_engine::call::{Answer, Call, Input, Parameter, Timing};
use jitney_engine::onnx::OPEN_INFERENCE_HEADER;
use tonic::{Extensions, Request, Response};

use super::caller::{self, Caller};
use super::note::Trailing;
use crate::door::House;
use crate::errors::{Asked, Problem};
use crate::metrics::Meter;
use crate::rest::{claim, inference, receipt};
use crate::route::Target;

/// The envelope of a request: everything but its message.
pub(super) struct Envelope {
    pub(super) caller: Caller,
    metadata: HeaderMap,
}

impl Envelope {
    /// Parts a request from its message.
    pub(super) fn open<T>(request: Request<T>) -> Result<(Self, T), Problem> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = Caller::of(&extensions)?;
        Ok((Self { caller, metadata: metadata.into_headers() }, message))
    }
}

impl Envelope {
    /// The envelope of one message of a stream: the stream's, under a name of its own.
    pub(super) fn of_message(&self) -> Self {
        Self { caller: self.caller.again(), metadata: self.metadata.clone() }
    }
}

/// A version that the client named; gRPC has no other way to leave it out than the empty text.
pub(super) fn target<'a>(model: &'a str, version: &'a str) -> Target<'a> {
    Target { model, version: Some(version).filter(|version| !version.is_empty()) }
}

/// What a service wants of a model.
pub(super) struct Wish<'a> {
    pub(super) model: &'a Model,
    pub(super) target: Target<'a>,
    pub(super) parameters: Vec<Parameter>,
    /// Whether the body is the Open Inference Protocol's JSON.
    pub(super) open_inference: bool,
    /// The sequence it belongs to.
    pub(super) sequence: Option<Sequence<'a>>,
}

/// How a message names its sequence.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'a> {
    pub(super) id: &'a str,
    /// Whether it begins with this message.
    pub(super) begins: bool,
}

/// Calls the model. The future is dropped with the call, and the request leaves its queue.
pub(super) async fn predict(
    envelope: &Envelope,
    meter: &Meter,
    wish: Wish<'_>,
) -> Result<Answer, Problem> {
    let Envelope { caller, metadata } = envelope;
    let mut headers = caller::headers(metadata);
    if wish.open_inference {
        headers.push(OPEN_INFERENCE_HEADER, b"True");
    }
    if let Some(Sequence { id, begins }) = wish.sequence {
        let names = &wish.model.settings().sequence_headers;
        headers.push(&names.id, id.as_bytes());
        if begins {
            headers.push(&names.start, b"true");
        }
    }
    let id = caller.id.text().to_owned();
    let call = Call {
        input: Input { id, headers, parameters: wish.parameters },
        deadline: caller.deadline(metadata)?,
        origin: caller.origin(),
        priority: inference::priority(metadata)?,
        claim: claim::read(metadata)?,
        alone: false,
    };
    meter.asked(wish.model, wish.target.version.is_some());
    let answer = wish.model.call(call).await;
    let answer = answer.inspect(|answer| meter.waited(answer.timing.queue));
    answer.map_err(|error| {
        let Target { model, version } = wish.target;
        let queue_max = wish.model.settings().waiting_max();
        Asked { model, version, purpose: "inference", queue_max }.problem(&error)
    })
}

/// The model that a request names.
pub(super) fn model(house: &House, target: Target<'_>) -> Result<std::sync::Arc<Model>, Problem> {
    if target.model.is_empty() {
        return Err(Problem::bad_request("Parameter model_name is required."));
    }
    Ok(house.engine.model(target.model, target.version)?)
}

/// An answer with its receipt for the trailers and the handler's headers as metadata.
pub(super) fn response<T>(message: T, ride: &Timing, headers: &[(String, String)]) -> Response<T> {
    let mut extensions = Extensions::default();
    extensions.insert(Trailing(receipt::header(ride)));
    let mut response = Response::from_parts(Default::default(), message, extensions);
    let metadata: &mut HeaderMap = response.metadata_mut().as_mut();
    for (name, value) in headers {
        add(metadata, name, value);
    }
    response
}

/// Adds a header that the handler set, unless it would break the answer.
fn add(metadata: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes()).ok().filter(is_free);
    // gRPC's values are plain ASCII.
    let value = HeaderValue::from_str(value).ok().filter(|value| value.to_str().is_ok());
    if let (Some(name), Some(value)) = (name, value) {
        metadata.append(name, value);
    }
}

/// HTTP/2 forbids connection headers, and the rest belongs to gRPC.
fn is_free(name: &HeaderName) -> bool {
    const TAKEN: [&str; 9] = [
        "connection",
        "content-length",
        "content-type",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let name = name.as_str();
    !TAKEN.contains(&name) && !name.starts_with("grpc-") && !name.ends_with("-bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_handler_that_would_break_the_answer_are_left_out() {
        let mut metadata = HeaderMap::new();
        for (name, value) in [
            ("X-Exam-One", "1"),
            ("Content-Type", "text/html"),
            ("Transfer-Encoding", "chunked"),
            ("grpc-status", "0"),
            ("x-data-bin", "?"),
            ("bad name", "1"),
            ("x-text", "gr\u{fc}n"),
        ] {
            add(&mut metadata, name, value);
        }
        assert_eq!(metadata.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-exam-one"]);
    }
}
