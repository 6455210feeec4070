//! One call of a handle: find the model, ask it, say what it says, word by word.
//!
//! It runs as a task of its connection; when that ends, or the client cancels, the task is dropped
//! and the request leaves its queue. It says its last word exactly once.

use std::sync::Arc;

use http::{Method, StatusCode, Version};
use jitney_engine::Model;
use jitney_engine::call::{Answer, Call, HeaderBlock, Input, Origin, OriginKind, Parameter, Rest};
use jitney_engine::error::CallError;
use jitney_engine::Refusal;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::frame::{Wanted, Word};
use crate::access::Line;
use crate::connection::Peer;
use crate::door::House;
use crate::errors::{Asked, Problem};
use crate::request_id::RequestId;

/// The parameter that holds the arguments of a definition; no Python parameter can have this name.
const CALL_PARAMETER: &str = "jitney-call";

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
    /// Makes the call. The connection is gone where nobody hears a word.
    pub(super) async fn run(self, mouth: mpsc::Sender<Said>) {
        let Self { house, peer, model, room, mut wanted, started } = self;
        let id = wanted.id;
        let call = call(&mut wanted, peer.number, started);
        let version_named = wanted.version.is_some();
        house.config.meter.asked(&model, version_named);
        let answered = ask(&model, &room, call).await;
        let last = match answered {
            Ok(Answer { output, receipt, rest }) => {
                let (queue, compute) = (receipt.queue, receipt.compute);
                house.config.meter.answered(&model, version_named, queue, queue + compute);
                match rest {
                    None => Word::Answer(output, receipt),
                    Some(rest) => {
                        if mouth.send(Said { id, word: Word::First(output, receipt) }).await.is_err() {
                            return;
                        }
                        pieces(id, rest, &mouth).await.unwrap_or_else(|error| {
                            Word::Failed(problem(&wanted, &model, &error))
                        })
                    }
                }
            }
            Err(error) => Word::Failed(problem(&wanted, &model, &error)),
        };
        note(&house, &peer, &wanted, &last, started);
        // Nobody hears it: the connection has ended, and everything of it.
        drop(mouth.send(Said { id, word: last }).await);
    }
}

/// Waits for a place in the model's queue, then asks.
async fn ask(model: &Model, room: &Semaphore, call: Call) -> Result<Answer, CallError> {
    let _place = match (room.try_acquire(), call.deadline) {
        (Ok(place), _) => Some(place),
        (Err(_), None) => room.acquire().await.ok(),
        (Err(_), Some(deadline)) => {
            let place = tokio::time::timeout_at(deadline, room.acquire()).await;
            let late = |_| CallError::Refused { reason: Refusal::Expired, retry_after: None };
            place.map_err(late)?.ok()
        }
    };
    model.call(call).await
}

/// The rest of a stream; gives the last word.
async fn pieces(
    id: u64,
    mut rest: Rest,
    mouth: &mpsc::Sender<Said>,
) -> Result<Word, CallError> {
    while let Some(piece) = rest.next().await {
        drop(mouth.send(Said { id, word: Word::Chunk(piece?) }).await);
    }
    Ok(Word::End)
}

fn call(wanted: &mut Wanted, peer: u64, started: Instant) -> Call {
    let mut headers = HeaderBlock::default();
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
        alone: false,
    }
}

fn problem(wanted: &Wanted, model: &Model, error: &CallError) -> Problem {
    let queue_max = model.settings().queue_max;
    let version = wanted.version.as_deref();
    Asked { model: &wanted.model, version, purpose: "inference", queue_max }.problem(error)
}

fn note(house: &House, peer: &Peer, wanted: &Wanted, last: &Word, started: Instant) {
    let status = match last {
        Word::Failed(problem) => problem.status,
        Word::Answer(..) | Word::First(..) | Word::Chunk(_) | Word::End => 200,
    };
    house.config.meter.responded(StatusCode::from_u16(status).unwrap_or_default());
    let Some(log) = &house.config.access_log else { return };
    let Ok(method) = Method::from_bytes(b"PYTHON") else { return };
    let uri = format_args!("/{}/{}", wanted.model, wanted.endpoint);
    let (address, took) = (&peer.address, started.elapsed());
    log.write(&Line { address, method: &method, uri: &uri, version: Version::HTTP_11, status, took });
}
