//! TorchServe's inference service: health and predictions.

use std::sync::Arc;

use jitney_engine::call::SequenceRef;
use jitney_proto::inference::inference_ap_is_service_server::InferenceApIsService;
use jitney_proto::inference::{PredictionResponse, PredictionsRequest, TorchServeHealthResponse};
use serde_json::json;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::message_stream::MessageStream;
use super::predict::{AnswerPieces, predict};
use super::request::GrpcRequest;
use crate::errors::Problem;
use crate::health;
use crate::respond;
use crate::state::ServerState;

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
        let (mut request, message) = GrpcRequest::open(request)?;
        let sequence = message.sequence_id.clone();
        let sequence = sequence.map(|id| SequenceRef { id, ..SequenceRef::default() });
        predict(&self.state.inference, &mut request, message, sequence).await
    }
}

#[tonic::async_trait]
impl InferenceApIsService for TorchServeInference {
    async fn ping(
        &self,
        request: Request<()>,
    ) -> Result<Response<TorchServeHealthResponse>, Status> {
        GrpcRequest::message(request).await?;
        let status = json!({ "status": health::status(&self.state) });
        Ok(Response::new(TorchServeHealthResponse { health: respond::pretty(&status) }))
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
        let (request, messages) = GrpcRequest::open(request)?;
        let answers = MessageStream::new(Arc::clone(&self.state), request).answers(messages);
        Ok(Response::new(Box::pin(answers) as Self::StreamPredictions2Stream))
    }
}
