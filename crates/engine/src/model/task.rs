//! The task of one model version: the only writer of its queue, its batches and its pool.
//!
//! It turns what happens (arrivals, departed clients, workers, the operator, the clock) into
//! events for the batcher, and the batcher's actions into batches and answers. It waits for nobody
//! but its own inboxes, so it can neither block nor be blocked.

mod burial;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jitney_batcher::{
    Action, Actions, Batcher, Down, Event, Failure, Members, Refusal, Request, RequestId, WorkerId,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep_until};

use super::board::{Board, add};
use super::roster::Roster;
use super::{Arrival, Control, Message, scatter};
use crate::error::CallError;
use crate::observer::{BatchFinished, ModelTag, Observer};
use crate::outcome::{BatchOutcome, Cause, LaunchError, ModelFailure};
use crate::pool::{Batch, Pool, WorkerEvent};
use crate::settings::Settings;

/// Arrivals taken in at one go before workers and timers get their turn.
const ARRIVALS_AT_ONCE: usize = 256;

pub(crate) struct Task {
    /// `model_version`, for the log.
    pub(crate) label: String,
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) control: mpsc::Receiver<Control>,
    pub(crate) workers: mpsc::Receiver<WorkerEvent>,
    pub(crate) board: Arc<Board>,
    pub(crate) tag: Arc<ModelTag>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) state: State,
}

/// What the task owns beside its inboxes.
pub(crate) struct State {
    batcher: Batcher,
    actions: Actions,
    roster: Roster,
    pool: Pool,
    origin: Instant,
    timer: Option<Instant>,
    /// Workers get one batch at a time for now; see `burial`.
    probation: bool,
    closing: Option<Closing>,
}

struct Closing {
    deadline: Instant,
    replies: Vec<oneshot::Sender<()>>,
    dismissed: bool,
}

impl State {
    pub(crate) fn new(settings: &Settings, pool: Pool) -> Self {
        Self {
            batcher: Batcher::new(settings.batcher()),
            actions: Actions::new(),
            roster: Roster::default(),
            pool,
            origin: Instant::now(),
            timer: None,
            probation: false,
            closing: None,
        }
    }
}

impl Task {
    /// Lives until the model is closed.
    pub(crate) async fn run(mut self) {
        let mut sleep = Box::pin(sleep_until(Instant::now()));
        let mut arrivals = Vec::with_capacity(ARRIVALS_AT_ONCE);
        while !self.over() {
            self.wait(sleep.as_mut(), &mut arrivals).await;
            self.publish();
        }
        self.say_goodbye();
    }

