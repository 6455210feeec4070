//! The state machine: what each event does, and the decision that follows every event.
//!
//! An event only changes the state. Then everything that is due is dispatched and the timer is set
//! anew, so that no event needs to know what it has made due, and a late timer does no harm.

mod retries;
#[cfg(test)]
mod tests;

use crate::action::{Action, Actions, Dispatch, DispatchReason, Rejection};
use crate::adaptive::Planner;
use crate::config::Config;
use crate::event::{BatchFailure, DownReason, Event};
use crate::fifo::Fifo;
use crate::findings::Findings;
use crate::policy::Order;
use crate::records::RequestList;
use crate::recovery::BatchRecovery;
use crate::request::{BatchId, NEVER, Nanos, Request, RequestId, WorkerId};
use crate::retry::RetryAttempt;
use crate::running::{ActiveBatch, ActiveBatches, DispatchNote, Pace};
use crate::state::{BatchMeasure, BatcherState};

/// Decides when a batch is dispatched and with which requests, for one version of one model.
#[derive(Debug)]
pub struct Batcher {
    state: BatcherState,
    fifo: Fifo,
    planner: Planner,
    recovery: BatchRecovery,
    running: ActiveBatches,
    pace: Pace,
    /// Whether fresh requests go first: suspects went last.
    fresh_turn: bool,
    /// What the caller was last told.
    timer: Option<Nanos>,
}

