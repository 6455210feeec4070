//! A model version as the doors hold it: call it, scale it, look at it.
//!
//! Behind every [`Model`] runs one [`task`], the only writer of the version's state. The handle
//! does what needs no state on the caller's own task: it checks the input, takes the permit, and
//! hands the request over; dropping the returned future takes the request back out.

mod announced;
mod board;
mod endpoints;
mod insight;
mod intake;
mod measures;
mod passenger;
mod portions;
mod roster;
mod sample;
mod scatter;
mod sequence;
mod task;
mod wanted;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jitney_batcher::{Refusal, RequestId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub use self::announced::Announced;
pub(crate) use self::board::{Board, add};
pub use self::board::{Counters, Status};
pub(crate) use self::endpoints::{Endpoints, Resize};
pub use self::insight::{Decided, Insight, main_bucket};
pub(crate) use self::intake::Intake;
pub use self::measures::{Measures, REFUSALS, Traffic};
pub(crate) use self::sample::Sample;
pub use self::sequence::{SequenceHeaders, SequenceLimits};
pub(crate) use self::task::{State, Sweep, Task};
pub(crate) use self::wanted::Wanted;

use self::intake::Accepted;
use self::passenger::Passenger;
use self::portions::Joint;
use crate::admission::Admission;
use crate::call::{Answer, Call, Payload, Rider};
use crate::changes::Changes;
use crate::error::{CallError, ScaleError};
use crate::observer::ModelTag;
use crate::onnx::Signature;
use crate::reply::{AnswerReceiver, Reply};
use crate::settings::{PolicyName, Settings};
use crate::shares::Weight;
use crate::store::{Api, Fetched, ModelDir, Sha256};

/// Messages from the doors, in the order in which they came.
#[derive(Debug)]
pub(crate) enum Message {
    Arrive(Arrival),
    /// The portions of one request, in order.
    ArriveInPortions(Vec<Arrival>),
    /// The client of this request went away.
    Cancel(RequestId),
    /// Nobody waits for what is left of a request in portions.
    CancelPortions(Vec<Ticket>),
    /// The head of a request from there has arrived.
    Announce(crate::call::Origin),
    /// The rest of it will not.
    Retract(crate::call::Origin),
}

/// A request on its way from the door to the model's task.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) rider: Rider,
    pub(crate) deadline: Option<Instant>,
    pub(crate) bucket: u16,
    pub(crate) weight: Weight,
    pub(crate) priority: crate::call::Priority,
    pub(crate) origin: crate::call::Origin,
    pub(crate) ticket: Ticket,
}

/// What a sequence must know about the one of it that is on its way, beside its rider.
#[derive(Debug)]
pub(crate) struct Passage {
    pub(crate) sequence: usize,
    pub(crate) number: u64,
    pub(crate) worker: u32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) weight: Weight,
    pub(crate) priority: crate::call::Priority,
    pub(crate) origin: crate::call::Origin,
    pub(crate) ticket: Ticket,
}

/// A request on its way, as its caller holds it.
enum Admitted<'a> {
    Whole(AnswerReceiver, DepartedClient<'a>),
    InPortions(Joint<'a>),
}

/// How the door learns the name under which its request boarded: 0 until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<AtomicU64>);

impl Ticket {
    pub(crate) fn stamp(&self, id: RequestId) {
        // Generations start at 1, so a stamped ticket is never 0.
        self.0.store(id.0, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Option<RequestId> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            id => Some(RequestId(id)),
        }
    }
}

/// Wishes of the operator.
#[derive(Debug)]
pub(crate) enum Control {
    Scale {
        min: u32,
        max: u32,
        reply: oneshot::Sender<Result<(), ScaleError>>,
    },
    Reconfigure {
        settings: Arc<Settings>,
        reply: oneshot::Sender<()>,
    },
    /// What was learned and decided?
    Explain {
        reply: oneshot::Sender<Insight>,
    },
    /// Answer what was admitted, then end; by force when `grace` is over.
    Close {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
}

/// Changes to a live model; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconfigure {
    /// The endpoint of a definition whose batch size changes; all of them if none is named.
    pub endpoint: Option<String>,
    /// Most items in a batch.
    pub batch_size: Option<u32>,
    /// The window in milliseconds.
    pub max_batch_delay_ms: Option<u64>,
    /// The latency objective in milliseconds; 0 for none.
    pub max_latency_ms: Option<u64>,
    /// When batches leave.
    pub policy: Option<PolicyName>,
    /// Requests that may wait.
    pub queue_max: Option<u32>,
    /// Weights of tenants, in place of those there are.
    pub tenants: Option<Vec<(String, u32)>>,
}

/// One version of a model.
pub struct Model {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) url: String,
    pub(crate) sha256: Option<Sha256>,
    pub(crate) at_startup: bool,
    /// The workflow that it is a node of.
    pub(crate) workflow: Option<String>,
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) intake: Intake,
    pub(crate) admission: Arc<Admission>,
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) inbox: mpsc::Sender<Message>,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) board: Arc<Board>,
    pub(crate) tag: Arc<ModelTag>,
    /// Calls that named no version, and calls that named this one.
    pub(crate) traffic: [Traffic; 2],
    pub(crate) wanted: Wanted,
    pub(crate) changes: Changes,
    /// The unpacked archive, removed with the model.
    pub(crate) _dir: Option<ModelDir>,
    /// What was downloaded for it, removed when it is unregistered.
    pub(crate) fetched: Option<Fetched>,
}

