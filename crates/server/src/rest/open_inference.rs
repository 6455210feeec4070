//! The Open Inference Protocol over HTTP: JSON, and tensors as they are behind it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jitney_engine::Model;
use jitney_engine::call::{Answer, Parameter, SequenceRef, Timing, ValueBytes};
use jitney_net::RequestBody;
use jitney_settings::Dialect;
use serde::Serialize;
use serde_json::json;

use super::context::RequestContext;
use super::{health, inference};
use crate::errors::{ErrorCode, Problem};
use crate::inference::{InferenceRequest, body_parameter};
use crate::open_inference::answer::OpenInferenceAnswer;
use crate::open_inference::archive;
use crate::open_inference::bodies;
use crate::open_inference::elements::BytesForm;
use crate::open_inference::framed;
use crate::open_inference::metadata;
use crate::open_inference::request::{self, OpenInferenceRequest};
use crate::open_inference::shared::SharedOutputs;
use crate::open_inference::statistics;
use crate::request_options;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{ModelRef, PredictRoute};
use crate::state::ServerState;
use crate::timing::{self, SERVER_TIMING};

/// How much of a body is JSON, where tensors follow it as they are.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// An answer to anything but predictions. Triton's asynchronous client says that it takes compressed
/// answers, and then reads none but those to predictions.
fn uncompressed(mut reply: HttpResponse) -> HttpResult {
    reply.extensions_mut().insert(respond::Uncompressed);
    Ok(reply)
}

fn document<T: Serialize>(document: &T) -> HttpResult {
    uncompressed(respond::json(StatusCode::OK, document))
}

/// `/v2/health/live`: a server that answers is live.
pub(super) fn live() -> HttpResult {
    document(&json!({ "live": true }))
}

/// `/v2/health/ready`: 503 when it is not, since probes look at the status only.
pub(super) fn ready(context: &RequestContext<'_>) -> HttpResult {
    uncompressed(health::oip_ready(context))
}

/// `/v2/models/{m}/ready`: 503 when it is not.
pub(super) fn model_ready(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    uncompressed(health::oip_model_ready(context, target)?)
}

/// `/v2`.
pub(super) fn server(context: &RequestContext<'_>) -> HttpResult {
    uncompressed(health::oip_server(context.state))
}

/// What a model takes and gives.
pub(super) fn metadata(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let of = metadata::metadata(&context.state.engine, &*context.model(target)?)?;
    document(&metadata::metadata_json(&of))
}

/// Triton's configuration of a model.
pub(super) fn config(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    document(&metadata::config_json(&metadata::config(&*context.model(target)?)))
}

/// The statistics of a version, of all versions of a model, or of all models.
pub(super) fn statistics(context: &RequestContext<'_>, target: Option<ModelRef<'_>>) -> HttpResult {
    let all = statistics::of(&context.state.engine, target)?;
    let all: Vec<_> = all.iter().map(statistics::json).collect();
    document(&json!({ "model_stats": all }))
}

/// Settings of Triton's traces, which are off.
pub(super) fn trace_settings() -> HttpResult {
    document(&json!({
        "trace_level": ["OFF"],
        "trace_rate": "0",
        "trace_count": "0",
        "log_frequency": "0",
        "trace_file": "",
        "trace_mode": "triton",
    }))
}

/// Nobody changes them.
pub(super) fn set_traces() -> HttpResult {
    Err(Problem::bad_request(
        "This server writes no traces of its own; its answers say in Server-Timing how long a \
         request waited and ran.",
    ))
}

/// Settings of Triton's log.
pub(super) fn log_settings() -> HttpResult {
    document(&json!({
        "log_file": "",
        "log_info": true,
        "log_warning": true,
        "log_error": true,
        "log_verbose_level": 0,
        "log_format": "default",
    }))
}

/// Nobody changes them here.
pub(super) fn set_log() -> HttpResult {
    Err(Problem::bad_request(
        "The log of a running server cannot be changed; set its level when the server starts.",
    ))
}

