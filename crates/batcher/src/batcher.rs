//! The state machine: what each event does, and the decision that follows every one of them.
//!
//! An event only changes who stands where; `departure` then lets go whatever is due and derives
//! the timer anew, so that no event needs to know what it may have made due. What becomes of a
//! failed batch is in `failure`. Outside these three files nothing ever writes an action.

mod borrowing;
mod departure;
mod failure;
mod planning;
#[cfg(test)]
mod tests;

use crate::action::{Action, Actions, Rejection};
use crate::adaptive::{CurvePoint, Decision, Planner};
use crate::config::{Adaptive, Config, Policy};
use crate::event::{BatchFailure, Event};
use crate::expiry::Deadlines;
use crate::isolation::{Budget, Retries};
use crate::lanes::Lanes;
use crate::pace::Pace;
use crate::policy::Rules;
use crate::records::{Place, Records};
use crate::request::{BatchId, NEVER, Nanos, Request, RequestId};
use crate::running::Running;
use crate::slots::Slots;

/// Decides when a batch leaves and with whom, for one version of one model.
#[derive(Debug)]
pub struct Batcher {
    rules: Rules,
    records: Records,
    lanes: Lanes,
    retries: Retries,
    deadlines: Deadlines,
    slots: Slots,
    running: Running,
    budget: Budget,
    pace: Pace,
    /// What the adaptive policy knows, and who waits under it.
    planner: Planner,
    /// What the caller was last told.
    timer: Option<Nanos>,
}

