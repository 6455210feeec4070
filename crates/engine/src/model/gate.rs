//! A request's way from its protocol to the task of its model: checked, weighed, admitted, sent.
//!
//! All of it happens on the caller's own task and needs no state of the model's, so that a rejection
//! costs the model nothing. Past this file a request is valid and has its permit; its caller waits
//! for one answer, and a caller that stops waiting takes the request back out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use jitney_batcher::{OriginKind, Rejection, Request};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::endpoints::Objective;
use super::intake::{Intake, too_many};
use super::messages::RequestMessage;
use super::model_ids::ModelIds;
use super::parts::{self, SplitReply};
use super::scheduler::ModelClock;
use super::seed::LazyTask;
use super::state::{ModelState, add};
use crate::admission::{Admission, Permit};
use crate::call::{Call, DecodedInput, RequestMark};
use crate::data_threads::ModelThreads;
use crate::error::{CallError, LoadingWait, WaitLimit};
use crate::pending::{Payload, PendingRequest, SharedId};
use crate::reply::{Answer, AnswerReceiver, Reply};
use crate::settings::ModelSettings;

/// Where requests enter a model version.
pub(crate) struct RequestGate {
    pub(crate) settings: ArcSwap<ModelSettings>,
    pub(crate) intake: Intake,
    pub(crate) admission: Arc<Admission>,
    pub(crate) task: LazyTask,
    pub(crate) published: Arc<ModelState>,
    pub(crate) clock: ModelClock,
    pub(crate) threads: ModelThreads,
    /// For models that workers load when requests name them.
    pub(crate) models: Option<ModelIds>,
}

/// What all parts of a request are made from.
struct WholeInput<'a> {
    input: &'a dyn DecodedInput,
    id: &'a str,
    mark: Option<RequestMark>,
}

