//! The task of one model version: the only writer of its queue, its batches and its pool.
//!
//! It turns what happens (requests, cancellations, workers, the operator, the clock) into events for
//! the batcher, and the batcher's actions into batches and answers. It waits for nothing but its own
//! inboxes, so it can neither block nor be blocked. Here: the loop, the requests, what the operator
//! wants, and what the batcher decided, done in the order of its actions; `workers`: what happens to
//! workers; `load`: how many there are.

mod load;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_batcher::{Action, Actions, Config, Dispatch, Event, Rejection, Request, RequestId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::capacity::LiveCapacity;
use super::intake::ALONE;
use super::lifetime::{Closing, StartupWait};
use super::messages::{ControlMessage, RequestMessage};
use super::report::BatcherReport;
use super::reporter::Reporter;
use super::requests::{FailedTry, RequestTable, SequenceRequests, TableEntry, TurnRef};
use super::scatter;
use super::scheduler::{Alarm, ModelScheduler, SlotChange};
use super::state::{ModelState, add};
use super::warm_up::WarmUp;
use crate::error::CallError;
use crate::outcome::WorkerExit;
use crate::pending::{PendingRequest, SharedId};
use crate::pool::{ReplaceReason, WorkerBatch, WorkerEvent, WorkerPool};

/// Messages taken in at one go before workers and timers get their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// What a request is told whose worker has exited before anything was heard of how.
const UNEXPLAINED_EXIT: CallError = CallError::WorkerExited { exit: WorkerExit::UNEXPLAINED };

pub(crate) struct Task {
    pub(super) inbox: mpsc::Receiver<RequestMessage>,
    pub(super) control: mpsc::Receiver<ControlMessage>,
    pub(super) workers: mpsc::Receiver<WorkerEvent>,
    pub(super) published: Arc<ModelState>,
    pub(super) reporter: Reporter,
    pub(super) scheduler: ModelScheduler,
    pub(super) actions: Actions,
    pub(super) table: RequestTable,
    pub(super) sequences: SequenceRequests,
    pub(super) pool: WorkerPool,
    /// Batches that run beside others, of which the batcher knows nothing any more.
    pub(super) beside: u32,
    pub(super) startup: StartupWait,
    /// For models whose number of workers follows the load, or did.
    pub(super) capacity: Option<LiveCapacity>,
    /// For models that have a sample.
    pub(super) warm_up: Option<WarmUp>,
    pub(super) closing: Option<Closing>,
    /// When the learned curve was last published.
    pub(super) curve_published: Option<Instant>,
}

impl Task {
    /// Lives until the model is closed.
    pub(crate) async fn run(mut self) {
        let mut alarm = Alarm::new();
        let mut messages = Vec::new();
        while !self.is_over() {
            self.wait(&mut alarm, &mut messages).await;
            let waiting = self.scheduler.batcher.waiting() + self.sequences.waiting();
            self.published.waiting.store(waiting, Ordering::Relaxed);
        }
        self.pool.abort_all();
        self.reject_waiting(&CallError::rejected(Rejection::Draining), Instant::now());
        if let Some(closing) = self.closing {
            closing.finish();
        }
    }

    /// Waits for the next thing to happen and handles it. Requests that are already here are taken
    /// in before a free worker is served, so that they can join the batch it is given.
    async fn wait(&mut self, alarm: &mut Alarm, messages: &mut Vec<RequestMessage>) {
        let closing = self.closing.as_ref().map(|closing| closing.deadline);
        let next = self.scheduler.timer.into_iter().chain(closing).chain(self.sequences.alarm());
        let next = next.chain(self.startup.look_at);
        let next = next.chain(self.capacity.as_ref().and_then(LiveCapacity::alarm));
        let next = next.chain(self.pool.replace_alarm()).min();
        alarm.set(next, self.scheduler.is_adaptive());
        tokio::select! {
            biased;
            taken = self.inbox.recv_many(messages, MESSAGES_AT_ONCE) => {
                if taken == 0 {
                    // The last handle of the model is gone.
                    Closing::ask(&mut self.closing, Instant::now(), None);
                }
                let last = messages.len().saturating_sub(1);
                for (at, message) in messages.drain(..).enumerate() {
                    self.on_message(message, at < last);
                }
                if std::mem::take(&mut self.scheduler.undecided) {
                    // The last of those that came together left before it was given to the batcher.
                    self.step(Event::Timer);
                }
                // Under a flood of requests the others still get their turn.
                while let Ok(event) = self.workers.try_recv() {
                    self.on_worker(event);
                }
                while let Ok(message) = self.control.try_recv() {
                    self.on_control(message);
                }
            }
            Some(event) = self.workers.recv() => self.on_worker(event),
            Some(message) = self.control.recv() => self.on_control(message),
            rung = alarm.rings() => {
                self.expire_in_sequences();
                if self.startup.look_at.is_some() {
                    self.end_long_waits();
                }
                if self.capacity.is_some() {
                    self.follow_load();
                }
                if self.pool.replace_alarm().is_some_and(|at| at <= Instant::now()) {
                    // There may be memory by now for a worker in place of one that is worn.
                    self.pool_changed();
                }
                self.scheduler.rung = Some(rung);
                self.step(Event::Timer);
                self.scheduler.rung = None;
            }
        }
    }