impl Batcher {
    /// A batcher without workers or requests.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            rules: Rules { config: config.normal(), draining: false, now: 0 },
            records: Records::default(),
            lanes: Lanes::default(),
            retries: Retries::default(),
            deadlines: Deadlines::default(),
            slots: Slots::default(),
            running: Running::default(),
            budget: Budget::default(),
            pace: Pace::default(),
            planner: Planner::default(),
            timer: None,
        }
    }

    /// Takes one event and appends to `out` what is to be done about it.
    ///
    /// Afterwards nothing that has expired waits, and no batch is due while a slot is free; only
    /// after a portion of a request ([`Request::more`]) nothing is decided. A `now` before that of an
    /// earlier step counts as that one.
    ///
    /// # Panics
    /// If a request arrives at an index whose last request has not ended, or at `u32::MAX`.
    pub fn step(&mut self, now: Nanos, event: Event, out: &mut Actions) {
        self.rules.now = self.rules.now.max(now);
        self.expire(out);
        // Those who come change nothing about the workers, nor about a wait for company.
        if !matches!(event, Event::Arrive(_) | Event::Announce { .. }) {
            self.planner.fleet.seen = false;
            self.planner.queue.paced = None;
        }
        let more = matches!(event, Event::Arrive(Request { more: true, .. }));
        self.apply(event, out);
        if !more {
            self.planner.brought = 0.0;
            self.decide(out);
            self.set_timer(out);
        }
    }

    /// Requests that wait, those to be tried again included; one in portions while its last one waits.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.lanes.requests + self.planner.queue.requests + self.retries.requests
    }

    /// Items of the requests that wait.
    #[must_use]
    pub fn waiting_items(&self) -> u32 {
        let items = self.lanes.items + self.planner.queue.items + self.retries.items;
        u32::try_from(items).unwrap_or(u32::MAX)
    }

    /// Batches on workers.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running.len() as u32
    }

    /// Whether `Event::Drain` came and nothing waits or runs any more.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.rules.draining && self.waiting_items() == 0 && self.running() == 0
    }

    /// The knobs in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.rules.config
    }

    /// What was learned about the service time: one point for every batch size seen, ascending.
    /// One curve per group.
    pub fn curve(&self) -> impl Iterator<Item = CurvePoint> + '_ {
        self.planner.curve_points()
    }

    /// The last decisions of the adaptive policy, oldest first; at most 64.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> + '_ {
        self.planner.journal.iter()
    }

    fn apply(&mut self, event: Event, out: &mut Actions) {
        match event {
            Event::Arrive(request) => self.arrive(request, out),
            Event::Cancel { id } => self.cancel(id, out),
            Event::WorkerUp { worker, slots } => self.slots.up(worker, slots),
            Event::WorkerRetire { worker } => {
                self.slots.retire(worker);
                self.strand(worker, out);
            }
            Event::WorkerDown { worker, why } => self.worker_down(worker, why, out),
            Event::Done { batch, exec } => self.done(batch, exec),
            Event::Measured { group, items, cost, exec } => {
                self.measured(group, (items, cost), exec);
            }
            Event::Failed { batch, kind } => self.failed(batch, kind, out),
            Event::Configure(config) => self.configure(config, out),
            Event::Drain => self.rules.draining = true,
            Event::Announce { origin } => self.planner.announce(self.rules.now, origin),
            Event::Retract { origin } => self.planner.retract(origin),
            Event::Handed { took } => self.planner.handed(took),
            // What is due is derived at every step, whoever woke us.
            Event::Timer => {}
        }
    }

    // Arrival

    fn arrive(&mut self, mut request: Request, out: &mut Actions) {
        request.items = request.items.max(1);
        request.deadline = self.rules.deadline(&request);
        if let Some(reason) = self.refusal(&request) {
            return out.push(Action::Reject { id: request.id, reason, retry_after: None });
        }
        if let Policy::Adaptive(Adaptive { objective, .. }) = self.rules.config.policy {
            if request.deadline == NEVER {
                request.deadline = self.rules.now.saturating_add(objective.unwrap_or(NEVER));
            }
            if request.worker.is_none() {
                return self.arrive_adaptive(request, out);
            }
        }
        let at = self.records.admit(request, self.rules.now);
        self.wait(at);
        if request.more {
            return;
        }
        // The queue holds those who wait: one who leaves at once needs no place in it.
        self.decide(out);
        if self.records[at].waits() && self.overfull() {
            self.withdraw(at);
            self.reject(at, Rejection::QueueFull, self.drain_time(), out);
        }
    }

    fn refusal(&self, request: &Request) -> Option<Rejection> {
        let Rules { config, draining, now } = &self.rules;
        if *draining {
            Some(Rejection::Draining)
        } else if config.too_large(request) {
            Some(Rejection::TooLarge)
        } else if request.deadline <= *now {
            Some(Rejection::Expired)
        } else {
            let gone = request.worker.is_some_and(|worker| !self.slots.stays(worker));
            gone.then_some(Rejection::NoWorker)
        }
    }

    /// Whether more waits than may: requests, or so many items that full batches of them would be.
    fn overfull(&self) -> bool {
        let Config { max_queue, max_items, .. } = self.rules.config;
        let items_max = u64::from(max_queue) * u64::from(max_items);
        self.waiting() > max_queue || u64::from(self.waiting_items()) > items_max
    }

    /// How long it will take until all who wait now have been answered.
    fn drain_time(&self) -> Option<Nanos> {
        if self.rules.adaptive() {
            return self.planner.drain_time(self.rules.now, &self.rules.config);
        }
        let batches = self.waiting_items().div_ceil(self.rules.config.max_items);
        self.pace.predict(u64::from(batches) + u64::from(self.running()), self.slots.capacity())
    }

    // Cancellation, expiry, completion

    fn cancel(&mut self, id: RequestId, out: &mut Actions) {
        let Some(at) = self.records.find(id) else { return };
        if self.records[at].waits() {
            self.withdraw(at);
            self.reject(at, Rejection::Cancelled, None, out);
        } else {
            self.records[at].cancelled = true;
        }
    }

    fn expire(&mut self, out: &mut Actions) {
        self.expire_lines(out);
        while let Some(at) = self.deadlines.pop(&mut self.records, self.rules.now) {
            self.withdraw(at);
            self.reject(at, Rejection::Expired, None, out);
        }
    }

    fn done(&mut self, id: BatchId, exec: Nanos) {
        let Some(mut batch) = self.running.take(id) else { return };
        if let Some(early) = self.slots.release(batch.worker, self.rules.now) {
            self.planner.ended_early(early);
        }
        self.pace.learn(exec);
        self.learn(&batch, exec);
        if batch.attempt == 1 {
            self.budget.earn(batch.members.len);
        }
        while let Some(at) = self.records.pop(&mut batch.members) {
            self.records.end(at);
        }
    }

    // Configuration

    /// Everybody who waits is looked at again: lanes may divide otherwise, limits be smaller.
    fn configure(&mut self, config: Config, out: &mut Actions) {
        self.rules.config = config.normal();
        self.planner.queue.heads = None;
        let mut all = self.lanes.take_all(&mut self.records);
        all.extend(self.leave_lines());
        for at in all {
            if self.readmit(at, out) {
                self.wait(at);
            }
        }
        for group in self.retries.take_all(&mut self.records) {
            self.regroup(group, out);
        }
    }

    // Coming and going

    /// Puts a request that stands nowhere into its lane.
    fn wait(&mut self, at: u32) {
        if self.rules.adaptive() && self.records[at].request.worker.is_none() {
            return self.line_up(at);
        }
        self.lanes.insert(&mut self.records, at, &self.rules.config);
        self.deadlines.watch(&mut self.records, at);
    }

    /// Takes a waiting request out of its lane or group.
    fn withdraw(&mut self, at: u32) {
        match self.records[at].place {
            Place::Lane(lane) => self.lanes.remove(&mut self.records, at, lane),
            Place::Line(lane) => self.leave_line(at, lane),
            Place::Group(serial) => self.retries.remove(&mut self.records, at, serial),
            Place::Running => {}
        }
    }

    /// Ends a request that stands nowhere.
    fn reject(
        &mut self,
        at: u32,
        reason: Rejection,
        retry_after: Option<Nanos>,
        out: &mut Actions,
    ) {
        let id = self.records[at].request.id;
        out.push(Action::Reject { id, reason, retry_after });
        self.records.end(at);
    }

    /// Ends a request that stands nowhere.
    fn fail(&mut self, at: u32, kind: BatchFailure, out: &mut Actions) {
        out.push(Action::Fail { id: self.records[at].request.id, kind });
        self.records.end(at);
    }
}
