//! `StreamPredictions2`: a stream of messages, each answered while the stream is open and after.
//!
//! Messages of different sequences run concurrently. A message that fails gets an answer with the error, and
//! the stream goes on.

use std::sync::Arc;

use jitney_engine::call::SequenceRef;
use jitney_net::request_id::RequestUuid;
use jitney_proto::Any;
use jitney_proto::inference::{PredictionResponse, PredictionsRequest};
use tokio_stream::StreamExt;
use tonic::{Status, Streaming};

use super::predict::{AnswerPieces, predict};
use super::request::GrpcRequest;
use super::stream_answers::{AnswerSender, StreamAnswers, StreamedCall};
use crate::errors::Problem;
use crate::state::ServerState;

type MessageSender = AnswerSender<PredictionResponse>;

/// One client's stream.
pub(super) struct MessageStream {
    state: Arc<ServerState>,
    request: GrpcRequest,
    /// The sequence of the messages that name none.
    own: Option<Arc<str>>,
}

impl MessageStream {
    pub(super) fn new(state: Arc<ServerState>, request: GrpcRequest) -> Self {
        Self { state, request, own: None }
    }

    /// The answers, until the stream is dropped.
    pub(super) fn answers(
        mut self,
        messages: Streaming<PredictionsRequest>,
    ) -> StreamAnswers<PredictionResponse> {
        let admission = Arc::clone(self.state.engine.admission());
        // Without randomness there is no sequence that others cannot guess.
        StreamAnswers::of(messages, &admission, move |message, to| self.call(message, to).ok())
    }

    fn call(
        &mut self,
        message: PredictionsRequest,
        to: MessageSender,
    ) -> Result<StreamedCall, getrandom::Error> {
        let bytes = message.input.values().map(|value| value.len() as u64).sum();
        let held = self.state.inference.hold(&message.model_name, bytes);
        let (id, begins) = self.sequence_of(&message)?;
        let sequence = Some(Arc::clone(&id));
        let (state, mut request) = (Arc::clone(&self.state), self.request.of_message());
        let run = Box::pin(async move {
            // The call takes its own share at once.
            if let Err(problem) = held.map(drop) {
                return send(&to, failed(&problem, &id)).await;
            }
            let sequence =
                Some(SequenceRef { id: id.as_ref().to_owned(), starts: begins, ends: false });
            match predict(&state.inference, &mut request, message, sequence).await {
                Ok(pieces) => send_pieces(pieces.into_inner(), &id, &to).await,
                Err(problem) => send(&to, failed(&problem, &id)).await,
            }
        });
        Ok(StreamedCall { sequence, run })
    }

    /// The sequence of a message, and whether it begins: the one it names, or the stream's own, whose id is a
    /// secret: who knows it can speak in the sequence.
    fn sequence_of(
        &mut self,
        message: &PredictionsRequest,
    ) -> Result<(Arc<str>, bool), getrandom::Error> {
        let named = message.sequence_id.as_deref().filter(|id| !id.is_empty());
        if let Some(id) = named {
            return Ok((id.into(), false));
        }
        let start = &self.state.engine.sequence_headers().start;
        let begins = self.own.is_none() || message.input.contains_key(start);
        if begins {
            self.own = Some(format!("ts-seq-{}", RequestUuid::secret()?.text()).into());
        }
        Ok((self.own.clone().unwrap_or_default(), begins))
    }
}

/// Each piece of an answer is a message.
async fn send_pieces(mut pieces: AnswerPieces, id: &str, to: &MessageSender) {
    while let Some(piece) = pieces.next().await {
        let message = piece.unwrap_or_else(|status| broken(&status, id));
        send(to, PredictionResponse { sequence_id: Some(id.to_owned()), ..message }).await;
    }
}

async fn send(to: &MessageSender, message: PredictionResponse) {
    let bytes = message.prediction.len();
    to.send(message, bytes).await;
}

/// A failure inside an answer, as the stream itself has not failed.
fn failed(problem: &Problem, id: &str) -> PredictionResponse {
    let description = problem.description();
    let class = description.lines().last().unwrap_or_default();
    let details = vec![error_info(class)];
    let code = problem.grpc_code().into();
    in_band(jitney_proto::status::Status { code, message: problem.message.clone(), details }, id)
}

/// An answer that broke off after its first piece.
fn broken(status: &Status, id: &str) -> PredictionResponse {
    let (code, message) = (i32::from(status.code()), status.message().to_owned());
    in_band(jitney_proto::status::Status { code, message, details: Vec::new() }, id)
}

fn in_band(status: jitney_proto::status::Status, id: &str) -> PredictionResponse {
    PredictionResponse {
        sequence_id: Some(id.to_owned()),
        status: Some(status),
        ..Default::default()
    }
}

/// `google.rpc.ErrorInfo` with nothing but its first field, the reason: too little for a module of
/// generated code.
fn error_info(reason: &str) -> Any {
    let reason = &reason.as_bytes()[..reason.len().min(127)];
    let value = [&[0x0a, reason.len() as u8], reason].concat();
    Any { type_url: "type.googleapis.com/google.rpc.ErrorInfo".to_owned(), value }
}