    /// `followed` says that another message is here.
    fn on_message(&mut self, message: RequestMessage, followed: bool) {
        match message {
            RequestMessage::Submit(mut request) => {
                request.facts.followed &= followed && !self.sequences.enabled();
                self.on_request(request);
            }
            RequestMessage::SubmitParts(parts) => self.on_parts(parts),
            RequestMessage::Cancel(id) => {
                self.step(Event::Cancel { id });
                self.pool.caller_left();
            }
            RequestMessage::CancelParts(ids) => {
                let ids = ids.iter().filter_map(SharedId::get);
                ids.for_each(|id| self.step(Event::Cancel { id }));
            }
            RequestMessage::Announce(origin) => self.step(Event::Announce { origin }),
            RequestMessage::Retract(origin) => self.step(Event::Retract { origin }),
        }
    }

    fn on_request(&mut self, request: PendingRequest) {
        if let Some(capacity) = &mut self.capacity {
            capacity.wake();
        }
        if request.reply.is_closed() {
            add(&self.published.abandoned, 1);
            return;
        }
        if let Some(error) = self.never_served(&request) {
            return scatter::reject([request], &error, &self.published);
        }
        if !self.sequences.enabled() || request.facts.group == ALONE {
            self.admit(request, None);
        } else if self.closing.is_some() {
            let error = CallError::rejected(Rejection::Draining);
            scatter::reject([request], &error, &self.published);
        } else {
            // The alarm may not have rung yet.
            self.expire_in_sequences();
            if let Err((request, error)) = self.sequences.join(request) {
                scatter::end(request, Err(error), &self.published);
            }
        }
        self.admit_next_of_sequences();
    }

    /// The first part that is rejected takes the others with it, before any of them is dispatched.
    fn on_parts(&mut self, parts: Vec<PendingRequest>) {
        if let Some(capacity) = &mut self.capacity {
            capacity.wake();
        }
        // A caller that has left counts its request itself.
        let Some(first) = parts.first().filter(|first| !first.reply.is_closed()) else { return };
        if let Some(error) = self.never_served(first) {
            return scatter::reject(parts, &error, &self.published);
        }
        let mut admitted = Vec::with_capacity(parts.len());
        for part in parts {
            let id = self.admit(part, None);
            admitted.push(id);
            if !self.table.holds(id) {
                admitted.into_iter().for_each(|id| self.step(Event::Cancel { id }));
                return;
            }
        }
        self.admit_next_of_sequences();
    }

    /// Why a request that has just come is not admitted: there is no worker, or the first one comes too late for it.
    fn never_served(&self, request: &PendingRequest) -> Option<CallError> {
        // The last one may have been lost while the request was on its way.
        if !self.published.admits.load(Ordering::Relaxed) && self.closing.is_none() {
            return Some(self.published.no_worker());
        }
        self.startup.look_at?;
        self.too_long_wait(request).map(CallError::Loading)
    }

    /// Gives a request to the batcher.
    fn admit(&mut self, request: PendingRequest, turn: Option<TurnRef>) -> RequestId {
        let facts = request.facts;
        self.scheduler.undecided = facts.followed;
        let id = self.table.insert(request, turn);
        self.feed(Event::Arrive(Request { id, ..facts }));
        id
    }

