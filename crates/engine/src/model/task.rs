//! The task of one model version: the only writer of its queue, its batches and its pool.
//!
//! It turns what happens (requests, cancellations, workers, the operator, the clock) into events for
//! the batcher, and the batcher's actions into batches and answers. It waits for nothing but its own
//! inboxes, so it can neither block nor be blocked. Here: the loop and the requests; `actions`: what
//! the batcher decided; `workers`: what happens to workers; `control`: what the operator wants.

mod actions;
mod control;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jitney_batcher::{Actions, Batcher, Event, Policy, Rejection, RequestId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::clock::ModelClock;
use super::closing::Closing;
use super::intake::ALONE;
use super::measures::add;
use super::messages::{ControlMessage, RequestMessage};
use super::scatter;
use super::slots::WorkerSlots;
use super::state::ModelState;
use super::table::{RequestTable, TurnRef};
use super::turns::SequenceTurns;
use super::warm_up::WarmUp;
use crate::observer::{ModelTag, Observer};
use crate::pending::{PendingRequest, SharedId};
use crate::pool::{WorkerEvent, WorkerPool};
use crate::settings::ModelSettings;

/// Messages taken in at one go before workers and timers get their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// What a task is made of.
pub(crate) struct TaskParts {
    /// `model_version`, for the log.
    pub(crate) label: String,
    pub(crate) inbox: mpsc::Receiver<RequestMessage>,
    pub(crate) control: mpsc::Receiver<ControlMessage>,
    pub(crate) workers: mpsc::Receiver<WorkerEvent>,
    pub(crate) published: Arc<ModelState>,
    pub(crate) tag: Arc<ModelTag>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) clock: ModelClock,
    pub(crate) pool: WorkerPool,
    /// For models that have a sample.
    pub(crate) warm_up: Option<WarmUp>,
}

pub(crate) struct Task {
    label: String,
    inbox: mpsc::Receiver<RequestMessage>,
    control: mpsc::Receiver<ControlMessage>,
    workers: mpsc::Receiver<WorkerEvent>,
    published: Arc<ModelState>,
    tag: Arc<ModelTag>,
    observer: Arc<dyn Observer>,
    clock: ModelClock,
    batcher: Batcher,
    actions: Actions,
    table: RequestTable,
    turns: SequenceTurns,
    pool: WorkerPool,
    slots: WorkerSlots,
    warm_up: Option<WarmUp>,
    closing: Option<Closing>,
    /// When the batcher wants to look again.
    timer: Option<Instant>,
    /// The time for which the alarm has just rung.
    rung: Option<Instant>,
    /// When the learned curve was last published.
    curve_published: Option<Instant>,
}

impl Task {
    pub(crate) fn new(parts: TaskParts, settings: &ModelSettings) -> Self {
        let TaskParts { label, inbox, control, workers, published, tag, observer, .. } = parts;
        let TaskParts { clock, pool, warm_up, .. } = parts;
        Self {
            label,
            inbox,
            control,
            workers,
            published,
            tag,
            observer,
            clock,
            batcher: Batcher::new(settings.batcher()),
            actions: Actions::new(),
            table: RequestTable::default(),
            turns: SequenceTurns::new(settings, clock),
            slots: WorkerSlots::new(pool.plan.slots),
            pool,
            warm_up,
            closing: None,
            timer: None,
            rung: None,
            curve_published: None,
        }
    }

    /// Lives until the model is closed.
    pub(crate) async fn run(mut self) {
        let mut alarm = Alarm::new();
        let mut messages = Vec::with_capacity(MESSAGES_AT_ONCE);
        while !self.is_over() {
            self.wait(&mut alarm, &mut messages).await;
            let waiting = self.batcher.waiting() + self.turns.waiting();
            self.published.waiting.store(waiting, Ordering::Relaxed);
        }
        self.pool.abort_all();
        self.reject_waiting(Rejection::Draining);
        if let Some(closing) = self.closing {
            closing.finish();
        }
    }

    /// Waits for the next thing to happen and handles it. Requests that are already here are taken
    /// in before a free worker is served, so that they can join the batch it is given.
    async fn wait(&mut self, alarm: &mut Alarm, messages: &mut Vec<RequestMessage>) {
        let closing = self.closing.as_ref().map(|closing| closing.deadline);
        let next = self.timer.into_iter().chain(closing).chain(self.turns.alarm()).min();
        alarm.set(next, is_adaptive(&self.batcher));
        tokio::select! {
            biased;
            taken = self.inbox.recv_many(messages, MESSAGES_AT_ONCE) => {
                if taken == 0 {
                    // The last handle of the model is gone.
                    Closing::ask(&mut self.closing, Instant::now(), None);
                }
                messages.drain(..).for_each(|message| self.on_message(message));
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
                scatter::reject(self.turns.expire(), Rejection::Expired, &self.published);
                self.rung = Some(rung);
                self.step(Event::Timer);
                self.rung = None;
            }
        }
    }

    fn on_message(&mut self, message: RequestMessage) {
        match message {
            RequestMessage::Submit(request) => self.on_request(request),
            RequestMessage::SubmitParts(parts) => self.on_parts(parts),
            RequestMessage::Cancel(id) => self.step(Event::Cancel { id }),
            RequestMessage::CancelParts(ids) => {
                let ids = ids.iter().filter_map(SharedId::get);
                ids.for_each(|id| self.step(Event::Cancel { id }));
            }
            RequestMessage::Announce(origin) => self.step(Event::Announce { origin }),
            RequestMessage::Retract(origin) => self.step(Event::Retract { origin }),
        }
    }

    fn on_request(&mut self, request: PendingRequest) {
        if request.reply.is_closed() {
            add(&self.published.abandoned, 1);
            return;
        }
        if !self.turns.enabled() || request.facts.group == ALONE {
            self.admit(request, None);
        } else if self.closing.is_some() {
            scatter::reject([request], Rejection::Draining, &self.published);
        } else {
            // The alarm may not have rung yet.
            scatter::reject(self.turns.expire(), Rejection::Expired, &self.published);
            if let Err((request, error)) = self.turns.join(request) {
                scatter::end(request, Err(error), &self.published);
            }
        }
        self.take_turns();
    }

    /// The first part that is rejected takes the others with it, before any of them is dispatched.
    fn on_parts(&mut self, parts: Vec<PendingRequest>) {
        // A caller that has left counts its request itself.
        if parts.first().is_none_or(|first| first.reply.is_closed()) {
            return;
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
        self.take_turns();
    }

    /// Gives a request to the batcher.
    fn admit(&mut self, request: PendingRequest, turn: Option<TurnRef>) -> RequestId {
        let facts = request.facts;
        let id = self.table.insert(request, turn);
        self.feed(Event::Arrive(jitney_batcher::Request { id, ..facts }));
        id
    }

    /// Gives the requests to the batcher whose turn it is.
    fn take_turns(&mut self) {
        while let Some((request, turn)) = self.turns.next() {
            if request.reply.is_closed() {
                add(&self.published.abandoned, 1);
                self.turns.answered(Some(turn));
            } else {
                self.admit(request, Some(turn));
            }
        }
    }

    /// Rejects every request that is not with a worker.
    fn reject_waiting(&mut self, reason: Rejection) {
        scatter::reject(self.turns.take_all(), reason, &self.published);
        for id in self.table.waiting() {
            scatter::reject(self.table.take(id), reason, &self.published);
            self.step(Event::Cancel { id });
        }
    }
}

fn is_adaptive(batcher: &Batcher) -> bool {
    matches!(batcher.config().policy, Policy::Adaptive(_))
}