/// An admitted request, as its caller holds it.
enum Admitted<'a> {
    Whole(AnswerReceiver, CancelOnDrop<'a>),
    InParts(SplitReply<'a>),
}

impl RequestGate {
    /// Admits one request at once, unless the server is shutting down, so that the future that answers it holds
    /// nothing of it. Dropping the future means that the client went away.
    pub(super) fn call(
        &self,
        call: Call,
        drains: bool,
    ) -> impl Future<Output = Result<Answer, CallError>> {
        add(&self.published.requests, 1);
        let own_deadline = call.deadline;
        let admitted = match drains {
            true => Err(CallError::rejected(Rejection::Draining)),
            false => self.admit(call),
        };
        async move {
            let mut answer = match admitted {
                Ok(Admitted::Whole(answer, cancel_on_drop)) => {
                    let answer = match self.threads.wakes_here() {
                        None => answer.await,
                        Some(wakes) => wakes.wait_for(answer).await,
                    };
                    cancel_on_drop.disarm();
                    answer.unwrap_or(Err(CallError::Gone))
                }
                Ok(Admitted::InParts(reply)) => reply.answer().await,
                Err(error) => return Err(self.count(error)),
            };
            if let Err(CallError::Loading(wait)) = &mut answer {
                wait.limit = self.named(*wait, own_deadline);
            }
            answer
        }
    }

    /// The limit that ended a wait by its right name: most deadlines come from the model's settings.
    fn named(&self, wait: LoadingWait, own_deadline: Option<Instant>) -> WaitLimit {
        let LoadingWait { limit, at_once, .. } = wait;
        let passed = |deadline: Instant| match limit {
            // It was looked at a moment ago, when it came.
            WaitLimit::Deadline(time) if at_once => deadline <= Instant::now() + time,
            WaitLimit::Deadline(_)
            | WaitLimit::MaxLatency(_)
            | WaitLimit::ClientTimeout(_)
            | WaitLimit::StartupWait(_) => deadline <= Instant::now(),
        };
        match limit {
            WaitLimit::Deadline(_) if own_deadline.is_some_and(passed) => limit,
            WaitLimit::Deadline(time) if time == self.settings.load().client_timeout => {
                WaitLimit::ClientTimeout(time)
            }
            WaitLimit::Deadline(time) => WaitLimit::MaxLatency(time),
            other @ (WaitLimit::MaxLatency(_)
            | WaitLimit::ClientTimeout(_)
            | WaitLimit::StartupWait(_)) => other,
        }
    }

    fn count(&self, error: CallError) -> CallError {
        add(&self.published.rejected, 1);
        self.published.meters.rejected(&error);
        error
    }

    fn admit(&self, call: Call) -> Result<Admitted<'_>, CallError> {
        if !self.published.admits.load(Ordering::Relaxed) {
            return Err(self.published.no_worker());
        }
        let settings = self.settings.load();
        let admitted = Instant::now();
        let Call { input, mut claim, .. } = call;
        let (bytes, value_bytes) = (input.weight(), input.value_bytes());
        let model = self.models.as_ref().map_or(0, |models| models.number_of(&input.headers));
        let accepted = self.intake.accept(input, value_bytes, claim.items, settings.items_max())?;
        if let Some(endpoint) = accepted.endpoint {
            self.published.endpoints.requested(endpoint);
        }
        if self.published.poison.get().is_some_and(|poison| poison.rejects(&accepted.payload)) {
            return Err(CallError::Poisonous);
        }
        let items = accepted.items;
        let all_items = u64::from(items) + u64::from(accepted.beyond);
        let items_max = self.admission.limits().request_items;
        if all_items > items_max {
            return Err(too_many(all_items, &format!("a request may bring at most {items_max}")));
        }
        let mut permit = self.admission.admit(all_items, bytes)?;
        if let Some(quota) = &call.quota {
            permit.charge(quota, admitted)?;
        }
        claim.cost = accepted.cost.or(claim.cost);
        let mut weight = settings.shares.weigh(&claim, accepted.length, items, value_bytes);
        if !accepted.takes_batches {
            // Others would wait for its end behind it, while other workers are idle.
            weight.cost = settings.shares.filling(weight.cost);
        }
        let deadline = earliest(call.deadline, accepted.objective, &settings, admitted);
        let facts = Request {
            deadline: self.clock.deadline(deadline),
            items,
            cost: weight.cost,
            tenant: weight.tenant,
            group: accepted.group,
            model,
            priority: call.priority,
            origin: call.origin,
            // What a caller in Python sends at once, it has written at once. The model's task sees whether it did.
            followed: accepted.takes_batches && call.origin.kind == OriginKind::Python,
            ..Request::new(SharedId::UNSET)
        };
        let payload = match accepted.payload {
            Payload::Decoded(input, id, _)
                if accepted.splits && items > parts::size(settings.items_max()) =>
            {
                let whole = WholeInput { input: &*input, id: &id, mark: call.mark };
                let reply = self.admit_parts(&whole, facts, admitted, &settings, permit)?;
                return Ok(Admitted::InParts(reply));
            }
            whole @ (Payload::Raw(_) | Payload::Decoded(..)) => whole,
        };
        let (reply, answer) = Reply::new();
        let mut request = PendingRequest::new(facts, payload, admitted, reply, Some(permit));
        (request.beyond, request.endpoint) = (accepted.beyond, accepted.endpoint);
        (request.mark, request.deadline) = (call.mark, deadline);
        request.tenant = claim.tenant;
        let inbox = &self.task.inbox;
        let cancel_on_drop = CancelOnDrop { inbox, id: Some(request.id.clone()) };
        RequestMessage::Submit(request).send(inbox)?;
        Ok(Admitted::Whole(answer, cancel_on_drop))
    }

    /// Sends a request in parts, which differ in nothing but their items and what they cost. More than may
    /// wait at a time is sent in waves.
    fn admit_parts(
        &self,
        whole: &WholeInput<'_>,
        facts: Request,
        admitted: Instant,
        settings: &ModelSettings,
        permit: Permit,
    ) -> Result<SplitReply<'_>, CallError> {
        let size = parts::size(settings.items_max());
        let inputs = whole.input.split(size);
        let count = inputs.len();
        let wave = parts::wave(facts.items, settings.items_waiting_max(), size);
        let (replies, answers) = Reply::of_parts(count, permit);
        let part = |(at, (input, reply)): (usize, (Arc<dyn DecodedInput>, Reply))| {
            let items = input.items();
            let cost = parts::cost(facts.cost, items, facts.items);
            let more = at + 1 < count && !(at + 1).is_multiple_of(wave);
            let facts = Request { items, cost, more, followed: false, ..facts };
            let payload = Payload::Decoded(input, whole.id.into(), None);
            let mut part = PendingRequest::new(facts, payload, admitted, reply, None);
            part.mark.clone_from(&whole.mark);
            part
        };
        let parts: Vec<_> = inputs.into_iter().zip(replies).enumerate().map(part).collect();
        let deadline = (facts.deadline < u64::MAX).then(|| self.clock.instant(facts.deadline));
        let mut reply = SplitReply::new(
            &self.task.inbox,
            &self.published,
            answers,
            parts,
            wave,
            admitted,
            deadline,
        );
        reply.submit()?;
        Ok(reply)
    }
}

/// The deadline of a request that need not hurry, where the batcher would give one without any the
/// model's objective.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// The request's own deadline, its objective and the client timeout: whichever is first.
fn earliest(
    own: Option<Instant>,
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
    own.into_iter().chain(client).chain(objective).min()
}

/// Takes the request out of the model when its caller stops waiting.
struct CancelOnDrop<'a> {
    inbox: &'a mpsc::Sender<RequestMessage>,
    id: Option<SharedId>,
}

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        // Without an id the task has not taken the request in and will see its closed reply. If the
        // inbox is full, the request is run for nothing: that costs room, and harms no other request.
        if let Some(id) = self.id.take().and_then(|id| id.get()) {
            drop(self.inbox.try_send(RequestMessage::Cancel(id)));
        }
    }
}
