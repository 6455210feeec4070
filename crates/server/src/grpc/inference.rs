//! TorchServe's inference service: health and predictions.

use std::sync::Arc;

use jitney_engine::call::{Answer, Output, Parameter, SequenceRef};
use jitney_proto::inference::inference_ap_is_service_server::InferenceApIsService;
use jitney_proto::inference::{PredictionResponse, PredictionsRequest, TorchServeHealthResponse};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::conversation::MessageStream;
use super::pieces::AnswerPieces;
use super::predict::{self, GrpcRequest, ModelRequest};
use crate::errors::{Problem, grpc_code_of};
use crate::listener::ServerState;
use crate::rest::health;

/// The service.
pub(super) struct TorchServeInference {
    state: Arc<ServerState>,
}

impl TorchServeInference {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    /// One request and its answer.
    async fn predict(
        &self,
        request: Request<PredictionsRequest>,
    ) -> Result<Response<AnswerPieces>, Problem> {
        let (grpc_request, message) = GrpcRequest::open(request)?;
        let sequence = message.sequence_id.clone();
        let sequence = sequence.map(|id| SequenceRef { id, starts: false });
        answer(&self.state, &grpc_request, message, sequence).await
    }
}

/// Asks the model that a message names.
pub(super) async fn answer(
    state: &ServerState,
    grpc_request: &GrpcRequest,
    message: PredictionsRequest,
    sequence: Option<SequenceRef>,
) -> Result<Response<AnswerPieces>, Problem> {
    let target = predict::target(&message.model_name, &message.model_version);
    let model = predict::model(state, target)?;
    let parameters = message.input.into_iter().map(|(name, value)| Parameter {
        name: name.into(),
        content_type: "".into(),
        value,
    });
    let parameters = parameters.collect();
    let sequence_id = sequence.as_ref().map(|sequence| sequence.id.clone());
    let request =
        ModelRequest { model: &model, target, parameters, open_inference: false, sequence };
    let Answer { output, timing, stream } =
        predict::predict(grpc_request, &state.config.meter, request).await?;
    let Output { status, headers, body } = output;
    let first = PredictionResponse { prediction: body, sequence_id, status: status.and_then(said) };
    let pieces = AnswerPieces { model, first: Some(first), rest: stream };
    Ok(predict::response(pieces, &timing, &headers))
}

/// A status that the handler set beside its answer. TorchServe drops it; here who looks finds it.
fn said((code, message): (u16, String)) -> Option<jitney_proto::status::Status> {
    let code = i32::from(grpc_code_of(code));
    (code != 0).then(|| jitney_proto::status::Status { code, message, details: Vec::new() })
}

#[tonic::async_trait]
impl InferenceApIsService for TorchServeInference {
    async fn ping(&self, _: Request<()>) -> Result<Response<TorchServeHealthResponse>, Status> {
        Ok(Response::new(TorchServeHealthResponse { health: health::text(&self.state.engine) }))
    }

    async fn predictions(
        &self,
        request: Request<PredictionsRequest>,
    ) -> Result<Response<PredictionResponse>, Status> {
        let (metadata, pieces, extensions) = self.predict(request).await?.into_parts();
        Ok(Response::from_parts(metadata, pieces.whole().await?, extensions))
    }

    type StreamPredictionsStream = BoxStream<PredictionResponse>;

    /// Each piece is a message; a handler that does not stream gives one.
    async fn stream_predictions(
        &self,
        request: Request<PredictionsRequest>,
    ) -> Result<Response<Self::StreamPredictionsStream>, Status> {
        let answer = self.predict(request).await?;
        Ok(answer.map(|pieces| Box::pin(pieces) as Self::StreamPredictionsStream))
    }

    type StreamPredictions2Stream = BoxStream<PredictionResponse>;

    async fn stream_predictions2(
        &self,
        request: Request<Streaming<PredictionsRequest>>,
    ) -> Result<Response<Self::StreamPredictions2Stream>, Status> {
        let (grpc_request, messages) = GrpcRequest::open(request)?;
        let answers = MessageStream::new(Arc::clone(&self.state), grpc_request).answers(messages);
        Ok(Response::new(Box::pin(answers) as Self::StreamPredictions2Stream))
    }
}