impl Model {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it came from, as it was asked for.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The sum that its file must have, where somebody said one.
    pub fn sha256(&self) -> Option<Sha256> {
        self.sha256
    }

    /// Whether the server loaded it at start-up.
    pub fn at_startup(&self) -> bool {
        self.at_startup
    }

    /// The workflow that it is a node of, if it is one.
    pub fn workflow(&self) -> Option<&str> {
        self.workflow.as_deref()
    }

    /// Whether it is a function of a workflow, which no archive of its own stands behind.
    pub fn is_function(&self) -> bool {
        self.workflow.is_some() && self.url.is_empty()
    }

    /// What it takes and gives, where that is known: of models that run in this process.
    pub fn signature(&self) -> Option<&Signature> {
        match &self.intake {
            Intake::Onnx(model) => Some(model.signature()),
            Intake::Python | Intake::Defined(_) => None,
        }
    }

    /// What it says about its API: definitions in Python do.
    pub fn api(&self) -> Option<&Api> {
        self.intake.api()
    }

    /// Its effective settings.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// A look at its workers, queue and counters.
    pub fn status(&self) -> Status {
        self.board.status(self.settings.load().queue_max, self.wanted())
    }

    /// What was measured about its rides.
    pub fn measures(&self) -> Measures {
        self.board.meters.read()
    }

    /// Its name in the books.
    pub fn tag(&self) -> &Arc<ModelTag> {
        &self.tag
    }

    /// Where the doors count calls, apart by whether the caller named the version.
    pub fn traffic(&self, version_named: bool) -> &Traffic {
        &self.traffic[usize::from(version_named)]
    }

    /// TorchServe's health of this version.
    pub fn healthy(&self) -> bool {
        !self.board.unhealthy.load(Ordering::Relaxed)
    }

