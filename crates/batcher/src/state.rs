//! What every decision looks at: the rules, the requests, the workers and what was learned.
//!
//! Requests enter and leave the queues here, and end here with an action. It never decides when a
//! batch is dispatched.

use crate::action::{Action, Actions, Rejection};
use crate::config::{Config, Measure};
use crate::event::BatchFailure;
use crate::learned::Learned;
use crate::padding::{Mix, Padding};
use crate::policy::Rules;
use crate::queue::Queue;
use crate::queue::sorted::WaitingRequest;
use crate::records::{Location, Record, Records, RequestList};
use crate::request::{NEVER, Nanos, Request, RequestId, WorkerId};
use crate::retry::RetryQueue;
use crate::running::Pace;
use crate::workers::Workers;

/// The state of a batcher without what runs.
#[derive(Debug)]
pub(crate) struct BatcherState {
    pub(crate) rules: Rules,
    pub(crate) records: Records,
    pub(crate) queue: Queue,
    pub(crate) retries: RetryQueue,
    pub(crate) workers: Workers,
    pub(crate) learned: Learned,
    /// How long workers take to load a model that requests ask for.
    pub(crate) loads: Pace,
}

/// What a batch weighs.
#[derive(Debug)]
pub(crate) struct BatchMeasure {
    pub(crate) group: u16,
    /// The model that its requests ask for.
    pub(crate) model: u64,
    /// Its size, and that at which it runs.
    pub(crate) size: u64,
    pub(crate) ran: u64,
    /// None where nothing is padded.
    pub(crate) padding: Option<Padding>,
}

impl BatcherState {
    /// A worker came or goes: with another number of them batches may take longer or shorter.
    pub(crate) fn count_workers(&mut self) {
        self.learned.workers(self.workers.slots().0);
    }

    /// A batch of this size and with so many items is dispatched to workers that prepare; tries how their slots
    /// are best filled for clients that come back, if these do.
    #[cold]
    pub(crate) fn try_slots(&mut self, clients: Option<u64>, size: (u64, u64)) {
        let (workers, slots, _) = self.workers.slots();
        let Learned { trials, .. } = &mut self.learned;
        if trials.dispatched(self.rules.now, clients, size, (workers.max(1), slots)) {
            self.workers.use_slots(Some(trials.slot_use()));
        }
    }

    pub(crate) fn new(config: Config) -> Self {
        Self {
            rules: Rules::new(config),
            records: Records::default(),
            queue: Queue::default(),
            retries: RetryQueue::default(),
            workers: Workers::default(),
            learned: Learned::default(),
            loads: Pace::default(),
        }
    }

    /// Requests that wait, those to be tried again included.
    pub(crate) fn waiting(&self) -> u32 {
        self.queue.arrival().requests + self.queue.planned().requests + self.retries.requests
    }

    /// Items of the requests that wait.
    pub(crate) fn waiting_items(&self) -> u32 {
        let items = self.queue.arrival().items + self.queue.planned().items + self.retries.items;
        u32::try_from(items).unwrap_or(u32::MAX)
    }

    /// Whether the queue exceeds its limit of requests or of items.
    pub(crate) fn overfull(&self) -> bool {
        let Config { max_queue, max_items, .. } = self.rules.config;
        let items_max = u64::from(max_queue) * u64::from(max_items);
        let (arrival, planned) = (self.queue.arrival(), self.queue.planned());
        arrival.requests + planned.requests > max_queue || arrival.items + planned.items > items_max
    }

    /// What a batch weighs.
    pub(crate) fn measure(&self, members: &RequestList) -> BatchMeasure {
        let config = &self.rules.config;
        let head = members.head().map(|at| &self.records[at].request);
        let (group, model) = head.map_or((0, 0), |request| (request.group, request.model));
        let (size, ran, padding) = match config.measure {
            Measure::Items => {
                let padded = config.run_size(members.items as u32).into();
                let padding = Padding { real: members.items, padded };
                (members.items, padded, (!config.sizes.is_empty()).then_some(padding))
            }
            Measure::Packed => {
                let cost = u64::try_from(members.cost.max(1)).unwrap_or(u64::MAX);
                (cost, cost, None)
            }
            Measure::Padded => {
                let mix = Mix::of(self.records.walk(members).map(|record| &record.request));
                let size = u64::try_from(mix.weight(config)).unwrap_or(u64::MAX);
                (size, mix.size(config), Some(mix.padding(config)))
            }
        };
        BatchMeasure { group, model, size, ran, padding }
    }

    /// Fills a padded batch that took its whole group with requests that are a little shorter, the
    /// leading priority first. `fits` may refuse one; it is told the size of the batch with it, and
    /// how much of that is new.
    pub(crate) fn borrow(
        &mut self,
        (group, priority): (usize, usize),
        batch: &mut RequestList,
        mut fits: impl FnMut(&Self, &WaitingRequest, u64, u64) -> bool,
    ) {
        let Some(lender) = self.queue.lender(group, &self.rules.config) else { return };
        let mut mix = Mix::of(self.records.walk(batch).map(|record| &record.request));
        for priority in [priority, 1 - priority] {
            let from = (lender, priority);
            while let Some((head, grown)) = self.queue.borrowable(from, mix, &self.rules.config)
                && let [now, then] = [mix, grown].map(|it| it.size(&self.rules.config))
                && fits(self, head, then, then.saturating_sub(now))
            {
                mix = grown;
                self.queue.dispatch(&mut self.records, (lender, priority, 0), batch);
            }
        }
    }