/// A prediction by the model that the path names. A model that a large body is on its way to is told.
pub(super) async fn predict(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> HttpResult {
    let expected = if body.large() { context.model_for(route.target).ok() } else { None };
    let announced = expected.as_ref().and_then(|model| model.announce(context.origin()));
    let body = context.read_value(body).await?;
    let model = context.model_for(route.target)?;
    let reply = if reads(context, &model) {
        Box::pin(infer(context, &model, route, body)).await?
    } else {
        inference::run(context, &model, route, body).await?
    };
    if let Some(announced) = announced {
        announced.came();
    }
    Ok(reply)
}

/// Whether a prediction is read here; TorchServe's handlers read it themselves.
fn reads(context: &RequestContext<'_>, model: &Model) -> bool {
    context.state.config.dialect == Dialect::Jitney
        || model.takes_tensors()
        || context.parts.headers.contains_key(JSON_LENGTH)
}

async fn infer(
    context: &RequestContext<'_>,
    model: &Arc<Model>,
    route: PredictRoute<'_>,
    body: ValueBytes,
) -> HttpResult {
    let body = body.into_whole();
    let json_length = json_length(&context.parts.headers)?;
    let request = read(context.state, model, &body, json_length)?;
    let sent = (json_length.is_none() && !request.is_shared()).then_some(body);
    // The version that keeps the sequence reads the tensors and is told as the one that answers.
    let sequence = sequence(context, model, &request)?;
    let keeper = context.state.inference.keeper(route.target, sequence.as_deref());
    let model = keeper.as_ref().unwrap_or(model);
    let call = OpenInferenceCall::new(context, model, route, request, sent)?;
    if model.takes_tensors() {
        return call.tensors().await;
    }
    let bodies = archive::bodies(&call.request, model).map_err(Problem::bad_request)?;
    match bodies.filter(|_| context.state.config.dialect == Dialect::Jitney) {
        Some(bodies) => call.bodies(bodies).await,
        None => call.json().await,
    }
}

/// Reads a body. What it reads from shared memory holds no memory of requests any more when this is over:
/// the request takes its own at once.
fn read(
    state: &ServerState,
    model: &Model,
    body: &Bytes,
    json_length: Option<usize>,
) -> Result<OpenInferenceRequest, Problem> {
    let request = match json_length {
        Some(0) => request::raw(model.name(), &metadata::signature(model), body),
        length => request::read(body, length, &mut state.shared_reader())
            .map_err(|why| format!("Model {:?}: {why}", model.name())),
    };
    request.map_err(Problem::bad_request)
}

/// The sequence that a body names, else a header of a model with sequences.
fn sequence(
    context: &RequestContext<'_>,
    model: &Model,
    request: &OpenInferenceRequest,
) -> Result<Option<Box<SequenceRef>>, Problem> {
    let named = request.sequence().map_err(Problem::bad_request)?.map(Box::new);
    let header = || request_options::sequence(&context.parts.headers, &*model.sequence_headers()?);
    Ok(named.or_else(header))
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Problem> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| {
        Problem::bad_request("Inference-Header-Content-Length must be a whole number of bytes.")
    })
}

/// A request on its way to its model.
pub(super) struct OpenInferenceCall<'a> {
    context: &'a RequestContext<'a>,
    model: &'a Arc<Model>,
    route: PredictRoute<'a>,
    pub(super) request: OpenInferenceRequest,
    shared: SharedOutputs,
    /// The body, where it is nothing but JSON.
    sent: Option<Bytes>,
}

impl<'a> OpenInferenceCall<'a> {
    pub(super) fn new(
        context: &'a RequestContext<'a>,
        model: &'a Arc<Model>,
        route: PredictRoute<'a>,
        request: OpenInferenceRequest,
        sent: Option<Bytes>,
    ) -> Result<Self, Problem> {
        let shared = SharedOutputs::of(&request, context.state.shared_memory.as_ref())?;
        Ok(Self { context, model, route, request, shared, sent })
    }

    /// The answer of the model as it gives it, or the first piece of one that streams.
    pub(super) async fn first(&self) -> Result<Answer, Problem> {
        if self.model.takes_tensors() {
            return self.run(self.tensor_call()?).await;
        }
        let bodies = archive::bodies(&self.request, self.model).map_err(Problem::bad_request)?;
        let body = match bodies.as_deref() {
            Some([body]) => body_parameter("", body.clone()),
            Some(_) | None => self.json_body()?,
        };
        self.run(self.call(vec![body])?).await
    }

    /// By a model that takes tensors.
    async fn tensors(&self) -> HttpResult {
        let mut answer = self.run(self.tensor_call()?).await?;
        if answer.output.tensors.is_none() && framed::is_triton(self.model) {
            return self.only_response(&mut answer).await;
        }
        let Answer { output, timing, .. } = answer;
        let Some(tensors) = output.tensors else {
            let message = format!("Model \"{}\" answered without tensors.", self.model.name());
            return Err(Problem::new(ErrorCode::Internal, message));
        };
        let answer = framed::outputs(tensors, &output.headers, &self.request, self.model);
        let mut reply = self.respond(answer, &timing)?;
        inference::add_headers(reply.headers_mut(), &output.headers);
        Ok(reply)
    }