    /// Answers one request. Dropping the future means that the client went away.
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        if self.draining.load(Ordering::Relaxed) {
            add(&self.board.requests, 1);
            return Err(self.refused(refusal(Refusal::Draining)));
        }
        self.carry_on(call).await
    }

    /// Like [`Model::call`], for what was admitted before: it goes on while the server drains.
    pub(crate) async fn carry_on(&self, call: Call) -> Result<Answer, CallError> {
        add(&self.board.requests, 1);
        let (answer, departed_client) = match self.admit(call) {
            Ok(Admitted::Whole(answer, departed_client)) => (answer, departed_client),
            Ok(Admitted::InPortions(joint)) => return joint.answer().await,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let answer = answer.await.unwrap_or(Err(CallError::Gone));
        departed_client.disarm();
        answer
    }

    fn refused(&self, refusal: CallError) -> CallError {
        add(&self.board.refused, 1);
        self.board.meters.refused(&refusal);
        refusal
    }

    fn admit(&self, call: Call) -> Result<Admitted<'_>, CallError> {
        if !self.board.hopeful.load(Ordering::Relaxed) {
            return Err(refusal(Refusal::NoWorker));
        }
        let settings = self.settings.load();
        let admitted = Instant::now();
        let deadline = earliest(call.deadline, &settings, admitted);
        let (priority, origin, alone) = (call.priority, call.origin, call.alone);
        let (bytes, value_bytes) = (call.input.weight(), call.input.value_bytes());
        let accepted = self.intake.accept(call.input, alone, settings.items_max())?;
        let permit = self.admission.admit(u64::from(accepted.items), bytes)?;
        let Accepted { payload, items, bucket, splits, length } = accepted;
        let weight = settings.shares.weigh(&call.claim, length, items, value_bytes);
        let passenger = Passenger { items, weight, deadline, admitted, bucket, priority, origin };
        let payload = match payload {
            Payload::Tensors(tensors) if splits && items > portions::size(settings.items_max()) => {
                let joint = self.admit_in_portions(tensors, &passenger, &settings, permit)?;
                return Ok(Admitted::InPortions(joint));
            }
            whole @ (Payload::Raw(_) | Payload::Tensors(_)) => whole,
        };
        let (reply, answer) = Reply::new();
        let arrival = passenger.arrival(payload, reply, Some(permit));
        let ticket = Some(arrival.ticket.clone());
        let departed_client = DepartedClient { inbox: &self.inbox, ticket };
        self.board(Message::Arrive(arrival))?;
        Ok(Admitted::Whole(answer, departed_client))
    }

    fn board(&self, message: Message) -> Result<(), CallError> {
        use mpsc::error::TrySendError;
        self.inbox.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => refusal(Refusal::QueueFull),
            TrySendError::Closed(_) => CallError::Gone,
        })
    }

    /// Changes the number of workers; resolves when `min` are ready or one failed to start. The
    /// change itself goes on when the future is dropped.
    pub async fn scale(&self, min: u32, max: u32) -> Result<(), ScaleError> {
        self.want(min, max);
        let scaled = self.ask(|reply| Control::Scale { min, max, reply }).await;
        scaled.unwrap_or(Err(ScaleError::Gone))?;
        self.changes.note();
        Ok(())
    }

    /// The fewest and the most workers that were asked for last, whether or not they run yet.
    pub fn wanted(&self) -> (u32, u32) {
        self.wanted.get()
    }

    /// Says how many workers [`Model::scale`] is about to be asked for.
    pub fn want(&self, min: u32, max: u32) {
        self.wanted.set(min, max);
    }

    /// Changes how batches leave, at once.
    pub async fn reconfigure(&self, change: Reconfigure) -> Result<(), String> {
        let resize = self.intake.resize(&change)?;
        let batch_size = resize.as_ref().map_or(change.batch_size, |resize| Some(resize.model));
        let settings = self.settings().changed(&Reconfigure { batch_size, ..change })?;
        if let Some((resize, endpoints)) = resize.zip(self.intake.endpoints()) {
            endpoints.apply(&resize);
        }
        let settings = Arc::new(settings);
        self.settings.store(Arc::clone(&settings));
        self.ask(|reply| Control::Reconfigure { settings, reply })
            .await
            .ok_or_else(|| "the model was removed".to_owned())?;
        self.changes.note();
        Ok(())
    }

    /// The largest batches of a definition's endpoints, as they are now.
    pub fn endpoint_sizes(&self) -> BTreeMap<String, u32> {
        self.intake.endpoints().map(Endpoints::sizes).unwrap_or_default()
    }

    /// What its batcher has learned and decided; none if it has just gone.
    pub async fn insight(&self) -> Option<Insight> {
        self.ask(|reply| Control::Explain { reply }).await
    }

    /// The learned service times, at most a second old while batches run.
    pub fn curve(&self) -> Arc<Vec<jitney_batcher::CurvePoint>> {
        self.board.curve.load_full()
    }

    /// Answers what was admitted and ends the workers; by force when `grace` is over.
    pub(crate) async fn close(&self, grace: Duration) {
        self.ask(|reply| Control::Close { grace, reply }).await;
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Control) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.control.send(question(reply)).await.ok()?;
        answer.await.ok()
    }
}

fn refusal(reason: Refusal) -> CallError {
    CallError::Refused { reason, retry_after: None }
}

/// The request's own deadline, the model's objective and the client timeout: whichever is first.
fn earliest(asked: Option<Instant>, settings: &Settings, now: Instant) -> Option<Instant> {
    let client = (!settings.client_timeout.is_zero()).then(|| now + settings.client_timeout);
    let objective = settings.latency_max.map(|latency| now + latency);
    asked.into_iter().chain(client).chain(objective).min()
}

/// Takes the request out of the model when its caller stops waiting.
struct DepartedClient<'a> {
    inbox: &'a mpsc::Sender<Message>,
    ticket: Option<Ticket>,
}

impl DepartedClient<'_> {
    fn disarm(mut self) {
        self.ticket = None;
    }
}

impl Drop for DepartedClient<'_> {
    fn drop(&mut self) {
        // Not boarded yet: the task sees the closed reply when it takes the request in. A full
        // inbox: the request rides for nobody, which costs a place but harms no one.
        if let Some(id) = self.ticket.take().and_then(|ticket| ticket.read()) {
            drop(self.inbox.try_send(Message::Cancel(id)));
        }
    }
}