    /// Gives the requests to the batcher whose turn it is.
    fn admit_next_of_sequences(&mut self) {
        while let Some((request, turn)) = self.sequences.next() {
            if request.reply.is_closed() {
                add(&self.published.abandoned, 1);
                self.sequences.answered(Some(turn));
            } else {
                self.admit(request, Some(turn));
            }
        }
    }

    /// Rejects every request that is not with a worker and was admitted until then.
    fn reject_waiting(&mut self, error: &CallError, until: Instant) {
        scatter::reject(self.sequences.take(until), error, &self.published);
        let waiting = self.table.waiting().filter(|request| request.admitted <= until);
        let waiting: Vec<_> = waiting.map(|request| request.facts.id).collect();
        for id in waiting {
            scatter::reject(self.table.take(id), error, &self.published);
            self.step(Event::Cancel { id });
        }
    }

    /// Rejects those whose deadline passed while they waited for a turn.
    fn expire_in_sequences(&mut self) {
        for request in self.sequences.expire() {
            let error = self.rejection(&request, Rejection::Expired, None);
            scatter::end(request, Err(error), &self.published);
        }
    }

    /// What a rejected request is told: while no worker is ready, that its deadline passed is not the
    /// point.
    fn rejection(
        &self,
        request: &PendingRequest,
        reason: Rejection,
        retry_after: Option<Duration>,
    ) -> CallError {
        let too_late = matches!(reason, Rejection::Expired | Rejection::Infeasible);
        if !too_late || self.closing.is_some() || self.pool.ready_count() > 0 {
            return CallError::Rejected { reason, retry_after };
        }
        CallError::Loading(self.loading_wait(self.deadline_of(request)))
    }

    fn on_control(&mut self, message: ControlMessage) {
        match message {
            ControlMessage::Scale { min, max, reply } => {
                for worker in self.pool.scale(min, max, reply) {
                    self.tell_slots(worker, SlotChange::Retired);
                }
                self.bound_workers(min, max);
                self.pool_changed();
            }
            ControlMessage::Reconfigure { settings, reply } => {
                let config = self.scheduler.sizes.configure(settings.batcher());
                let before = std::mem::discriminant(&self.scheduler.batcher.config().policy);
                let other_policy = before != std::mem::discriminant(&config.policy);
                // A second slot belongs to one policy only: others would fill it at once.
                let told = if other_policy { self.pool.ready() } else { Vec::new() };
                told.iter().for_each(|worker| self.tell_slots(*worker, SlotChange::Single));
                self.configure(config);
                told.into_iter().for_each(|worker| self.tell_slots(worker, SlotChange::Up));
                // A caller that does not wait any more is fine, here and below.
                let _ = reply.send(());
            }
            ControlMessage::Report { reply } => {
                let _ = reply
                    .send(BatcherReport::of(&self.scheduler.batcher, self.scheduler.clock.now()));
            }
            ControlMessage::Leave { reply } => {
                let idle = self.is_idle();
                if idle {
                    add(&self.published.left, 1);
                    self.end_workers();
                }
                let _ = reply.send(idle);
            }
            ControlMessage::Replace { worker, gpu } => {
                self.on_worker(WorkerEvent::Worn { worker, reason: ReplaceReason::GpuGone(gpu) });
            }
            ControlMessage::Close { grace, reply } => {
                Closing::ask(&mut self.closing, Instant::now() + grace, Some(reply));
                self.pool_changed();
            }
        }
    }

    /// Changes how requests are batched.
    fn configure(&mut self, config: Config) {
        self.step(Event::Configure(config));
        self.published.sizes.store(Arc::new(self.scheduler.batcher.config().sizes.clone()));
    }

    /// Whether the model is closed and nothing is left to do; takes the next step towards that.
    fn is_over(&mut self) -> bool {
        let in_sequences = self.sequences.waiting();
        let Some(closing) = &mut self.closing else { return false };
        if Instant::now() >= closing.deadline {
            return true;
        }
        if closing.begins_to_drain(in_sequences) {
            self.step(Event::Drain);
        }
        let drained = self.scheduler.batcher.drained() && self.beside == 0;
        if self.closing.as_mut().is_some_and(|closing| closing.stops_workers(drained)) {
            for worker in self.pool.retire_all() {
                self.tell_slots(worker, SlotChange::Retired);
            }
        }
        self.closing.as_ref().is_some_and(|closing| closing.is_over(self.pool.is_empty()))
    }