    /// A call with the request's tensors.
    fn tensor_call(&self) -> Result<InferenceRequest<'_>, Problem> {
        let tensors = self.request.tensors(self.model).map_err(Problem::bad_request)?;
        let mut call = self.call(Vec::new())?;
        call.input.tensors = Some(Arc::new(tensors));
        framed::tell(&self.request, self.model, &mut call.input.headers);
        Ok(call)
    }

    /// Of a model that sends its responses by itself: the one that it sent, if it is one.
    async fn only_response(&self, answer: &mut Answer) -> HttpResult {
        let whole = self.whole(answer).await?;
        let admission = self.context.state.engine.admission();
        let outputs = framed::answer(&whole, &self.request, self.model, admission);
        let outputs = outputs.map_err(|_| {
            Problem::bad_request(format!(
                "Model {:?} is decoupled and gave several responses; ModelStreamInfer of gRPC takes them.",
                self.model.name()
            ))
        })?;
        self.respond(outputs, &answer.timing)
    }

    /// By a handler that gets one body for each element.
    async fn bodies(&self, bodies: Vec<Bytes>) -> HttpResult {
        let bytes_all = bodies.iter().map(|body| body.len() as u64).sum();
        let (service, quota) =
            (&self.context.state.inference, self.context.caller.quota().cloned());
        let _charged = service.charge(quota, self.model.name(), bodies.len(), bytes_all)?;
        let each = bodies::each(self.model, bodies, |body| self.body(body));
        let (answers, timing) = each.await?;
        let output = archive::output(&answers).map_err(internal)?;
        let answer = OpenInferenceAnswer::new(&self.request, self.model, vec![output]);
        self.respond(answer, &timing)
    }

    async fn body(&self, body: Bytes) -> Result<(Bytes, Timing), Problem> {
        let mut call = self.call(vec![body_parameter("", body)])?;
        call.quota = None;
        call.input.route.open_inference = false;
        let mut answer = self.run(call).await?;
        let body = self.whole(&mut answer).await?;
        Ok((body, answer.timing))
    }

    /// By a handler that reads the protocol's JSON: the client's own, unless tensors follow it. Its answer
    /// is passed on as it is, unless the client asks for more than JSON.
    async fn json(&self) -> HttpResult {
        let mut answer = self.run(self.call(vec![self.json_body()?])?).await?;
        let whole = self.whole(&mut answer).await?;
        let read = archive::read(&whole, &self.request, self.model);
        let outputs = match read {
            Ok(outputs) if !self.request.is_plain() => outputs,
            Err(_) if self.context.state.config.dialect == Dialect::Jitney => {
                let output = archive::output(&[whole]).map_err(internal)?;
                OpenInferenceAnswer::new(&self.request, self.model, vec![output])
            }
            Ok(_) | Err(_) => {
                answer.output.body = whole;
                let mut reply = inference::response(answer.output, None, false)?;
                reply.headers_mut().entry(CONTENT_TYPE).or_insert(JSON);
                reply.headers_mut().insert(SERVER_TIMING, timing::header(&answer.timing));
                return Ok(reply);
            }
        };
        let mut reply = self.respond(outputs, &answer.timing)?;
        inference::add_headers(reply.headers_mut(), &answer.output.headers);
        Ok(reply)
    }

    fn json_body(&self) -> Result<Parameter, Problem> {
        let body = match &self.sent {
            Some(body) => body.clone(),
            None => archive::write(&self.request, self.model.name(), BytesForm::Text)
                .map_err(Problem::bad_request)?,
        };
        Ok(body_parameter("application/json", body))
    }

    fn call(&self, parameters: Vec<Parameter>) -> Result<InferenceRequest<'_>, Problem> {
        let Self { context, model, route, request, .. } = self;
        let mut call = inference::request(context, *route, parameters)?;
        request.apply(context.started, &mut call.options).map_err(Problem::bad_request)?;
        if let Some(endpoint) = request.endpoint(model) {
            call.input.route.endpoint = Some(endpoint.into());
        }
        call.input.route.sequence = sequence(context, model, request)?;
        Ok(call)
    }

    async fn run(&self, call: InferenceRequest<'_>) -> Result<Answer, Problem> {
        let answer = self.context.state.inference.predict(self.model, call).await?;
        archive::checked(answer)
    }

    async fn whole(&self, answer: &mut Answer) -> Result<Bytes, Problem> {
        let service = &self.context.state.inference;
        service.whole(self.model, self.route.target, answer).await
    }

    fn respond(&self, answer: OpenInferenceAnswer, timing: &Timing) -> HttpResult {
        let mut answer = answer.select(&self.request, self.model).map_err(Problem::bad_request)?;
        answer.share(&self.shared)?;
        let (body, json) = answer.write(&self.request).map_err(Problem::bad_request)?;
        let mut reply = respond::plain(StatusCode::OK, body);
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, if json.is_some() { BYTES } else { JSON });
        if let Some(length) = json {
            headers.insert(JSON_LENGTH, HeaderValue::from(length));
        }
        headers.insert(SERVER_TIMING, timing::header(timing));
        Ok(reply)
    }
}

fn internal(message: String) -> Problem {
    Problem::new(ErrorCode::Internal, message)
}
