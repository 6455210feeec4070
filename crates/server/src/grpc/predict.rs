//! One call to a model on behalf of a gRPC client; the services only differ in what they send.

use http::{HeaderMap, HeaderName, HeaderValue};
use jitney_engine::Model;
use jitney_engine::call::{Answer, Call, Input, Parameter, Timing};
use jitney_engine::local::OPEN_INFERENCE_HEADER;
use tonic::{Extensions, Request, Response};

use super::caller::{self, Caller};
use super::note::TimingTrailer;
use crate::errors::{FailedCall, Problem};
use crate::listener::ServerState;
use crate::metrics::Meter;
use crate::rest::{claim, inference, receipt};
use crate::route::ModelRef;

/// The grpc_request of a request: everything but its message.
pub(super) struct GrpcRequest {
    pub(super) caller: Caller,
    metadata: HeaderMap,
}

impl GrpcRequest {
    /// Parts a request from its message.
    pub(super) fn open<T>(request: Request<T>) -> Result<(Self, T), Problem> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = Caller::of(&extensions)?;
        Ok((Self { caller, metadata: metadata.into_headers() }, message))
    }
}

impl GrpcRequest {
    /// The grpc_request of one message of a stream: the stream's, under a name of its own.
    pub(super) fn of_message(&self) -> Self {
        Self { caller: self.caller.again(), metadata: self.metadata.clone() }
    }
}

/// A version that the client named; gRPC has no other way to leave it out than the empty text.
pub(super) fn target<'a>(model: &'a str, version: &'a str) -> ModelRef<'a> {
    ModelRef { model, version: Some(version).filter(|version| !version.is_empty()) }
}

/// What a service wants of a model.
pub(super) struct ModelRequest<'a> {
    pub(super) model: &'a Model,
    pub(super) target: ModelRef<'a>,
    pub(super) parameters: Vec<Parameter>,
    /// Whether the body is the Open Inference Protocol's JSON.
    pub(super) open_inference: bool,
    /// The sequence it belongs to.
    pub(super) sequence: Option<SequenceRef<'a>>,
}

/// How a message names its sequence.
#[derive(Clone, Copy)]
pub(super) struct SequenceRef<'a> {
    pub(super) id: &'a str,
    /// Whether it begins with this message.
    pub(super) begins: bool,
}

/// Calls the model. The future is dropped with the call, and the request leaves its queue.
pub(super) async fn predict(
    grpc_request: &GrpcRequest,
    meter: &Meter,
    request: ModelRequest<'_>,
) -> Result<Answer, Problem> {
    let GrpcRequest { caller, metadata } = grpc_request;
    let mut headers = caller::headers(metadata);
    if request.open_inference {
        headers.push(OPEN_INFERENCE_HEADER, b"True");
    }
    if let Some(SequenceRef { id, begins }) = request.sequence {
        let names = &request.model.settings().sequence_headers;
        headers.push(&names.id, id.as_bytes());
        if begins {
            headers.push(&names.start, b"true");
        }
    }
    let id = caller.id.text().to_owned();
    let call = Call {
        input: Input { id, headers, parameters: request.parameters },
        deadline: caller.deadline(metadata)?,
        origin: caller.origin(),
        priority: inference::priority(metadata)?,
        claim: claim::read(metadata)?,
        alone: false,
    };
    meter.asked(request.model, request.target.version.is_some());
    let answer = request.model.call(call).await;
    let answer = answer.inspect(|answer| meter.waited(answer.timing.queue));
    answer.map_err(|error| {
        let ModelRef { model, version } = request.target;
        let queue_max = request.model.settings().waiting_max();
        FailedCall { model, version, purpose: "inference", queue_max }.problem(&error)
    })
}

/// The model that a request names.
pub(super) fn model(
    state: &ServerState,
    target: ModelRef<'_>,
) -> Result<std::sync::Arc<Model>, Problem> {
    if target.model.is_empty() {
        return Err(Problem::bad_request("Parameter model_name is required."));
    }
    Ok(state.engine.model(target.model, target.version)?)
}

/// An answer with its receipt for the trailers and the handler's headers as metadata.
pub(super) fn response<T>(message: T, route: &Timing, headers: &[(String, String)]) -> Response<T> {
    let mut extensions = Extensions::default();
    extensions.insert(TimingTrailer(receipt::header(route)));
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