    /// Feeds one event to the batcher, does what it says, and lets sequences go on.
    fn step(&mut self, event: Event) {
        self.feed(event);
        self.admit_next_of_sequences();
    }

    /// Feeds one event to the batcher and does what it says.
    fn feed(&mut self, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        self.scheduler.step(event, &mut actions);
        for action in actions.iter() {
            match action {
                Action::Dispatch(dispatch) => self.dispatch(dispatch, &actions),
                Action::Reject { id, reason, retry_after } => {
                    self.reject(*id, *reason, retry_after.map(Duration::from_nanos));
                }
                Action::Fail { id, .. } => {
                    let TableEntry { request, failure, .. } = self.end(*id);
                    let (error, timing) = match failure.map(|it| *it) {
                        Some(FailedTry { error, timing }) => (error, Some(timing)),
                        None => (UNEXPLAINED_EXIT, None),
                    };
                    if let Some(request) = request {
                        scatter::fail(request, error, timing.as_ref(), &self.published);
                    }
                }
                Action::SetTimer(at) => {
                    self.scheduler.timer = Some(self.scheduler.clock.instant(*at))
                }
                Action::ClearTimer => self.scheduler.timer = None,
            }
        }
        self.actions = actions;
    }

    fn dispatch(&mut self, dispatch: &Dispatch, actions: &Actions) {
        let ids = actions.members(&dispatch.members);
        let requests: Vec<_> = ids.iter().filter_map(|id| self.table.take(*id)).collect();
        assert_eq!(ids.len(), requests.len(), "a request that is dispatched is in the table");
        let items_max = self.scheduler.batcher.config().max_items;
        let beyond = requests.iter().fold(0, |sum: u32, it| sum.saturating_add(it.beyond));
        let dispatch = &Dispatch { items: dispatch.items.saturating_add(beyond), ..*dispatch };
        self.published.meters.dispatched(dispatch, items_max);
        // Requests for different endpoints do not share a batch.
        if let Some(endpoint) = requests.first().and_then(|request| request.endpoint) {
            self.published.endpoints.dispatched(endpoint, dispatch.items);
        }
        if dispatch.attempt > 1 {
            let retried = requests.iter().map(|request| request.reply.counts()).sum();
            add(&self.published.retried, retried);
        }
        let dispatched = Instant::now();
        let batch = WorkerBatch {
            id: dispatch.batch,
            requests,
            items: dispatch.items,
            items_max,
            attempt: dispatch.attempt,
            reason: dispatch.reason,
            dispatched,
            predicted: dispatch.predicted.map(Duration::from_nanos),
            handoff: Some(self.scheduler.rung.map_or(Duration::ZERO, |rung| dispatched - rung)),
            padding: dispatch.padding,
            worker: dispatch.worker.0,
            beside: false,
            warms_up: false,
        };
        if let Err(batch) = self.pool.hand(dispatch.worker.0, batch) {
            // The worker has just exited and its supervisor's event is on the way; the batcher is
            // told then and finds the requests in the table.
            self.table.put_back(batch, Some(&UNEXPLAINED_EXIT));
        }
    }

    fn reject(&mut self, id: RequestId, reason: Rejection, retry_after: Option<Duration>) {
        // Its worker is gone: it waits again for its turn, with another worker.
        if reason == Rejection::NoWorker {
            if let TableEntry { request: Some(request), turn: Some(turn), .. } = self.table.end(id)
            {
                self.sequences.put_back(request, turn);
            }
            return;
        }
        let Some(request) = self.end(id).request else { return };
        if reason != Rejection::Cancelled {
            let error = self.rejection(&request, reason, retry_after);
            scatter::end(request, Err(error), &self.published);
        } else if !request.reply.is_part() {
            add(&self.published.abandoned, 1);
        }
    }

    /// Takes a request that has ended out of the table; its sequence, if it has one, goes on.
    fn end(&mut self, id: RequestId) -> TableEntry {
        let ended = self.table.end(id);
        self.sequences.answered(ended.turn);
        ended
    }
}
