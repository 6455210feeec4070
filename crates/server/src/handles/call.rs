//! One call of a handle: find the model, ask it, say what it says, word by word.
//!
//! It runs as a task of its connection; when that ends, or the client cancels, the task is dropped
//! and the request leaves its queue. It says its last word exactly once.

use std::sync::Arc;

use http::{Method, StatusCode, Version};
use jitney_engine::Model;
use jitney_engine::Rejection;
use jitney_engine::call::{
    Answer, Call, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, AnswerStream,
};
use jitney_engine::error::CallError;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::Instant;

use super::frame::{Wanted, Word};
use crate::access::Line;
use crate::connection::Peer;
use crate::door::House;
use crate::errors::Asked;
use crate::request_id::RequestId;
use crate::rest::claim;

/// The parameter that holds the arguments of a definition; no Python parameter can have this name.
const CALL_PARAMETER: &str = "jitney-call";

type Place<'a> = SemaphorePermit<'a>;

/// A word about a call, on its way to the connection.
pub(super) struct Said {
    pub(super) id: u64,
    pub(super) word: Word,
}

/// A call that is about to be made.
pub(super) struct Ask {
    pub(super) house: Arc<House>,
    pub(super) peer: Arc<Peer>,
    pub(super) model: Arc<Model>,
    /// The handles' room in the model's queue.
    pub(super) room: Arc<Semaphore>,
    pub(super) wanted: Wanted,
    pub(super) started: Instant,
}

impl Ask {
    /// Makes the call. Nobody hears a word where the connection has ended, and this with it.
    pub(super) async fn run(mut self, mouth: mpsc::Sender<Said>) {
        let id = self.wanted.id;
        let call = call(&mut self.wanted, self.peer.number, self.started);
        let last = match self.ask(call).await {
            Ok(Answer { output, timing, stream: None }) => Word::Answer(output, timing),
            Ok(Answer { output, timing, stream: Some(rest) }) => {
                drop(mouth.send(Said { id, word: Word::First(output, timing) }).await);
                self.pieces(rest, &mouth).await
            }
            Err(error) => self.failed(&error),
        };
        self.note(&last);
        drop(mouth.send(Said { id, word: last }).await);
    }

    async fn ask(&self, call: Call) -> Result<Answer, CallError> {
        let (meter, version_named) = (&self.house.config.meter, self.wanted.version.is_some());
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
                let late = |_| CallError::Rejected { reason: Rejection::Expired, retry_after: None };
                Ok(place.map_err(late)?.ok())
            }
        }
    }

    /// Says the rest of a stream; gives its last word.
    async fn pieces(&self, mut rest: AnswerStream, mouth: &mpsc::Sender<Said>) -> Word {
        let id = self.wanted.id;
        while let Some(piece) = rest.next().await {
            match piece {
                Ok(piece) => drop(mouth.send(Said { id, word: Word::Chunk(piece) }).await),
                Err(error) => return self.failed(&error),
            }
        }
        Word::End
    }

    fn failed(&self, error: &CallError) -> Word {
        let (model, version) = (self.wanted.model.as_str(), self.wanted.version.as_deref());
        let queue_max = self.model.settings().waiting_max();
        let asked = Asked { model, version, purpose: "inference", queue_max };
        Word::Failed(asked.problem(error))
    }

    fn note(&self, last: &Word) {
        let status = match last {
            Word::Failed(problem) => problem.status,
            Word::Answer(..) | Word::First(..) | Word::Chunk(_) | Word::End => 200,
        };
        let config = &self.house.config;
        config.meter.responded(StatusCode::from_u16(status).unwrap_or_default());
        let Some(log) = &config.access_log else { return };
        let Ok(method) = Method::from_bytes(b"PYTHON") else { return };
        log.write(&Line {
            address: &self.peer.address,
            method: &method,
            uri: &format_args!("/{}/{}", self.wanted.model, self.wanted.endpoint),
            version: Version::HTTP_11,
            status,
            took: self.started.elapsed(),
        });
    }
}

fn call(wanted: &mut Wanted, peer: u64, started: Instant) -> Call {
    let claim = std::mem::take(&mut wanted.claim);
    let mut headers = HeaderBlock::default();
    declare(&claim, &mut headers);
    headers.push("url_path", wanted.endpoint.as_bytes());
    let value = std::mem::take(&mut wanted.body);
    let parameter = if wanted.content_type.is_empty() {
        Parameter { name: CALL_PARAMETER.into(), content_type: "".into(), value }
    } else {
        let content_type = std::mem::take(&mut wanted.content_type).into();
        Parameter { name: "body".into(), content_type, value }
    };
    let id = RequestId::fresh().text().to_owned();
    Call {
        input: Input { id, headers, parameters: vec![parameter] },
        deadline: wanted.timeout.and_then(|timeout| started.checked_add(timeout)),
        origin: Origin { kind: OriginKind::Python, peer },
        priority: wanted.priority,
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