    // Models that requests ask for

    /// Until when requests for a model that came then wait for the worker that holds it: as long as a load takes.
    pub(crate) fn waits_for_holder(&self, since: Nanos) -> Nanos {
        since.saturating_add(self.loads.predict(1, 1).unwrap_or(NEVER))
    }

    /// The worker for a batch of this model whose oldest request came then, if one may take it now.
    pub(crate) fn worker_for(&self, model: u64, since: Nanos, full: bool) -> Option<WorkerId> {
        let (most, until) = (self.rules.config.models as usize, self.waits_for_holder(since));
        self.workers.worker_for(model, full, most, (self.rules.now, until))
    }

    // Entering

    /// Why a new request is rejected under every policy, if it is.
    pub(crate) fn rejection(&self, request: &Request) -> Option<Rejection> {
        let Rules { config, draining, now, .. } = &self.rules;
        if *draining {
            Some(Rejection::Draining)
        } else if config.too_large(request) {
            Some(Rejection::TooLarge)
        } else if request.deadline <= *now {
            Some(Rejection::Expired)
        } else {
            let gone = request.worker.is_some_and(|worker| !self.workers.stays(worker));
            gone.then_some(Rejection::NoWorker)
        }
    }

    /// The group of a request; what is learned about a new planned one starts here.
    pub(crate) fn group(&mut self, request: &Request) -> usize {
        let (group, new) = self.queue.group(request, &self.rules);
        if new && self.queue.groups[group].planned() {
            let objective = self.rules.adaptive.objective;
            let planned = self.queue.planned_groups;
            self.learned.new_group(group, request.group, planned, objective);
        }
        group
    }

    /// Lets a request wait that has waited before.
    pub(crate) fn wait(&mut self, at: u32) {
        let request = self.records[at].request;
        let group = self.group(&request);
        self.queue.insert(&mut self.records, at, group, &self.rules);
    }

    /// Whether a request that is in no queue may wait again; if not, it ends.
    pub(crate) fn readmit(&mut self, at: u32, out: &mut Actions) -> bool {
        let Record { request, cancelled, .. } = &self.records[at];
        let reason = if *cancelled {
            Rejection::Cancelled
        } else if request.deadline <= self.rules.now {
            Rejection::Expired
        } else if self.rules.config.too_large(request) {
            Rejection::TooLarge
        } else if request.worker.is_some_and(|worker| !self.workers.stays(worker)) {
            Rejection::NoWorker
        } else {
            return true;
        };
        self.reject(at, reason, None, out);
        false
    }

    // Leaving

    /// Takes a waiting request out of its queue.
    pub(crate) fn withdraw(&mut self, at: u32) {
        match self.records[at].location {
            Location::Queue(group) => self.queue.remove(&mut self.records, at, group),
            Location::Retry(serial) => self.retries.remove(&mut self.records, at, serial),
            Location::Running => {}
        }
    }

    /// Ends a request that is in no queue.
    pub(crate) fn reject(
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

    /// Ends a request whose batch failed.
    pub(crate) fn fail(&mut self, at: u32, kind: BatchFailure, out: &mut Actions) {
        out.push(Action::Fail { id: self.records[at].request.id, kind });
        self.records.end(at);
    }

    /// Ends a request that waits; one that runs ends with its batch.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Actions) {
        let Some(at) = self.records.find(id) else { return };
        if self.records[at].waits() {
            self.withdraw(at);
            self.reject(at, Rejection::Cancelled, None, out);
        } else {
            self.records[at].cancelled = true;
        }
    }

    /// Rejects the requests that wait for a worker that takes no more batches.
    pub(crate) fn reject_pinned(&mut self, worker: WorkerId, out: &mut Actions) {
        for at in self.queue.take_pinned(&mut self.records, worker) {
            self.reject(at, Rejection::NoWorker, None, out);
        }
    }

    /// Rejects the waiting requests whose deadline has come; suspects that were not cleared in time fail.
    pub(crate) fn expire(&mut self, out: &mut Actions) {
        while let Some((at, suspect)) = self.expired() {
            self.withdraw(at);
            match suspect {
                true => self.fail(at, BatchFailure::Crashed, out),
                false => self.reject(at, Rejection::Expired, None, out),
            }
        }
    }

    fn expired(&self) -> Option<(u32, bool)> {
        let now = self.rules.now;
        let mut retried = self.retries.limits(&self.records);
        let retried = retried.find(|(until, ..)| *until <= now);
        let retried = retried.map(|(_, suspect, at)| (at, suspect));
        retried.or_else(|| self.queue.expired(now).map(|at| (at, false)))
    }

    /// When the next waiting request expires.
    #[inline]
    pub(crate) fn next_expiry(&mut self) -> Nanos {
        let queued = self.queue.next_deadline();
        if self.retries.len == 0 { queued } else { queued.min(self.next_retry_expiry()) }
    }

    fn next_retry_expiry(&self) -> Nanos {
        let retried = self.retries.limits(&self.records).map(|(until, ..)| until).min();
        retried.unwrap_or(NEVER)
    }
}
