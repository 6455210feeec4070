//! One call of a handle: find the model, ask it, say what it says, frame by frame.
//!
//! It runs as a task of its connection; when that ends, or the client cancels, the task is dropped
//! and the request leaves its queue. It says its last frame exactly once.

use std::sync::Arc;

use http::{Method, StatusCode, Version};
use jitney_engine::Model;
use jitney_engine::Rejection;
use jitney_engine::call::{
    Answer, AnswerStream, Call, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter,
};
use jitney_engine::error::CallError;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::Instant;

use super::frame::{HandleCall, ServerFrame};
use crate::access::AccessRecord;
use crate::connection::Peer;
use crate::errors::FailedCall;
use crate::listener::ServerState;
use crate::request_id::RequestUuid;
use crate::rest::claim;

/// The parameter that holds the arguments of a definition; no Python parameter can have this name.
const CALL_PARAMETER: &str = "jitney-call";

type Place<'a> = SemaphorePermit<'a>;

/// A frame about a call, on its way to the connection.
pub(super) struct CallFrame {
    pub(super) id: u64,
    pub(super) frame: ServerFrame,
}

/// A call that is about to be made.
pub(super) struct PendingCall {
    pub(super) state: Arc<ServerState>,
    pub(super) peer: Arc<Peer>,
    pub(super) model: Arc<Model>,
    /// The handles' room in the model's queue.
    pub(super) room: Arc<Semaphore>,
    pub(super) call: HandleCall,
    pub(super) started: Instant,
}

impl PendingCall {
    /// Makes the call. Nobody hears a frame where the connection has ended, and this with it.
    pub(super) async fn run(mut self, sender: mpsc::Sender<CallFrame>) {
        let id = self.call.id;
        let call = call(&mut self.call, self.peer.number, self.started);
        let last = match self.ask(call).await {
            Ok(Answer { output, timing, stream: None }) => ServerFrame::Answer(output, timing),
            Ok(Answer { output, timing, stream: Some(rest) }) => {
                drop(
                    sender.send(CallFrame { id, frame: ServerFrame::First(output, timing) }).await,
                );
                self.pieces(rest, &sender).await
            }
            Err(error) => self.failed(&error),
        };
        self.note(&last);
        drop(sender.send(CallFrame { id, frame: last }).await);
    }

    async fn ask(&self, call: Call) -> Result<Answer, CallError> {
        let (meter, version_named) = (&self.state.config.meter, self.call.version.is_some());
        meter.asked(&self.model, version_named);
        let _place = self.place(call.deadline).await?;
        let answer = self.model.call(call).await?;
        let (queue, compute) = (answer.timing.queue, answer.timing.compute);
        meter.answered(&self.model, version_named, queue, queue + compute);
        Ok(answer)
    }

    /// Waits for a place in the model's queue, as long as the call is worth it.
    async fn place(&self, deadline: Option<Instant>) -> Result<Option<Place<'_>>, CallError> {
        match (self.room.try_acquire(), deadline) {
            (Ok(place), _) => Ok(Some(place)),
            (Err(_), None) => Ok(self.room.acquire().await.ok()),
            (Err(_), Some(deadline)) => {
                let place = tokio::time::timeout_at(deadline, self.room.acquire()).await;
                let late =
                    |_| CallError::Rejected { reason: Rejection::Expired, retry_after: None };
                Ok(place.map_err(late)?.ok())
            }
        }
    }

    /// Says the rest of a stream; gives its last frame.
    async fn pieces(
        &self,
        mut rest: AnswerStream,
        sender: &mpsc::Sender<CallFrame>,
    ) -> ServerFrame {
        let id = self.call.id;
        while let Some(piece) = rest.next().await {
            match piece {
                Ok(piece) => {
                    drop(sender.send(CallFrame { id, frame: ServerFrame::Chunk(piece) }).await)
                }
                Err(error) => return self.failed(&error),
            }
        }
        ServerFrame::End
    }

    fn failed(&self, error: &CallError) -> ServerFrame {
        let (model, version) = (self.call.model.as_str(), self.call.version.as_deref());
        let queue_max = self.model.settings().waiting_max();
        let asked = FailedCall { model, version, purpose: "inference", queue_max };
        ServerFrame::Failed(asked.problem(error))
    }

    fn note(&self, last: &ServerFrame) {
        let status = match last {
            ServerFrame::Failed(problem) => problem.status,
            ServerFrame::Answer(..)
            | ServerFrame::First(..)
            | ServerFrame::Chunk(_)
            | ServerFrame::End => 200,
        };
        let config = &self.state.config;
        config.meter.responded(StatusCode::from_u16(status).unwrap_or_default());
        let Some(log) = &config.access_log else { return };
        let Ok(method) = Method::from_bytes(b"PYTHON") else { return };
        log.write(&AccessRecord {
            address: &self.peer.address,
            method: &method,
            uri: &format_args!("/{}/{}", self.call.model, self.call.endpoint),
            version: Version::HTTP_11,
            status,
            took: self.started.elapsed(),
        });
    }
}

fn call(call: &mut HandleCall, peer: u64, started: Instant) -> Call {
    let claim = std::mem::take(&mut call.claim);
    let mut headers = HeaderBlock::default();
    declare(&claim, &mut headers);
    headers.push("url_path", call.endpoint.as_bytes());
    let value = std::mem::take(&mut call.body);
    let parameter = if call.content_type.is_empty() {
        Parameter { name: CALL_PARAMETER.into(), content_type: "".into(), value }
    } else {
        let content_type = std::mem::take(&mut call.content_type).into();
        Parameter { name: "body".into(), content_type, value }
    };
    let id = RequestUuid::fresh().text().to_owned();
    Call {
        input: Input { id, headers, parameters: vec![parameter] },
        deadline: call.timeout.and_then(|timeout| started.checked_add(timeout)),
        origin: Origin { kind: OriginKind::Python, peer },
        priority: call.priority,
        claim,
        alone: false,
    }
}

/// A model reads who asks in the headers, however it was asked.
fn declare(claim: &Claim, headers: &mut HeaderBlock) {
    if let Some(tenant) = &claim.tenant {
        headers.push(claim::TENANT.as_str(), tenant.as_bytes());
    }
    if let Some(cost) = claim.cost {
        headers.push(claim::COST.as_str(), cost.to_string().as_bytes());
    }
}
