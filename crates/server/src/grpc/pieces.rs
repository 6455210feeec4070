//! A streamed answer as gRPC messages: the first piece, then each further one as it comes.
//!
//! Apart from `inference`, which only decides whether the client gets a stream or one message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use jitney_engine::Model;
use jitney_engine::call::AnswerStream;
use jitney_engine::error::CallError;
use jitney_proto::inference::PredictionResponse;
use tokio_stream::Stream;
use tonic::Status;

use crate::errors::{FailedCall, Problem};

/// What is left of an answer.
pub(super) struct AnswerPieces {
    pub(super) model: Arc<Model>,
    pub(super) first: Option<PredictionResponse>,
    pub(super) rest: Option<AnswerStream>,
}

impl AnswerPieces {
    /// Everything in one message, for a client that asked for one.
    pub(super) async fn whole(mut self) -> Result<PredictionResponse, Problem> {
        let mut message = self.first.take().unwrap_or_default();
        let Some(rest) = &mut self.rest else { return Ok(message) };
        let mut whole = BytesMut::from(&message.prediction[..]);
        while let Some(piece) = rest.next().await {
            whole.extend_from_slice(&piece.map_err(|error| problem(&self.model, &error))?);
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
        let Self { model, rest, .. } = &mut *self;
        let Some(rest) = rest else { return Poll::Ready(None) };
        rest.poll_next(context).map(|piece| {
            piece.map(|piece| piece.map(message).map_err(|error| problem(model, &error).into()))
        })
    }
}

fn message(prediction: Bytes) -> PredictionResponse {
    PredictionResponse { prediction, ..PredictionResponse::default() }
}

fn problem(model: &Model, error: &CallError) -> Problem {
    let queue_max = model.settings().waiting_max();
    FailedCall { model: model.name(), version: None, purpose: "inference", queue_max }
        .problem(error)
}
