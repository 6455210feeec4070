//! Predictions over REST: one request in, one call of the inference service, one answer out.
//!
//! The hot path of the server. Nothing here waits for anything but the body and the service, and both
//! are dropped with the connection.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method};
use jitney_engine::Model;
use jitney_engine::call::{Answer, AnswerStream, Output, Parameter, Timing, ValueBytes};
use jitney_engine::error::CallError;
use jitney_net::events::{self, EVENT_STREAM};
use jitney_net::{PieceError, RequestBody, ResponseBody};
use jitney_settings::Dialect;

use super::authorize::{Authorized, authorize};
use super::context::RequestContext;
use super::{input, sagemaker_session};
use crate::auth::GuardedOperation;
use crate::errors::{ErrorCode, Problem};
use crate::event_stream::EventStream;
use crate::inference::{InferenceRequest, failure};
use crate::plugins::{ApiKind, Intent, Plugins};
use crate::request_options::sequence;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{ModelRef, PredictRoute};
use crate::timing::{self, SERVER_TIMING};

/// A prediction by the model that the path names.
pub(super) async fn predict(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> HttpResult {
    if body.large() {
        return Box::pin(predict_large(context, body, route)).await;
    }
    let body = context.read_value(body).await?;
    let model = context.model_for(route.target)?;
    // Without a handler there is nobody who could do something without a body.
    if context.parts.method == Method::GET && context.apis.natural && !model.tag().python {
        return Err(Problem::method_not_allowed());
    }
    run(context, &model, route, body).await
}

/// The same with a body that takes a while to arrive: the model is told beforehand.
async fn predict_large(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> HttpResult {
    // An unknown model is reported after the body was read, as for small bodies.
    let expected = context.model_for(route.target).ok();
    let announced = expected.as_ref().and_then(|model| model.announce(context.origin()));
    let body = context.read_value(body).await?;
    // Another version may be the default by now.
    let model = context.model_for(route.target)?;
    let reply = run(context, &model, route, body).await?;
    if let Some(announced) = announced {
        announced.came();
    }
    Ok(reply)
}

pub(super) async fn authorize_model(
    context: &RequestContext<'_>,
    plugins: &Plugins,
    name: &str,
) -> Result<Authorized, Problem> {
    let target = ModelRef { model: name, version: None };
    let model = context.model_for(target).ok();
    let intent = Intent::with_model(GuardedOperation::Predict, target, model);
    authorize(context, plugins, ApiKind::Inference, intent).await
}

/// `/wfpredict/{workflow}`: one request through all nodes of a workflow.
pub(super) async fn run_workflow(
    context: &RequestContext<'_>,
    body: RequestBody,
    name: &str,
) -> HttpResult {
    let body = context.read_value(body).await?;
    let workflow = context.state.engine.workflows().find(name)?;
    let route = PredictRoute::new(ModelRef { model: name, version: None });
    let dialect = context.state.config.dialect;
    let parameters = input::parameters(dialect, context.parts, &route, body).await?;
    let mut request = request(context, route, parameters)?;
    let quota = request.quota.take();
    let _charged = context.state.inference.charge(quota, name, 1, request.input.weight())?;
    let output = context.state.inference.run_workflow(&workflow, request).await?;
    let mut reply = response(output, None, false)?;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    Ok(reply)
}

pub(super) async fn run(
    context: &RequestContext<'_>,
    model: &Arc<Model>,
    route: PredictRoute<'_>,
    body: ValueBytes,
) -> HttpResult {
    let dialect = context.state.config.dialect;
    let parameters = input::parameters(dialect, context.parts, &route, body).await?;
    let mut request = request(context, route, parameters)?;
    let mut session = None;
    if let Some(names) = model.sequence_headers() {
        request.input.route.sequence = sequence(&context.parts.headers, &names);
        if context.apis.sagemaker {
            session = sagemaker_session::enter(model, &mut request.input)?;
        }
    } else if context.apis.sagemaker {
        sagemaker_session::reject_new(&context.parts.headers)?;
    }
    let answer = context.state.inference.predict(model, request).await?;
    let reply = if answer.stream.is_some() || answer.output.body.is_empty() {
        streamed_response(context, model, answer)?
    } else {
        let guesses = context.state.config.content_types;
        timed(&answer.timing, response(answer.output, None, guesses)?)?
    };
    Ok(match session {
        None => reply,
        Some(change) => change.tell(reply),
    })
}

/// A stream, or nothing, which a stream of no pieces comes to: as events where the client asks for them.
fn streamed_response(
    context: &RequestContext<'_>,
    model: &Arc<Model>,
    answer: Answer,
) -> HttpResult {
    let (config, headers) = (&context.state.config, &context.parts.headers);
    let Answer { mut output, timing, stream } = answer;
    let is_type = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
    let is_event = |(_, value): &(String, String)| value.starts_with(EVENT_STREAM);
    let made = output.headers.iter().any(|header| is_type(header) && is_event(header));
    if config.dialect == Dialect::TorchServe || made || !events::accepted(headers) {
        return timed(&timing, response(output, stream, config.content_types)?);
    }
    output.headers.retain(|header| !is_type(header));
    output.headers.push(("Content-Type".to_owned(), EVENT_STREAM.to_owned()));
    if events::begins(&output.body) {
        return timed(&timing, response(output, stream, false)?);
    }
    let first = std::mem::take(&mut output.body);
    let mut reply = response(output, None, false)?;
    let first = if first.is_empty() { first } else { events::event("", &first) };
    *reply.body_mut() = match stream {
        None => ResponseBody::whole(events::end()),
        Some(stream) => {
            let (model, dialect) = (Arc::clone(model), config.dialect);
            let explain = move |error: &CallError| {
                let target = ModelRef { model: model.name(), version: None };
                respond::problem_text(&failure(dialect, &model, target, error))
            };
            let caller = context.caller.clone();
            ResponseBody::pieces(first, EventStream::new(stream, explain))
                .while_allowed(move || caller.is_in_force())
        }
    };
    timed(&timing, reply)
}

#[inline]
pub(super) fn request<'a>(
    context: &RequestContext<'a>,
    route: PredictRoute<'a>,
    parameters: Vec<Parameter>,
) -> Result<InferenceRequest<'a>, Problem> {
    let options = context.options()?;
    let headers = input::headers(&context.parts.headers, context.caller, &options.claim);
    Ok(InferenceRequest {
        target: route.target,
        input: input::input(context.id, headers, &route, parameters),
        options,
        client: context.caller.name(),
        key: Some(context.request_key()),
        quota: context.caller.quota().cloned(),
        origin: context.origin(),
        wait_for_queue: context.job,
        admitted: false,
        held: None,
        trace: context.trace.cloned(),
    })
}

