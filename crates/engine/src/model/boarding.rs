//! A request's way from the door to the task of its model: checked, weighed, admitted, sent off.
//!
//! All of it happens on the caller's own task and needs no state of the model's, so that a refusal
//! costs the model nothing. Past this file a request is valid and has its permit; its caller waits
//! for one answer, and a caller that stops waiting takes the request back out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_batcher::Rejection;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Model;
use super::board::add;
use super::intake::Accepted;
use super::messages::{Message, Ticket};
use super::objectives::Objective;
use super::parts::{self, SplitReply};
use super::passenger::Passenger;
use crate::call::{Answer, Call, Payload};
use crate::error::CallError;
use crate::reply::{AnswerReceiver, Reply};
use crate::settings::ModelSettings;

/// A request on its way, as its caller holds it.
enum Admitted<'a> {
    Whole(AnswerReceiver, DepartedClient<'a>),
    InParts(SplitReply<'a>),
}

impl Model {
    /// Answers one request. Dropping the future means that the client went away.
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        if self.refusing.load(Ordering::Relaxed) {
            add(&self.board.requests, 1);
            return Err(self.refused(refusal(Rejection::Draining)));
        }
        self.carry_on(call).await
    }

    /// Like [`Model::call`], for what was admitted before: it goes on while the server drains.
    pub(crate) async fn carry_on(&self, call: Call) -> Result<Answer, CallError> {
        add(&self.board.requests, 1);
        let (answer, departed_client) = match self.admit(call) {
            Ok(Admitted::Whole(answer, departed_client)) => (answer, departed_client),
            Ok(Admitted::InParts(split)) => return split.answer().await,
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let answer = answer.await.unwrap_or(Err(CallError::Gone));
        departed_client.disarm();
        answer
    }

    fn refused(&self, refusal: CallError) -> CallError {
        add(&self.board.rejected, 1);
        self.board.meters.refused(&refusal);
        refusal
    }

    fn admit(&self, call: Call) -> Result<Admitted<'_>, CallError> {
        if !self.board.has_workers.load(Ordering::Relaxed) {
            return Err(refusal(Rejection::NoWorker));
        }
        let settings = self.settings.load();
        let admitted = Instant::now();
        let (priority, origin) = (call.priority, call.origin);
        let (bytes, value_bytes) = (call.input.weight(), call.input.value_bytes());
        let accepted = self.intake.accept(call.input, settings.items_max())?;
        let permit = self.admission.admit(u64::from(accepted.items), bytes)?;
        let Accepted { payload, items, bucket, splits, objective, length } = accepted;
        let deadline = earliest(call.deadline, objective, &settings, admitted);
        let weight = settings.shares.weigh(&call.claim, length, items, value_bytes);
        let passenger = Passenger { items, weight, deadline, admitted, bucket, priority, origin };
        let payload = match payload {
            Payload::Decoded(input) if splits && items > parts::size(settings.items_max()) => {
                let split = self.admit_in_parts(&*input, &passenger, &settings, permit)?;
                return Ok(Admitted::InParts(split));
            }
            whole @ (Payload::Raw(_) | Payload::Decoded(_)) => whole,
        };
        let (reply, answer) = Reply::new();
        let arrival = passenger.arrival(payload, reply, Some(permit));
        let ticket = Some(arrival.ticket.clone());
        let departed_client = DepartedClient { inbox: &self.inbox, ticket };
        self.send(Message::Arrive(arrival))?;
        Ok(Admitted::Whole(answer, departed_client))
    }

    /// Puts a message before the model's task; the caller never waits for room.
    pub(super) fn send(&self, message: Message) -> Result<(), CallError> {
        use mpsc::error::TrySendError;
        self.inbox.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => refusal(Rejection::QueueFull),
            TrySendError::Closed(_) => CallError::Gone,
        })
    }
}

fn refusal(reason: Rejection) -> CallError {
    CallError::Rejected { reason, retry_after: None }
}

/// The deadline of a request that need not hurry, where the batcher would give one without any the
/// model's objective.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// The request's own deadline, its objective and the client timeout: whichever is first.
fn earliest(
    asked: Option<Instant>,
    objective: Objective,
    settings: &ModelSettings,
    now: Instant,
) -> Option<Instant> {
    let client = (!settings.client_timeout.is_zero()).then(|| now + settings.client_timeout);
    let objective = match objective {
        Objective::Models => settings.latency_max,
        Objective::Own(latency) => Some(latency),
        Objective::Free => settings.latency_max.map(|_| FAR),
    };
    let objective = objective.map(|latency| now + latency);
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
