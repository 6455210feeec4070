//! A TorchServe prediction over gRPC: one message in, its answer as one message or as a stream of pieces.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use jitney_engine::Model;
use jitney_engine::call::{Answer, AnswerStream, Output, Parameter, SequenceRef};
use jitney_engine::error::CallError;
use jitney_proto::inference::{PredictionResponse, PredictionsRequest};
use jitney_settings::Dialect;
use tokio_stream::Stream;
use tonic::{Response, Status};

use super::request::{self, GrpcRequest, ModelCall};
use crate::errors::{Problem, grpc_code_of};
use crate::inference::{self, InferenceService};
use crate::route::ModelRef;

/// Calls the model that a message names.
pub(super) async fn predict(
    service: &InferenceService,
    request: &mut GrpcRequest,
    message: PredictionsRequest,
    sequence: Option<SequenceRef>,
) -> Result<Response<AnswerPieces>, Problem> {
    let target = request::target(&message.model_name, &message.model_version);
    request.hold(service, target.model, || message.input.values().map(Bytes::len).sum())?;
    let model = request.model(service, target).await?;
    let parameters = message.input.into_iter().map(|(name, value)| Parameter {
        name: name.into(),
        content_type: "".into(),
        value: value.into(),
    });
    let parameters = parameters.collect();
    let sequence_id = sequence.as_ref().map(|sequence| sequence.id.clone());
    let call = ModelCall { target, parameters, open_inference: false, sequence };
    let Answer { output, timing, stream } = request.predict(service, &model, call).await?;
    let Output { status, headers, body, .. } = output;
    let first = PredictionResponse {
        prediction: body,
        sequence_id,
        status: status.and_then(handler_status),
    };
    let pieces = AnswerPieces { model, dialect: service.dialect, first: Some(first), stream };
    Ok(request::response(pieces, &timing, &headers))
}

/// A status that the handler set beside its answer. TorchServe drops it; here a client can read it.
fn handler_status((code, message): (u16, String)) -> Option<jitney_proto::status::Status> {
    let code = i32::from(grpc_code_of(code));
    (code != 0).then(|| jitney_proto::status::Status { code, message, details: Vec::new() })
}

/// A streamed answer as gRPC messages: the first piece, then each further one as it comes.
pub(super) struct AnswerPieces {
    model: Arc<Model>,
    dialect: Dialect,
    first: Option<PredictionResponse>,
    stream: Option<AnswerStream>,
}

impl AnswerPieces {
    /// Everything in one message, for a client that asked for one.
    pub(super) async fn whole(mut self) -> Result<PredictionResponse, Problem> {
        let mut message = self.first.take().unwrap_or_default();
        let Some(stream) = &mut self.stream else { return Ok(message) };
        let mut whole = BytesMut::from(&message.prediction[..]);
        let broken = |error: CallError| broken(self.dialect, &self.model, &error);
        while let Some(piece) = stream.next().await {
            whole.extend_from_slice(&piece.map_err(broken)?);
        }
        message.prediction = whole.freeze();
        Ok(message)
    }
}

impl Stream for AnswerPieces {
    type Item = Result<PredictionResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Self { model, dialect, stream, .. } = &mut *self;
        let Some(stream) = stream else { return Poll::Ready(None) };
        let broken = |error: CallError| Status::from(broken(*dialect, model, &error));
        stream.poll_next(context).map(|piece| piece.map(|piece| piece.map(message).map_err(broken)))
    }
}

fn message(prediction: Bytes) -> PredictionResponse {
    PredictionResponse { prediction, ..PredictionResponse::default() }
}

fn broken(dialect: Dialect, model: &Model, error: &CallError) -> Problem {
    inference::failure(dialect, model, ModelRef { model: model.name(), version: None }, error)
}