/// An answer with its timing.
pub(super) fn timed_response(answer: Answer) -> HttpResult {
    let Answer { output, timing, stream } = answer;
    timed(&timing, response(output, stream, false)?)
}

fn timed(timing: &Timing, mut reply: HttpResponse) -> HttpResult {
    reply.headers_mut().insert(SERVER_TIMING, timing::header(timing));
    Ok(reply)
}

/// A handler's status, headers and body; `stream` brings the pieces that follow. A body that the handler
/// gave no type gets one where the server `guesses`.
pub(super) fn response(output: Output, stream: Option<AnswerStream>, guesses: bool) -> HttpResult {
    let Output { status, headers, body, .. } = output;
    let typed = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-type");
    let guessed = (guesses && !headers.iter().any(typed))
        .then(|| respond::guess_type(&body, stream.is_none()));
    let mut reply = HttpResponse::new(response_body(body, stream));
    match status {
        None => {}
        Some((code @ 200..=999, phrase)) => respond::set_status(&mut reply, code, &phrase),
        Some((code, _)) => {
            let message = format!("The handler set {code}, which is not a valid status.");
            return Err(Problem::new(ErrorCode::Internal, message));
        }
    }
    reply.headers_mut().reserve(headers.len() + 2);
    for (name, value) in &headers {
        add(reply.headers_mut(), name, value);
    }
    if let Some(guessed) = guessed {
        reply.headers_mut().insert(CONTENT_TYPE, guessed);
    }
    Ok(reply)
}

/// Adds the headers that the handler set.
pub(super) fn add_headers(headers: &mut HeaderMap, set: &[(String, String)]) {
    headers.reserve(set.len() + 2);
    for (name, value) in set {
        add(headers, name, value);
    }
}

/// A body that is here, or the first piece of one.
fn response_body(body: Bytes, rest: Option<AnswerStream>) -> ResponseBody {
    let Some(mut rest) = rest else { return ResponseBody::whole(body) };
    let pieces = stream::poll_fn(move |context| rest.poll_next(context));
    ResponseBody::pieces(body, pieces.map_err(PieceError::from))
}

/// Adds a header that the handler set, unless it would break the answer.
fn add(headers: &mut HeaderMap, name: &str, value: &str) {
    let framing = [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        (Ok(known), Ok(value)) if !framing.contains(&known) && known != "keep-alive" => {
            headers.append(known, value);
        }
        _ => tracing::debug!(name, "left out a header of the handler"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_headers_of_a_handler_are_left_out() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("X-Exam-One", "1"),
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("connection", "close"),
            ("Keep-Alive", "1"),
            ("bad name", "1"),
            ("x-bad-value", "a\r\nInjected: 1"),
            ("x-text", "gr\u{fc}n"),
        ] {
            add(&mut headers, name, value);
        }
        let kept: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(kept, ["x-exam-one", "content-type", "x-text"]);
    }
}
