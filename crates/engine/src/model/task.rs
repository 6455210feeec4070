//! The task of one model version: the only writer of its queue, its batches and its pool.
//!
//! It turns what happens (arrivals, departed clients, workers, the operator, the clock) into
//! events for the batcher, and the batcher's actions into batches and answers. It waits for nobody
//! but its own inboxes, so it can neither block nor be blocked.

mod actions;
mod alarm;
mod burial;
mod operator;
mod parts;
mod places;
mod sweep;
mod turns;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_batcher::{Actions, Batcher, Event, Rejection, Request, RequestId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::alarm::Alarm;
use self::operator::Closing;
use self::places::place;
pub(crate) use self::sweep::Sweep;
use super::board::{ModelState, add};
use super::intake::ALONE_BUCKET;
use super::sequence::Sequences;
use super::table::{Passage, RequestTable};
use super::{Arrival, Control, Message, scatter};
use crate::call::SequenceHeaders;
use crate::error::CallError;
use crate::observer::{ModelTag, Observer};
use crate::pool::{Pool, WorkerEvent};
use crate::settings::ModelSettings;

/// Arrivals taken in at one go before workers and timers get their turn.
const ARRIVALS_AT_ONCE: usize = 256;

/// How old the curve on the board may be while batches run.
const CURVE_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Task {
    /// `model_version`, for the log.
    pub(crate) label: String,
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) control: mpsc::Receiver<Control>,
    pub(crate) workers: mpsc::Receiver<WorkerEvent>,
    pub(crate) board: Arc<ModelState>,
    pub(crate) tag: Arc<ModelTag>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) state: State,
}

/// What the task owns beside its inboxes.
pub(crate) struct State {
    batcher: Batcher,
    actions: Actions,
    table: RequestTable,
    pool: Pool,
    origin: Instant,
    timer: Option<Instant>,
    /// The moment for which the clock has just rung.
    rung: Option<Instant>,
    /// Workers get one batch at a time for now; see `burial`.
    probation: bool,
    /// When the learned curve was last put on the board.
    shown: Option<Instant>,
    closing: Option<Closing>,
    /// For models that have a sample.
    sweep: Option<Sweep>,
    /// For models that keep sequences.
    sequences: Option<Sequences<Arrival>>,
    sequence_headers: Arc<SequenceHeaders>,
}

impl State {
    pub(crate) fn new(settings: &ModelSettings, pool: Pool, sweep: Option<Sweep>) -> Self {
        Self {
            batcher: Batcher::new(settings.batcher()),
            actions: Actions::new(),
            table: RequestTable::default(),
            pool,
            origin: Instant::now(),
            timer: None,
            rung: None,
            probation: false,
            shown: None,
            closing: None,
            sweep,
            sequences: settings.sequences().map(Sequences::new),
            sequence_headers: Arc::clone(&settings.sequence_headers),
        }
    }
}

impl Task {
    /// Lives until the model is closed.
    pub(crate) async fn run(mut self) {
        let mut alarm = Alarm::new();
        let mut arrivals = Vec::with_capacity(ARRIVALS_AT_ONCE);
        while !self.over() {
            self.wait(&mut alarm, &mut arrivals).await;
            self.publish();
        }
        self.say_goodbye();
    }

    /// Waits for the next thing to happen and handles it. Arrivals that are already here are taken
    /// in before a free worker is served, so that they can join the batch it is given.
    async fn wait(&mut self, alarm: &mut Alarm, arrivals: &mut Vec<Message>) {
        alarm.set(self.alarm(), self.adaptive());
        tokio::select! {
            biased;
            taken = self.inbox.recv_many(arrivals, ARRIVALS_AT_ONCE) => {
                if taken == 0 {
                    // Nobody holds the model any more.
                    self.close(Duration::ZERO, None);
                }
                for message in arrivals.drain(..) {
                    self.on_message(message);
                }
                // Under a flood of arrivals the others still get their turn.
                while let Ok(event) = self.workers.try_recv() {
                    self.on_worker(event);
                }
                while let Ok(control) = self.control.try_recv() {
                    self.on_control(control);
                }
            }
            Some(event) = self.workers.recv() => self.on_worker(event),
            Some(control) = self.control.recv() => self.on_control(control),
            rung = alarm.rings() => {
                self.expire_sequences();
                self.state.rung = Some(rung);
                self.step(Event::Timer);
                self.state.rung = None;
            }
        }
    }

