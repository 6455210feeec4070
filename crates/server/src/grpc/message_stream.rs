//! `StreamPredictions2`: a stream of messages, each answered while the stream is open and after.
//!
//! One message of a sequence is under way at a time, so a client may send as fast as it likes; messages
//! of different sequences run concurrently. A message that fails gets an answer with the error, and the
//! stream goes on. A client that stops sending still gets every answer; when it disconnects, its requests
//! are cancelled.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use jitney_engine::admission::{Admission, HeldBytes};
use jitney_engine::call::SequenceRef;
use jitney_net::request_id::RequestUuid;
use jitney_proto::Any;
use jitney_proto::inference::{PredictionResponse, PredictionsRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

use super::predict::{AnswerPieces, predict};
use super::request::GrpcRequest;
use crate::errors::Problem;
use crate::state::ServerState;

/// Messages of one stream that are under way at a time.
const CALLS_MAX: usize = 128;

/// Answers that wait for a client before its calls do.
const ANSWERS_MAX: usize = 16;

type StreamItem = Result<PredictionResponse, Status>;

/// An answer that waits for its client, and its memory.
type WaitingAnswer = (PredictionResponse, HeldBytes);

/// One client's stream.
pub(super) struct MessageStream {
    state: Arc<ServerState>,
    request: GrpcRequest,
    /// The sequence of the messages that name none.
    own: Option<Arc<str>>,
    calls: JoinSet<Arc<str>>,
    /// Sequences of which a message is under way.
    busy: HashSet<Arc<str>>,
}

/// Where the answers of a stream go.
#[derive(Clone)]
struct AnswerSender {
    sender: mpsc::Sender<WaitingAnswer>,
    admission: Arc<Admission>,
}

/// A message and the sequence it belongs to.
struct SequenceMessage {
    message: PredictionsRequest,
    id: Arc<str>,
    begins: bool,
    /// Its memory while it waits for its turn; an error where there is none.
    held: Result<HeldBytes, Problem>,
}

impl MessageStream {
    pub(super) fn new(state: Arc<ServerState>, request: GrpcRequest) -> Self {
        Self { state, request, own: None, calls: JoinSet::new(), busy: HashSet::new() }
    }

    /// The answers, until the stream is dropped.
    pub(super) fn answers(self, messages: Streaming<PredictionsRequest>) -> MessageAnswers {
        let (sender, receiver) = mpsc::channel(ANSWERS_MAX);
        let sender = AnswerSender { sender, admission: Arc::clone(self.state.engine.admission()) };
        let mut task = JoinSet::new();
        task.spawn(self.run(messages, sender));
        MessageAnswers { receiver, _task: task }
    }

    async fn run(mut self, mut messages: Streaming<PredictionsRequest>, to: AnswerSender) {
        let (mut open, mut next) = (true, None);
        while open || next.is_some() || !self.calls.is_empty() {
            if let Some(message) =
                next.take_if(|next: &mut SequenceMessage| !self.busy.contains(&next.id))
            {
                self.call(message, to.clone());
            }
            let room = open && next.is_none() && self.calls.len() < CALLS_MAX;
            tokio::select! {
                message = messages.message(), if room => match message {
                    Ok(Some(message)) => {
                        // Without randomness there is no sequence that others cannot guess.
                        let Ok(message) = self.with_sequence(message) else { return };
                        next = Some(message);
                    }
                    Ok(None) => open = false,
                    // The client is gone.
                    Err(_) => return,
                },
                Some(over) = self.calls.join_next() => {
                    // The sequence of a call that panicked is not known.
                    let Ok(id) = over else { return };
                    self.busy.remove(&id);
                }
            }
        }
    }

    /// Finds the sequence of a message: the one it names, or the stream's own, whose id is a secret: who
    /// knows it can speak in the sequence.
    fn with_sequence(
        &mut self,
        message: PredictionsRequest,
    ) -> Result<SequenceMessage, getrandom::Error> {
        let bytes = message.input.values().map(|value| value.len() as u64).sum();
        let held = self.state.inference.hold(&message.model_name, bytes);
        let named = message.sequence_id.as_deref().filter(|id| !id.is_empty());
        if let Some(id) = named.map(Arc::from) {
            return Ok(SequenceMessage { message, id, begins: false, held });
        }
        let start = &self.state.engine.sequence_headers().start;
        let begins = self.own.is_none() || message.input.contains_key(start);
        if begins {
            self.own = Some(format!("ts-seq-{}", RequestUuid::secret()?.text()).into());
        }
        let id = self.own.clone().unwrap_or_default();
        Ok(SequenceMessage { message, id, begins, held })
    }

    fn call(&mut self, next: SequenceMessage, to: AnswerSender) {
        let (state, mut request) = (Arc::clone(&self.state), self.request.of_message());
        self.busy.insert(Arc::clone(&next.id));
        self.calls.spawn(async move {
            let SequenceMessage { message, id, begins, held } = next;
            // The call takes its own share at once.
            if let Err(problem) = held.map(drop) {
                send(&to, failed(&problem, &id)).await;
                return id;
            }
            let sequence =
                Some(SequenceRef { id: id.as_ref().to_owned(), starts: begins, ends: false });
            match predict(&state.inference, &mut request, message, sequence).await {
                Ok(pieces) => send_pieces(pieces.into_inner(), &id, &to).await,
                Err(problem) => send(&to, failed(&problem, &id)).await,
            }
            id
        });
    }
}

/// Each piece of an answer is a message.
async fn send_pieces(mut pieces: AnswerPieces, id: &str, to: &AnswerSender) {
    while let Some(piece) = pieces.next().await {
        let message = piece.unwrap_or_else(|status| broken(&status, id));
        send(to, PredictionResponse { sequence_id: Some(id.to_owned()), ..message }).await;
    }
}

async fn send(to: &AnswerSender, message: PredictionResponse) {
    let held = to.admission.keep(message.prediction.len() as u64);
    // The client may be gone; then the task ends with its answers.
    drop(to.sender.send((message, held)).await);
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

/// What the client reads. Dropping it ends the task and all its calls.
pub(super) struct MessageAnswers {
    receiver: mpsc::Receiver<WaitingAnswer>,
    _task: JoinSet<()>,
}

impl Stream for MessageAnswers {
    type Item = StreamItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context).map(|answer| answer.map(|(message, _)| Ok(message)))
    }
}
