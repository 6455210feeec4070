//! Triton's generate extension over REST: `generate` for one answer, `generate_stream` for events, one for each answer.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use jitney_engine::call::{Answer, AnswerStream};
use jitney_engine::error::CallError;
use jitney_engine::{Engine, Model};
use jitney_net::events::{EVENT_STREAM, event};
use jitney_net::{PieceError, RequestBody, ResponseBody};
use jitney_settings::Dialect;
use serde_json::json;

use super::context::RequestContext;
use super::open_inference::OpenInferenceCall;
use crate::errors::{ErrorCode, Problem};
use crate::inference::failure;
use crate::open_inference::request::OpenInferenceRequest;
use crate::open_inference::{framed, generated, metadata};
use crate::respond::{self, HttpResult};
use crate::route::{ModelRef, PredictRoute};
use crate::timing::{self, SERVER_TIMING};

/// `/v2/models/{m}/generate`.
pub(super) async fn one(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> HttpResult {
    let (mut answer, pieces) = ask(context, body, route).await?;
    let first = pieces.first(&mut answer)?;
    let more = match &mut answer.stream {
        Some(stream) => stream.next().await,
        None => None,
    };
    let text = match (first, more) {
        (Some(text), None) => text,
        (_, Some(Err(error))) => return Err(pieces.failure(&error)),
        (None, None) | (_, Some(Ok(_))) => {
            return Err(Problem::bad_request(format!(
                "Model {:?} gave not one response but none or several: ask generate_stream.",
                pieces.model.name()
            )));
        }
    };
    reply(&answer, "application/json", ResponseBody::whole(text))
}

/// `/v2/models/{m}/generate_stream`.
pub(super) async fn several(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> HttpResult {
    let (mut answer, pieces) = ask(context, body, route).await?;
    let first = pieces.first(&mut answer)?.map(|text| event("", &text)).unwrap_or_default();
    let body = match answer.stream.take() {
        None => ResponseBody::whole(first),
        Some(stream) => {
            let caller = context.caller.clone();
            ResponseBody::pieces(first, pieces.events(stream))
                .while_allowed(move || caller.is_in_force())
        }
    };
    reply(&answer, EVENT_STREAM, body)
}

/// Calls the model with the fields of the body.
async fn ask(
    context: &RequestContext<'_>,
    body: RequestBody,
    route: PredictRoute<'_>,
) -> Result<(Answer, GeneratedPieces), Problem> {
    let body = context.read(body).await?;
    let model = context.model_for(route.target)?;
    let request = generated::read(&body, &metadata::signature(&model));
    let request =
        request.map_err(|why| Problem::bad_request(format!("Model {:?}: {why}", model.name())))?;
    let call = OpenInferenceCall::new(context, &model, route, request, None)?;
    let answer = call.first().await?;
    let request = call.request;
    let (engine, dialect) = (Arc::clone(&context.state.engine), context.state.config.dialect);
    Ok((answer, GeneratedPieces { engine, dialect, model, request }))
}

fn reply(answer: &Answer, content_type: &'static str, body: ResponseBody) -> HttpResult {
    let mut reply = respond::plain(StatusCode::OK, Bytes::new());
    *reply.body_mut() = body;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply.headers_mut().insert(SERVER_TIMING, timing::header(&answer.timing));
    Ok(reply)
}

/// What makes JSON of a model's answers to one request.
struct GeneratedPieces {
    engine: Arc<Engine>,
    dialect: Dialect,
    model: Arc<Model>,
    request: OpenInferenceRequest,
}

impl GeneratedPieces {
    /// The first answer; none of a model that sends none.
    fn first(&self, answer: &mut Answer) -> Result<Option<Bytes>, Problem> {
        let body = std::mem::take(&mut answer.output.body);
        let Some(tensors) = answer.output.tensors.take() else {
            let is_none = body.is_empty() && answer.stream.is_none();
            return if is_none { Ok(None) } else { self.text(body).map(Some) };
        };
        if tensors.is_empty() {
            return Ok(None);
        }
        let headers = &answer.output.headers;
        let read = framed::outputs(tensors, headers, &self.request, &self.model);
        generated::write(&read).map(|text| Some(text.into())).map_err(Problem::bad_request)
    }

    fn text(&self, piece: Bytes) -> Result<Bytes, Problem> {
        let admission = self.engine.admission();
        let read = framed::piece(piece, &self.request, &self.model, admission);
        let read = read.map_err(|why| Problem::new(ErrorCode::Internal, why))?;
        generated::write(&read).map(Bytes::from).map_err(Problem::bad_request)
    }

    fn failure(&self, error: &CallError) -> Problem {
        let target = ModelRef { model: self.model.name(), version: None };
        failure(self.dialect, &self.model, target, error)
    }

    /// The further answers as events; a failure is one with the field `error`.
    fn events(self, mut rest: AnswerStream) -> impl Stream<Item = Result<Bytes, PieceError>> {
        stream::poll_fn(move |context| rest.poll_next(context)).map(move |piece| {
            let text = piece.map_err(|error| self.failure(&error)).and_then(|it| self.text(it));
            let failed =
                |problem: Problem| json!({ "error": problem.for_triton() }).to_string().into();
            Ok(event("", &text.unwrap_or_else(failed)))
        })
    }
}