    fn alarm(&self) -> Option<Instant> {
        let closing = self.state.closing.as_ref().map(|closing| closing.deadline);
        let sequences = self.state.sequences.as_ref().and_then(Sequences::alarm);
        self.state.timer.into_iter().chain(closing).chain(sequences).min()
    }

    // -- doors ------------------------------------------------------------------------------

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Arrive(arrival) => self.on_arrival(arrival),
            Message::ArriveInParts(parts) => self.on_parts(parts),
            Message::Cancel(id) => self.step(Event::Cancel { id }),
            Message::CancelParts(tickets) => self.cancel_parts(&tickets),
            Message::Announce(origin) => self.step(Event::Announce { origin }),
            Message::Retract(origin) => self.step(Event::Retract { origin }),
        }
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        if arrival.request.reply.is_closed() {
            add(&self.board.abandoned, 1);
            return;
        }
        if self.state.sequences.is_some() && arrival.bucket != ALONE_BUCKET {
            return self.join_sequence(arrival);
        }
        self.admit(arrival, None, false);
        self.take_turns();
    }

    /// Gives a request to the batcher; one of a sequence with what the sequence must know, a part
    /// with the word whether `more` of its request follow.
    fn admit(&mut self, arrival: Arrival, passage: Option<Box<Passage>>, more: bool) -> RequestId {
        let deadline = arrival.deadline.map_or(u64::MAX, |deadline| self.nanos(deadline));
        let items = arrival.request.items;
        let worker = passage.as_ref().map(|passage| place(passage.worker, 0));
        let id = self.state.table.board(arrival.request, passage);
        arrival.ticket.stamp(id);
        self.feed(Event::Arrive(Request {
            deadline,
            items,
            cost: arrival.weight.cost,
            tenant: arrival.weight.tenant,
            group: arrival.bucket,
            priority: arrival.priority,
            origin: arrival.origin,
            worker,
            more,
            ..Request::new(id)
        }));
        id
    }

    // -- batcher ----------------------------------------------------------------------------

    /// Feeds one event to the batcher, does what it says, and lets sequences go on.
    fn step(&mut self, event: Event) {
        self.feed(event);
        self.take_turns();
    }

    /// Without anybody to serve them, waiting requests are told so instead of left hanging.
    fn pool_changed(&mut self) {
        if !self.state.pool.has_workers() {
            let reason = if self.state.closing.is_some() {
                Rejection::Draining
            } else {
                Rejection::NoWorker
            };
            self.refuse_waiting(reason);
        }
        self.board.has_workers.store(self.state.pool.has_workers(), Ordering::Relaxed);
        self.board.unhealthy.store(!self.state.pool.healthy(), Ordering::Relaxed);
        self.board.publish_workers(self.state.pool.views());
        // Whoever waited for the workers finds them published.
        self.state.pool.tell_waiters();
    }

    fn refuse_waiting(&mut self, reason: Rejection) {
        self.refuse_turns(reason);
        for id in self.state.table.waiting() {
            if let Some(request) = self.state.table.depart(id) {
                let error = CallError::Rejected { reason, retry_after: None };
                scatter::end(request, Err(error), &self.board);
            }
            self.step(Event::Cancel { id });
        }
    }

    fn publish(&self) {
        let waiting = self.state.batcher.waiting() + self.waiting_turns();
        self.board.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Puts the learned curve on the board now and then; it is there for people.
    fn show_curve(&mut self, now: Instant) {
        if self.state.shown.is_none_or(|shown| now.duration_since(shown) >= CURVE_EVERY) {
            self.state.shown = Some(now);
            self.board.curve.store(Arc::new(self.state.batcher.curve().collect()));
        }
    }

    fn nanos(&self, instant: Instant) -> u64 {
        let nanos = instant.duration_since(self.state.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}