impl Batcher {
    /// A batcher without workers or requests.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            state: BatcherState::new(config),
            fifo: Fifo::default(),
            planner: Planner::default(),
            recovery: BatchRecovery::default(),
            running: ActiveBatches::default(),
            pace: Pace::default(),
            fresh_turn: false,
            timer: None,
        }
    }

    /// Takes one event and appends to `out` what is to be done about it.
    ///
    /// Afterwards no request that has expired waits, and no batch is due while a slot is free. After a part
    /// of a request ([`Request::more`]), after one that is [`Request::followed`], and after
    /// [`Event::NeighboursAnswered`] nothing is decided yet. A `now` before that of an earlier step counts as
    /// that one.
    ///
    /// # Panics
    /// If a request arrives at an index whose last request has not ended, or at `u32::MAX`.
    pub fn step(&mut self, now: Nanos, event: Event, out: &mut Actions) {
        self.state.rules.now = self.state.rules.now.max(now);
        if self.state.next_expiry() <= self.state.rules.now {
            self.state.expire(out);
        }
        // What neighbours answer is only noted, also between the parts of a request.
        let noted = matches!(event, Event::NeighboursAnswered { .. });
        // Arrivals change nothing about the workers, nor about a wait for more requests.
        if !noted && !matches!(event, Event::Arrive(_) | Event::Announce { .. }) {
            self.planner.forget();
        } else if self.state.learned.prepares() {
            // How early a worker gets its next batch depends on the size of that one.
            self.planner.forecast.invalidate();
        }
        let more = noted || matches!(event, Event::Arrive(Request { more: true, .. }));
        let followed = matches!(event, Event::Arrive(Request { followed: true, .. }));
        self.apply(event, out);
        if !more {
            self.state.learned.request_complete();
        }
        if !more && !followed {
            self.decide(out);
            self.set_timer(out);
        }
    }

    /// Requests that wait, those to be tried again included. Of a request in parts the last counts.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.state.waiting()
    }

    /// Items of the requests that wait.
    #[must_use]
    pub fn waiting_items(&self) -> u32 {
        self.state.waiting_items()
    }

    /// Batches on workers.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running.len() as u32
    }

    /// Whether `Event::Drain` came and nothing waits or runs any more.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.state.rules.draining && self.waiting_items() == 0 && self.running() == 0
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.state.rules.config
    }

    /// What it has found out.
    #[must_use]
    pub fn findings(&self) -> Findings<'_> {
        Findings { learned: &self.state.learned, log: &self.planner.log }
    }

    fn apply(&mut self, event: Event, out: &mut Actions) {
        let state = &mut self.state;
        match event {
            Event::Arrive(request) => self.arrive(request, out),
            Event::Cancel { id } => state.cancel(id, out),
            Event::WorkerUp { worker, slots } => {
                state.workers.up(worker, slots);
                state.count_workers();
            }
            Event::WorkerRetire { worker } => {
                state.workers.retire(worker);
                state.count_workers();
                state.reject_pinned(worker, out);
            }
            Event::WorkerDown { worker, why } => self.worker_down(worker, why, out),
            Event::Done { batch, exec, prepare } => self.done(batch, exec, prepare),
            Event::Measured { group, items, cost, exec, prepare } => {
                let config = &state.rules.config;
                let class = config.class_of_items(items, cost);
                let own = config.size_of(items, cost).into();
                let size = config.ran(class, own);
                let several = self.planner.several_workers();
                state.learned.done(state.rules.now, (group, size), exec, None, several);
                if let Some(prepare) = prepare {
                    state.workers.prepare();
                    state.learned.curves.learn_prepare((group, own), prepare);
                }
            }
            Event::Failed { batch, kind } => self.failed(batch, kind, out),
            Event::Configure(config) => self.configure(config, out),
            Event::Drain => state.rules.draining = true,
            Event::Announce { origin } => state.learned.returns.announce(state.rules.now, origin),
            Event::Retract { origin } => state.learned.returns.retract(origin),
            Event::Handed { took } => state.learned.handed(took),
            Event::NeighboursAnswered { items } => state.learned.trials.neighbours_answered(items),
            // What is due is found at every step.
            Event::Timer => {}
        }
    }

    // Arrival

    fn arrive(&mut self, mut request: Request, out: &mut Actions) {
        let state = &mut self.state;
        request.items = request.items.max(1);
        request.deadline = state.rules.deadline(&request);
        if let Some(reason) = state.rejection(&request) {
            return out.push(Action::Reject { id: request.id, reason, retry_after: None });
        }
        let group = state.group(&request);
        let planned = state.rules.order(&request) == Order::Deadline;
        if planned {
            let size = state.rules.config.size_of(request.items, request.cost);
            let planned_groups = state.queue.planned_groups.0;
            state.learned.arrived(&request, size, group, planned_groups, state.rules.now);
        }
        let at = state.records.admit(request, state.rules.now);
        if planned && let Some(reason) = self.planner.rejection(state, &request, group) {
            return self.state.reject(at, reason, self.drain_time(), out);
        }
        state.queue.insert(&mut state.records, at, group, &state.rules);
        let at_once = !planned && !request.followed;
        if !request.more && (at_once || state.overfull()) {
            // A request that is dispatched at once needs no room in the queue.
            self.decide(out);
            self.make_room(request.id, out);
        }
    }

    /// Keeps the queue within its limits: the newest request is rejected, or one of the tenant that
    /// is furthest above its share.
    fn make_room(&mut self, newest: RequestId, out: &mut Actions) {
        let Some(at) = self.state.records.find(newest) else { return };
        let record = &self.state.records[at];
        if !record.waits() || !self.state.overfull() {
            return;
        }
        let (victim, reason) = match self.state.rules.order(&record.request) {
            Order::Arrival => (at, Rejection::QueueFull),
            Order::Deadline => {
                let tenant = record.request.tenant;
                let (other, reason) = self.state.queue.victim(tenant, &self.state.rules.config);
                (other.unwrap_or(at), reason)
            }
        };
        self.state.withdraw(victim);
        self.state.reject(victim, reason, self.drain_time(), out);
    }

    /// How long it takes until all requests that wait now have been answered.
    fn drain_time(&self) -> Option<Nanos> {
        if self.state.rules.planned {
            return self.planner.view(&self.state).drain_time();
        }
        let batches = self.waiting_items().div_ceil(self.state.rules.config.max_items);
        let batches = u64::from(batches) + u64::from(self.running());
        self.pace.predict(batches, self.state.workers.capacity())
    }

    // The end of a batch

    fn done(&mut self, id: BatchId, exec: Nanos, prepare: Option<Nanos>) {
        let Some(mut batch) = self.running.take(id) else { return };
        let BatcherState { rules, workers, learned, records, loads, .. } = &mut self.state;
        let (now, note) = (rules.now, batch.note);
        let ended = (batch.members.len, note.ends);
        if let Some(early) = workers.release(batch.worker, now, ended) {
            learned.ended_early(early);
        }
        let late = now.saturating_sub(note.dispatched).saturating_sub(exec);
        let late = note.alone.then_some(late.saturating_sub(prepare.unwrap_or(0)));
        let mut alone = exec;
        if let Some(prepare) = prepare {
            workers.prepare();
            let times = workers.stages(batch.worker, now, note.dispatched, (prepare, exec));
            alone = learned.staged((note.group, note.size, note.ran), times, exec);
        }
        self.pace.learn(exec.max(prepare.unwrap_or(0)));
        if note.loads == 0 {
            let several = self.planner.several_workers();
            learned.done(now, (note.group, note.ran), alone, late, several);
        } else {
            let usual = learned.predict(note.group, note.ran, rules).unwrap_or(0);
            loads.learn(exec.saturating_sub(usual));
        }
        if rules.planned {
            let members = records.walk(&batch.members);
            let staying = members.filter(|record| !record.cancelled && !record.request.more);
            let (mut requests, mut nanos) = (0, 0);
            let origins = staying.map(|record| {
                requests += 1;
                nanos += now.saturating_sub(record.arrived);
                record.request.origin
            });
            learned.answered(now, origins);
            learned.wait_trials.answered(requests, nanos);
        }
        if batch.attempt.number == 1 {
            self.recovery.earn(batch.members.len);
        }
        while let Some(at) = records.pop(&mut batch.members) {
            records.end(at);
        }
    }

    fn failed(&mut self, id: BatchId, kind: BatchFailure, out: &mut Actions) {
        let Some(batch) = self.running.take(id) else { return };
        let ended = (batch.members.len, batch.note.ends);
        self.state.workers.release(batch.worker, self.state.rules.now, ended);
        self.state.workers.forget_model(batch.worker, batch.note.loads);
        self.recovery.isolate(&mut self.state, batch, kind, out);
    }

    fn worker_down(&mut self, worker: WorkerId, why: DownReason, out: &mut Actions) {
        let Self { state, recovery, running, .. } = self;
        state.workers.down(worker);
        state.count_workers();
        state.reject_pinned(worker, out);
        // Whichever was the cause: all that ran on it are suspects together.
        let mut suspects: Option<ActiveBatch> = None;
        while let Some(batch) = running.take_from(worker) {
            match (why, &mut suspects) {
                (DownReason::Crashed, Some(all)) => all.join(&mut state.records, batch),
                (DownReason::Crashed, none) => *none = Some(batch),
                (DownReason::TimedOut, _) => {
                    recovery.isolate(state, batch, BatchFailure::TimedOut, out);
                }
                (DownReason::Removed, _) => recovery.put_back(state, batch, out),
            }
        }
        if let Some(batch) = suspects {
            recovery.isolate(state, batch, BatchFailure::Crashed, out);
        }
    }

    // Configuration

    /// All waiting requests are queued anew: groups may differ, and limits may be smaller.
    fn configure(&mut self, config: Config, out: &mut Actions) {
        let state = &mut self.state;
        state.rules.configure(config);
        self.fifo = Fifo::default();
        for at in state.queue.take_all(&mut state.records) {
            if state.readmit(at, out) {
                state.wait(at);
            }
        }
        for group in state.retries.take_all(&mut state.records) {
            self.recovery.regroup(state, group, out);
        }
    }

    // Dispatch

    /// Dispatches what is due while a worker can take it: retries, then fresh requests.
    fn decide(&mut self, out: &mut Actions) {
        if self.state.retries.len > 0 || self.state.workers.keeps {
            self.dispatch_retries(out);
        }
        self.dispatch_fresh(out);
    }

    /// Dispatches groups in order of arrival, then planned ones. Usually only one of the two has requests.
    fn dispatch_fresh(&mut self, out: &mut Actions) {
        while self.state.queue.arrival().len > 0
            && let Some(due) = self.fifo.next(&self.state)
        {
            let members = Fifo::take(&mut self.state, &due);
            let worker = match due.worker {
                Some(pinned) => self.state.workers.take_of(pinned),
                None => self.take_slot(None),
            };
            self.dispatch(worker, members, RetryAttempt::FIRST, due.reason, out);
        }
        if self.state.rules.planned {
            self.dispatch_planned(out);
        }
    }

    fn dispatch_planned(&mut self, out: &mut Actions) {
        self.planner.look(&self.state);
        self.planner.reject_infeasible(&mut self.state, out);
        if self.planner.goes_on_waiting(&self.state) {
            return;
        }
        let mut dispatched = false;
        while let Some(batch) = self.planner.next(&mut self.state) {
            dispatched = true;
            let members = self.planner.take(&mut self.state, &batch);
            let worker = self.take_slot(None);
            if self.state.learned.prepares() && self.state.rules.config.seek_slots {
                let size = (batch.candidate.size, members.items);
                self.state.try_slots(batch.clients, size);
            }
            self.dispatch(worker, members, RetryAttempt::FIRST, batch.reason, out);
            self.planner.reject_passed_over(&mut self.state, &batch, out);
            self.planner.look(&self.state);
        }
        if dispatched {
            // A request behind a smaller head that has left may be infeasible too.
            self.planner.reject_infeasible(&mut self.state, out);
        }
    }

    /// Takes the slot that the policy fills first.
    fn take_slot(&mut self, avoid: Option<WorkerId>) -> Option<WorkerId> {
        let BatcherState { rules, workers, .. } = &mut self.state;
        workers.take(avoid, rules.now, rules.planned.then_some(self.planner.ahead))
    }

    fn dispatch(
        &mut self,
        worker: Option<WorkerId>,
        members: RequestList,
        attempt: RetryAttempt,
        reason: DispatchReason,
        out: &mut Actions,
    ) {
        let worker = worker.expect("a batch is dispatched only when a slot is free");
        let BatchMeasure { group, model, size, ran, padding } = self.state.measure(&members);
        let waiting = self.state.waiting() > 0;
        let BatcherState { rules, workers, learned, records, loads, .. } = &mut self.state;
        let mut predicted = learned.predict(group, ran, rules);
        let loads = match workers.asked(worker, model, rules.now, rules.config.models) {
            false => 0,
            true => {
                let load = loads.predict(1, 1).unwrap_or(0);
                predicted = predicted.map(|time| time.saturating_add(load));
                model
            }
        };
        self.planner.forecast.invalidate();
        let expected = learned.expected((group, size), predicted, waiting);
        let (alone, ends) = workers.expect(worker, rules.now, expected, members.len);
        let note = DispatchNote { dispatched: rules.now, alone, group, loads, size, ran, ends };
        let items = members.items as u32;
        let ids = out.list(records.walk(&members).map(|record| record.request.id));
        out.push(Action::Dispatch(Dispatch {
            worker,
            batch: self.running.start(worker, members, attempt, note),
            members: ids,
            items,
            attempt: attempt.number,
            reason,
            padding,
            predicted,
        }));
    }

    /// Asks for a timer event when the next thing is due, if that time has changed.
    fn set_timer(&mut self, out: &mut Actions) {
        let arrival = self.state.queue.arrival().len > 0;
        let due = if arrival { Fifo::next_due(&self.state) } else { NEVER };
        let due = due.min(self.planner.next_look(&self.state)).min(self.state.next_expiry());
        let timer = Some(due).filter(|&time| time != NEVER);
        if timer != self.timer {
            self.timer = timer;
            out.push(timer.map_or(Action::ClearTimer, Action::SetTimer));
        }
    }
}
