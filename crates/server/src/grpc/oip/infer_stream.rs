//! `ModelStreamInfer`: a stream of requests, each answered while the stream is open and after.
//!
//! Requests run concurrently, so a client may send as fast as it likes; those of one sequence run one after
//! the other. Answers come as they are made. A client tells them apart by the ids of its requests, so those
//! to requests without an id keep their order. A request that fails gets an answer with the error, and the
//! stream goes on. A client that stops sending still gets every answer; when it disconnects, its requests
//! are cancelled.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use jitney_engine::admission::{Admission, HeldBytes};
use jitney_proto::Message as _;
use jitney_proto::kserve as pb;
use jitney_proto::kserve::infer_parameter::ParameterChoice;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::infer::{ClientKind, InferAnswer, infer};
use crate::errors::Problem;
use crate::grpc::request::GrpcRequest;
use crate::state::ServerState;

/// Requests of one stream that are under way at a time.
const CALLS_MAX: usize = 128;

/// Answers that wait for a client before its calls do.
const ANSWERS_MAX: usize = 16;

/// Says whether an answer is the last of its request.
const FINAL_RESPONSE: &str = "triton_final_response";
/// Asks for an empty answer after the last of several.
const EMPTY_FINAL_RESPONSE: &str = "triton_enable_empty_final_response";

/// An answer that waits for its client, and its memory.
type WaitingInferAnswer = (pb::ModelStreamInferResponse, HeldBytes);

/// One client's stream.
pub(super) struct InferStream {
    state: Arc<ServerState>,
    request: GrpcRequest,
    calls: JoinSet<Option<Arc<str>>>,
    /// Sequences of which a request is under way.
    busy: HashSet<Arc<str>>,
    /// Ends when the last request without an id is answered.
    last: Option<oneshot::Receiver<()>>,
}

/// Where the answers of one request go.
struct InferAnswerSender {
    sender: mpsc::Sender<WaitingInferAnswer>,
    admission: Arc<Admission>,
    /// What is to be answered first.
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when the request is answered.
    _after: Option<oneshot::Sender<()>>,
}

/// A request and the sequence it belongs to.
struct StreamedRequest {
    message: pb::ModelInferRequest,
    sequence: Option<Arc<str>>,
    /// Its memory while it waits for its turn; an error where there is none.
    held: Result<HeldBytes, Problem>,
}

impl InferStream {
    pub(super) fn new(state: Arc<ServerState>, request: GrpcRequest) -> Self {
        let (calls, busy) = (JoinSet::new(), HashSet::new());
        Self { state, request, calls, busy, last: None }
    }

    /// The answers, until the stream is dropped.
    pub(super) fn answers(self, messages: Streaming<pb::ModelInferRequest>) -> InferAnswers {
        let (sender, receiver) = mpsc::channel(ANSWERS_MAX);
        let mut task = JoinSet::new();
        task.spawn(self.run(messages, sender));
        InferAnswers { receiver, _task: task }
    }

    async fn run(
        mut self,
        mut messages: Streaming<pb::ModelInferRequest>,
        sender: mpsc::Sender<WaitingInferAnswer>,
    ) {
        let (mut open, mut next) = (true, None);
        while open || next.is_some() || !self.calls.is_empty() {
            if let Some(request) = next.take_if(|next: &mut StreamedRequest| self.may_run(next)) {
                self.call(request, sender.clone());
            }
            let room = open && next.is_none() && self.calls.len() < CALLS_MAX;
            tokio::select! {
                message = messages.message(), if room => match message {
                    Ok(Some(message)) => next = Some(self.received(message)),
                    Ok(None) => open = false,
                    // The client is gone.
                    Err(_) => return,
                },
                Some(over) = self.calls.join_next() => {
                    // The sequence of a call that panicked is not known.
                    let Ok(sequence) = over else { return };
                    if let Some(id) = sequence {
                        self.busy.remove(&id);
                    }
                }
            }
        }
    }

    fn may_run(&self, request: &StreamedRequest) -> bool {
        request.sequence.as_ref().is_none_or(|id| !self.busy.contains(id))
    }

    fn received(&self, message: pb::ModelInferRequest) -> StreamedRequest {
        let held = self.state.inference.hold(&message.model_name, message.encoded_len() as u64);
        StreamedRequest { sequence: sequence_id(&message), message, held }
    }

    fn call(&mut self, next: StreamedRequest, sender: mpsc::Sender<WaitingInferAnswer>) {
        let StreamedRequest { message, sequence, held } = next;
        let (state, mut request) = (Arc::clone(&self.state), self.request.of_message());
        self.busy.extend(sequence.clone());
        let mut to = InferAnswerSender {
            sender,
            admission: Arc::clone(self.state.engine.admission()),
            before: None,
            _after: None,
        };
        if message.id.is_empty() {
            let (after, answered) = oneshot::channel();
            to.before = self.last.replace(answered);
            to._after = Some(after);
        }
        self.calls.spawn(async move {
            // The call takes its own share at once.
            let answered = match held.map(drop) {
                Ok(()) => infer(&state, &mut request, &message, ClientKind::Triton, true).await,
                Err(problem) => Err(problem),
            };
            match answered {
                Ok(answer) => to.send_all(answer, &message).await,
                Err(problem) => to.send(failed(&problem, &message)).await,
            }
            sequence
        });
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
        let held = self.admission.keep(answer.encoded_len() as u64);
        // The client may be gone; then the task ends with its answers.
        drop(self.sender.send((answer, held)).await);
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

/// What the client reads. Dropping it ends the task and all its calls.
pub(super) struct InferAnswers {
    receiver: mpsc::Receiver<WaitingInferAnswer>,
    _task: JoinSet<()>,
}

impl Stream for InferAnswers {
    type Item = Result<pb::ModelStreamInferResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context).map(|answer| answer.map(|(message, _)| Ok(message)))
    }
}
