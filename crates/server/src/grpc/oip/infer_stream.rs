//! `ModelStreamInfer`: a stream of requests, each answered while the stream is open and after.
//!
//! Requests run concurrently; those of one sequence run one after the other. Answers come as they are made. A
//! client tells them apart by the ids of its requests, so those to requests without an id keep their order. A
//! request that fails gets an answer with the error, and the stream goes on.

use std::sync::Arc;

use jitney_proto::Message as _;
use jitney_proto::kserve as pb;
use jitney_proto::kserve::infer_parameter::ParameterChoice;
use tokio::sync::oneshot;
use tonic::Streaming;

use super::infer::{ClientKind, InferAnswer, infer};
use crate::errors::Problem;
use crate::grpc::request::GrpcRequest;
use crate::grpc::stream_answers::{AnswerSender, StreamAnswers, StreamedCall};
use crate::state::ServerState;

/// Says whether an answer is the last of its request.
const FINAL_RESPONSE: &str = "triton_final_response";
/// Asks for an empty answer after the last of several.
const EMPTY_FINAL_RESPONSE: &str = "triton_enable_empty_final_response";

/// One client's stream.
pub(super) struct InferStream {
    state: Arc<ServerState>,
    request: GrpcRequest,
    /// Ends when the last request without an id is answered.
    last: Option<oneshot::Receiver<()>>,
}

/// Where the answers of one request go.
struct InferAnswerSender {
    sender: AnswerSender<pb::ModelStreamInferResponse>,
    /// What is to be answered first.
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when the request is answered.
    _after: Option<oneshot::Sender<()>>,
}

impl InferStream {
    pub(super) fn new(state: Arc<ServerState>, request: GrpcRequest) -> Self {
        Self { state, request, last: None }
    }

    /// The answers, until the stream is dropped.
    pub(super) fn answers(
        mut self,
        messages: Streaming<pb::ModelInferRequest>,
    ) -> StreamAnswers<pb::ModelStreamInferResponse> {
        let admission = Arc::clone(self.state.engine.admission());
        StreamAnswers::of(messages, &admission, move |message, to| Some(self.call(message, to)))
    }

    fn call(
        &mut self,
        message: pb::ModelInferRequest,
        sender: AnswerSender<pb::ModelStreamInferResponse>,
    ) -> StreamedCall {
        let held = self.state.inference.hold(&message.model_name, message.encoded_len() as u64);
        let (state, mut request) = (Arc::clone(&self.state), self.request.of_message());
        let mut to = InferAnswerSender { sender, before: None, _after: None };
        if message.id.is_empty() {
            let (after, answered) = oneshot::channel();
            to.before = self.last.replace(answered);
            to._after = Some(after);
        }
        let sequence = sequence_id(&message);
        let run = Box::pin(async move {
            // The call takes its own share at once.
            let answered = match held.map(drop) {
                Ok(()) => infer(&state, &mut request, &message, ClientKind::Triton, true).await,
                Err(problem) => Err(problem),
            };
            match answered {
                Ok(answer) => to.send_all(answer, &message).await,
                Err(problem) => to.send(failed(&problem, &message)).await,
            }
        });
        StreamedCall { sequence, run }
    }
}

impl InferAnswerSender {
    /// Sends an answer, or each of several.
    async fn send_all(&mut self, answer: InferAnswer, message: &pb::ModelInferRequest) {
        let InferAnswer { reply, more, .. } = answer;
        self.send(answered(reply, more.is_none())).await;
        if let Some(mut more) = more {
            while let Some(piece) = more.next().await {
                match piece {
                    Ok(reply) => self.send(answered(reply, false)).await,
                    Err(problem) => return self.send(failed(&problem, message)).await,
                }
            }
            if is_true(&message.parameters, EMPTY_FINAL_RESPONSE) {
                self.send(answered(more.empty(), true)).await;
            }
        }
    }

    async fn send(&mut self, answer: pb::ModelStreamInferResponse) {
        if let Some(before) = self.before.take() {
            // It ends in an error, since nothing is ever sent.
            let _ = before.await;
        }
        let bytes = answer.encoded_len();
        self.sender.send(answer, bytes).await;
    }
}

fn answered(mut reply: pb::ModelInferResponse, is_last: bool) -> pb::ModelStreamInferResponse {
    let parameter_choice = Some(ParameterChoice::BoolParam(is_last));
    reply.parameters.insert(FINAL_RESPONSE.to_owned(), pb::InferParameter { parameter_choice });
    pb::ModelStreamInferResponse { error_message: String::new(), infer_response: Some(reply) }
}

/// A failure inside an answer, as the stream itself has not failed. It is the last of its request.
fn failed(problem: &Problem, message: &pb::ModelInferRequest) -> pb::ModelStreamInferResponse {
    let reply = pb::ModelInferResponse { id: message.id.clone(), ..Default::default() };
    let error_message = problem.full_message().into_owned();
    pb::ModelStreamInferResponse { error_message, ..answered(reply, true) }
}

fn is_true(
    parameters: &std::collections::BTreeMap<String, pb::InferParameter>,
    name: &str,
) -> bool {
    let choice = parameters.get(name).and_then(|parameter| parameter.parameter_choice.as_ref());
    matches!(choice, Some(ParameterChoice::BoolParam(true)))
}

/// The sequence that a request names, by a number or a text.
fn sequence_id(message: &pb::ModelInferRequest) -> Option<Arc<str>> {
    let id = match message.parameters.get("sequence_id")?.parameter_choice.as_ref()? {
        ParameterChoice::Int64Param(id) if *id != 0 => id.to_string(),
        ParameterChoice::Uint64Param(id) if *id != 0 => id.to_string(),
        ParameterChoice::StringParam(id) if !id.is_empty() => id.clone(),
        ParameterChoice::Int64Param(_)
        | ParameterChoice::Uint64Param(_)
        | ParameterChoice::StringParam(_)
        | ParameterChoice::BoolParam(_)
        | ParameterChoice::DoubleParam(_) => return None,
    };
    Some(format!("{}/{id}", message.model_name).into())
}