    /// Waits for the next thing to happen and handles it. Arrivals that are already here are taken
    /// in before a free worker is served, so that they can join the batch it is given.
    async fn wait(&mut self, mut sleep: Pin<&mut Sleep>, arrivals: &mut Vec<Message>) {
        let alarm = self.alarm();
        if let Some(alarm) = alarm
            && sleep.deadline() != alarm
        {
            sleep.as_mut().reset(alarm);
        }
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
            () = sleep, if alarm.is_some() => self.step(Event::Timer),
        }
    }

    fn alarm(&self) -> Option<Instant> {
        let closing = self.state.closing.as_ref().map(|closing| closing.deadline);
        self.state.timer.into_iter().chain(closing).min()
    }

    // -- doors ------------------------------------------------------------------------------

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Arrive(arrival) => self.on_arrival(arrival),
            Message::Cancel(id) => self.step(Event::Cancel { id }),
        }
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        if arrival.rider.reply.is_closed() {
            add(&self.board.abandoned, 1);
            return;
        }
        let deadline = arrival.deadline.map_or(u64::MAX, |deadline| self.nanos(deadline));
        let items = arrival.rider.items;
        let id = self.state.roster.board(arrival.rider);
        arrival.ticket.stamp(id);
        self.step(Event::Arrive(Request {
            deadline,
            items,
            cost: u64::from(items),
            bucket: arrival.bucket,
            priority: arrival.priority,
            origin: arrival.origin,
            ..Request::new(id)
        }));
    }

    // -- workers ----------------------------------------------------------------------------

    fn on_worker(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Up { worker, pid, slots, batches, took } => {
                tracing::info!(model = self.label, worker, "worker is ready");
                self.observer.worker_loaded(&self.tag, worker, took);
                self.state.pool.up(worker, pid, slots, batches);
                self.step(Event::WorkerUp { worker: WorkerId(worker), slots: self.slots(worker) });
                self.pool_changed();
            }
            WorkerEvent::Finished { batch, outcome, exec } => {
                self.on_finished(batch, outcome, exec);
            }
            WorkerEvent::Died { worker, batches, death, overdue } => {
                self.on_death(worker, batches, death, overdue);
            }
            WorkerEvent::LaunchFailed { worker, error } => self.on_launch_failed(worker, &error),
            WorkerEvent::Lost { worker } => {
                tracing::error!(
                    model = self.label,
                    worker,
                    "worker is given up: it did not come back within the retry window"
                );
                self.state.pool.lost(worker);
                self.pool_changed();
            }
            WorkerEvent::Ended { worker } => {
                self.state.pool.ended(worker);
                self.step(Event::WorkerDown { worker: WorkerId(worker), why: Down::Removed });
                self.pool_changed();
            }
        }
    }

    fn on_finished(&mut self, batch: Batch, outcome: BatchOutcome, exec: Duration) {
        let id = batch.id;
        // Second tries go before fresh work, so fresh work means that they are over.
        if self.state.probation && batch.attempt == 1 {
            self.set_probation(false);
        }
        match scatter::checked(outcome, batch.riders.len()) {
            Ok(items) => {
                for rider in &batch.ids {
                    self.state.roster.end(*rider);
                }
                // The worker gets its next batch before the answers are given out: everything that
                // an answer wakes would otherwise run first, and the worker would stand idle.
                self.step(Event::Done { batch: id, exec: exec.as_nanos() as u64 });
                self.observer.batch_finished(&BatchFinished {
                    model: &self.tag,
                    compute: exec,
                    handling: batch.departed.elapsed().saturating_sub(exec),
                    riders: &batch.riders,
                });
                scatter::answer(batch, items, exec, &self.board);
            }
            Err(failure) => {
                self.log_failure(&batch, &failure);
                self.give_up(batch, CallError::Model(failure));
                self.step(Event::Failed { batch: id, kind: Failure::Handler });
            }
        }
    }

    fn on_launch_failed(&mut self, worker: u32, error: &LaunchError) {
        tracing::error!(model = self.label, worker, %error, "worker did not start");
        self.state.pool.launch_failed(error);
        self.pool_changed();
    }

    fn log_failure(&self, batch: &Batch, failure: &ModelFailure) {
        let (riders, attempt) = (batch.riders.len(), batch.attempt);
        match failure.cause {
            Cause::Prediction => tracing::debug!(
                model = self.label,
                riders,
                attempt,
                message = failure.message,
                "prediction error"
            ),
            Cause::Raised
            | Cause::Memory
            | Cause::NotAList
            | Cause::WrongLength
            | Cause::UnsupportedOutput => tracing::warn!(
                model = self.label, riders, attempt, cause = ?failure.cause, "batch failed"
            ),
        }
    }

    // -- operator ---------------------------------------------------------------------------

    fn on_control(&mut self, control: Control) {
        match control {
            Control::Scale { min, max, reply } => {
                for worker in self.state.pool.scale(min, max, reply) {
                    self.step(Event::WorkerRetire { worker: WorkerId(worker) });
                }
                self.pool_changed();
            }
            Control::Reconfigure { settings, reply } => {
                self.step(Event::Configure(settings.batcher()));
                let _told = reply.send(());
            }
            Control::Close { grace, reply } => self.close(grace, Some(reply)),
        }
    }

    /// Whether the model is closed and nothing is left to do.
    fn over(&mut self) -> bool {
        let Some(closing) = &self.state.closing else { return false };
        if Instant::now() >= closing.deadline {
            return true;
        }
        if !closing.dismissed && self.state.batcher.drained() {
            self.dismiss_workers();
        }
        let dismissed = self.state.closing.as_ref().is_some_and(|closing| closing.dismissed);
        dismissed && self.state.pool.is_empty()
    }

    fn dismiss_workers(&mut self) {
        if let Some(closing) = &mut self.state.closing {
            closing.dismissed = true;
        }
        for worker in self.state.pool.retire_all() {
            self.step(Event::WorkerRetire { worker: WorkerId(worker) });
        }
    }

    fn close(&mut self, grace: Duration, reply: Option<oneshot::Sender<()>>) {
        let deadline = Instant::now() + grace;
        let closing = self.state.closing.get_or_insert_with(|| Closing {
            deadline,
            replies: Vec::new(),
            dismissed: false,
        });
        closing.deadline = closing.deadline.min(deadline);
        closing.replies.extend(reply);
        self.step(Event::Drain);
        self.pool_changed();
    }

    /// Ends what is left by force, then tells those who asked for the end.
    fn say_goodbye(&mut self) {
        self.state.pool.abort_all();
        self.refuse_waiting(Refusal::Draining);
        for reply in self.state.closing.take().into_iter().flat_map(|closing| closing.replies) {
            let _told = reply.send(());
        }
    }

    // -- batcher ----------------------------------------------------------------------------

    /// Feeds one event to the batcher and does what it says.
    fn step(&mut self, event: Event) {
        let now = self.nanos(Instant::now());
        let mut actions = std::mem::take(&mut self.state.actions);
        actions.clear();
        self.state.batcher.step(now, event, &mut actions);
        for action in actions.iter() {
            self.act(action, &actions);
        }
        self.state.actions = actions;
    }

    fn act(&mut self, action: &Action, actions: &Actions) {
        match action {
            Action::Dispatch { .. } => self.dispatch(action, actions),
            Action::Reject { id, reason: Refusal::Cancelled, .. } => {
                if let (Some(_), _) = self.state.roster.end(*id) {
                    add(&self.board.abandoned, 1);
                }
            }
            Action::Reject { id, reason, retry_after } => {
                let retry_after = retry_after.map(Duration::from_nanos);
                self.refuse(*id, CallError::Refused { reason: *reason, retry_after });
            }
            Action::Fail { id, kind } => self.fail(*id, *kind),
            Action::SetTimer(at) => {
                self.state.timer = Some(self.state.origin + Duration::from_nanos(*at));
            }
            Action::ClearTimer => self.state.timer = None,
        }
    }

    fn dispatch(&mut self, action: &Action, actions: &Actions) {
        let Action::Dispatch { worker, batch, members, items, attempt, reason, .. } = action else {
            return;
        };
        let (ids, riders) = self.gather(members, actions);
        self.board.departed(*reason);
        self.board.meters.departed(*items, self.state.batcher.config().max_items);
        add(&self.board.batches, 1);
        add(&self.board.items, u64::from(*items));
        if *attempt > 1 {
            add(&self.board.retried, riders.len() as u64);
        }
        let batch = Batch {
            id: *batch,
            ids,
            riders,
            items: *items,
            items_max: self.state.batcher.config().max_items,
            attempt: *attempt,
            reason: *reason,
            departed: Instant::now(),
        };
        if let Err(batch) = self.state.pool.hand(worker.0, batch) {
            // The worker has just died and its seat's word is on the way; the batcher will hear of
            // it then and finds the riders in their places.
            self.come_back(batch, Some(CallError::WorkerDied { killed: false }));
        }
    }

    fn gather(
        &mut self,
        members: &Members,
        actions: &Actions,
    ) -> (Vec<RequestId>, Vec<crate::call::Rider>) {
        let ids = actions.members(members).to_vec();
        let riders: Vec<_> = ids.iter().filter_map(|id| self.state.roster.depart(*id)).collect();
        assert_eq!(ids.len(), riders.len(), "a departing request is in its place");
        (ids, riders)
    }

    fn come_back(&mut self, batch: Batch, failure: Option<CallError>) {
        for (id, rider) in batch.ids.into_iter().zip(batch.riders) {
            self.state.roster.come_back(id, rider, failure.clone());
        }
    }

    fn refuse(&mut self, id: RequestId, error: CallError) {
        if let (Some(rider), _) = self.state.roster.end(id) {
            scatter::end(rider, Err(error), &self.board);
        }
    }

    fn fail(&mut self, id: RequestId, kind: Failure) {
        let (rider, failure) = self.state.roster.end(id);
        let error = failure.unwrap_or(match kind {
            Failure::Handler | Failure::Crashed | Failure::TimedOut => {
                CallError::WorkerDied { killed: false }
            }
        });
        if let Some(rider) = rider {
            scatter::end(rider, Err(error), &self.board);
        }
    }

    /// Without anybody to serve them, waiting requests are told so instead of left hanging.
    fn pool_changed(&mut self) {
        if !self.state.pool.hopeful() {
            let reason =
                if self.state.closing.is_some() { Refusal::Draining } else { Refusal::NoWorker };
            self.refuse_waiting(reason);
        }
        let (min, max) = self.state.pool.wanted();
        self.board.workers_min.store(min, Ordering::Relaxed);
        self.board.workers_max.store(max, Ordering::Relaxed);
        self.board.hopeful.store(self.state.pool.hopeful(), Ordering::Relaxed);
        self.board.unhealthy.store(!self.state.pool.healthy(), Ordering::Relaxed);
        self.board.publish_workers(self.state.pool.views());
        // Whoever waited for the workers finds them published.
        self.state.pool.tell_waiters();
    }

    fn refuse_waiting(&mut self, reason: Refusal) {
        for id in self.state.roster.waiting() {
            if let Some(rider) = self.state.roster.depart(id) {
                let error = CallError::Refused { reason, retry_after: None };
                scatter::end(rider, Err(error), &self.board);
            }
            self.step(Event::Cancel { id });
        }
    }

    fn publish(&self) {
        self.board.waiting.store(self.state.batcher.waiting(), Ordering::Relaxed);
    }

    fn nanos(&self, instant: Instant) -> u64 {
        let nanos = instant.duration_since(self.state.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}
