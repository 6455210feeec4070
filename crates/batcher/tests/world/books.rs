//! The oracle's books: every request, batch and worker as the events tell of them.
//!
//! Written for clarity, with maps and full scans, and without any of the batcher's code.

use std::collections::BTreeMap;

use jitney_batcher::*;

pub type Checked = Result<(), String>;

pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatcherState {
    Fresh,
    /// Its batch failed; it may travel in a batch of at most so many.
    Retry(usize),
    Running,
}

#[derive(Clone, Debug)]
pub struct Known {
    pub request: Request,
    pub arrived: Nanos,
    pub seq: u64,
    pub state: BatcherState,
    pub cancelled: bool,
    pub crashes: u8,
    /// It was alone in the last of several crashes.
    pub given_up: bool,
    /// Until when it is tried again because a worker exited with it.
    pub suspect_until: Option<Nanos>,
    pub attempts: u8,
    /// Size of the last batch it was in.
    pub company: usize,
    /// The worker of its last batch.
    pub worker: Option<WorkerId>,
}

impl Known {
    /// When half of its time is over; never without a deadline.
    pub fn half_time(&self) -> Nanos {
        let Request { deadline, .. } = self.request;
        if deadline == Nanos::MAX { deadline } else { self.arrived.midpoint(deadline) }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Worker {
    pub slots: u8,
    pub busy: u8,
    pub retiring: bool,
}

#[derive(Debug)]
pub struct Batch {
    pub worker: WorkerId,
    pub members: Vec<RequestId>,
}

#[derive(Default)]
pub struct Books {
    pub config: Config,
    pub now: Nanos,
    pub draining: bool,
    /// Whether workers have told that they prepare batches while they run others.
    pub staged: bool,
    pub requests: BTreeMap<RequestId, Known>,
    pub batches: BTreeMap<BatchId, Batch>,
    pub workers: BTreeMap<WorkerId, Worker>,
    arrivals: u64,
}

impl Books {
    // What an event changes

    pub fn learn(&mut self, event: &Event) -> Checked {
        match event {
            Event::Arrive(request) => self.arrive(*request),
            Event::Cancel { id } => {
                if let Some(known) = self.requests.get_mut(id) {
                    known.cancelled = true;
                }
            }
            Event::WorkerUp { worker, slots } => {
                let idle = Worker { slots: 0, busy: 0, retiring: false };
                let worker = self.workers.entry(*worker).or_insert(idle);
                (worker.slots, worker.retiring) = (*slots, false);
            }
            Event::WorkerRetire { worker } => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    worker.retiring = true;
                }
            }
            Event::WorkerDown { worker, why } => return self.down(*worker, *why),
            Event::Done { batch, prepare, .. } => {
                self.staged |= prepare.is_some() && self.batches.contains_key(batch);
                self.done(*batch);
            }
            Event::Measured { prepare, .. } => self.staged |= prepare.is_some(),
            Event::Failed { batch, kind } => return self.failed(&[*batch], Some(*kind)),
            Event::Configure(config) => self.configure(config),
            Event::Drain => self.draining = true,
            Event::Announce { .. } | Event::Retract { .. } => {}
            Event::Handed { .. } | Event::NeighboursAnswered { .. } | Event::Timer => {}
        }
        Ok(())
    }

    pub fn configure(&mut self, config: &Config) {
        self.config = Config { max_items: config.max_items.max(1), ..config.clone() };
    }

    fn arrive(&mut self, mut request: Request) {
        self.arrivals += 1;
        if let Policy::Adaptive(Adaptive { objective: Some(objective), .. }) = self.config.policy
            && request.deadline == Nanos::MAX
        {
            request.deadline = self.now + objective;
        }
        let known = Known {
            request: Request { items: request.items.max(1), ..request },
            arrived: self.now,
            seq: self.arrivals,
            state: BatcherState::Fresh,
            cancelled: false,
            crashes: 0,
            given_up: false,
            suspect_until: None,
            attempts: 0,
            company: 0,
            worker: None,
        };
        self.requests.insert(request.id, known);
    }

    fn done(&mut self, batch: BatchId) {
        let Some(batch) = self.take(batch) else { return };
        for id in batch.members {
            self.requests.remove(&id);
        }
    }

    fn down(&mut self, worker: WorkerId, why: DownReason) -> Checked {
        let kind = match why {
            DownReason::Crashed => Some(BatchFailure::Crashed),
            DownReason::TimedOut => Some(BatchFailure::TimedOut),
            DownReason::Removed => None,
        };
        let batches = self.batches.iter().filter(|(_, batch)| batch.worker == worker);
        let batches: Vec<_> = batches.map(|(id, _)| *id).collect();
        // A crash makes suspects of all of them together.
        let together = if why == DownReason::Crashed { batches.len().max(1) } else { 1 };
        for batches in batches.chunks(together) {
            self.failed(batches, kind)?;
        }
        self.workers.remove(&worker);
        Ok(())
    }

    /// The members wait again; no kind means that they are innocent.
    fn failed(&mut self, batches: &[BatchId], kind: Option<BatchFailure>) -> Checked {
        let batches: Vec<_> = batches.iter().filter_map(|batch| self.take(*batch)).collect();
        let ids: Vec<_> = batches.iter().flat_map(|batch| batch.members.clone()).collect();
        let (len, budget) = (ids.len(), self.config.retry_budget > 0);
        let attempts = ids.iter().map(|id| self.requests[id].attempts).max().unwrap_or(0);
        let earlier = ids.iter().filter_map(|id| self.requests[id].suspect_until).min();
        let until = self.now.saturating_add(self.config.suspect_time).min(Nanos::MAX - 1);
        for id in &ids {
            let known = self.requests.get_mut(id).ok_or("a member ended while it ran")?;
            known.crashes += u8::from(kind == Some(BatchFailure::Crashed));
            known.given_up = kind == Some(BatchFailure::Crashed) && len == 1 && known.crashes > 1;
            known.suspect_until = match kind {
                None => known.suspect_until,
                Some(BatchFailure::Handler) => None,
                Some(_) => Some(earlier.map_or(until, |earlier| earlier.min(until))),
            };
            known.state = match kind {
                None if known.attempts == 1 => BatcherState::Fresh,
                None => BatcherState::Retry(len),
                Some(BatchFailure::Crashed) => BatcherState::Retry(len.div_ceil(2)),
                Some(_) if !budget => BatcherState::Retry(0),
                Some(BatchFailure::Handler) => BatcherState::Retry(len.div_ceil(2)),
                Some(BatchFailure::TimedOut) => BatcherState::Retry(1),
            };
            known.attempts = if kind.is_none() { known.attempts - 1 } else { attempts };
        }
        Ok(())
    }

    fn take(&mut self, batch: BatchId) -> Option<Batch> {
        let batch = self.batches.remove(&batch)?;
        let worker = self.workers.get_mut(&batch.worker)?;
        worker.busy -= 1;
        if worker.retiring && worker.busy == 0 {
            self.workers.remove(&batch.worker);
        }
        Some(batch)
    }

    // The rules in their simplest form

    pub fn adaptive(&self) -> bool {
        matches!(self.config.policy, Policy::Adaptive(_))
    }

    pub fn idle(&self) -> bool {
        self.workers.values().any(|it| !it.retiring && it.busy == 0 && it.slots > 0)
    }

    pub fn waiting(&self) -> impl Iterator<Item = &Known> {
        self.requests.values().filter(|known| known.state != BatcherState::Running)
    }

    pub fn fresh(&self) -> impl Iterator<Item = &Known> {
        self.requests.values().filter(|known| known.state == BatcherState::Fresh)
    }

    /// Whether this batch is of suspects.
    pub fn suspects(&self, batch: &Batch) -> bool {
        self.requests[&batch.members[0]].suspect_until.is_some()
    }

    /// Whether suspects run, and whether some wait.
    pub fn suspects_run_and_wait(&self) -> [bool; 2] {
        let run = self.batches.values().any(|batch| self.suspects(batch));
        [run, self.waiting().any(|known| known.suspect_until.is_some())]
    }

    /// The workers that can take a batch; one that runs suspects cannot.
    pub fn free_workers(&self) -> impl Iterator<Item = WorkerId> {
        let alone = |id| {
            let batches = self.batches.values().filter(move |batch| batch.worker == id);
            !batches.into_iter().any(|batch| self.suspects(batch))
        };
        let free = |worker: &Worker| !worker.retiring && worker.busy < worker.slots;
        let free = self.workers.iter().filter(move |(_, worker)| free(worker)).map(|(id, _)| *id);
        free.filter(move |id| alone(*id))
    }

    /// Whether the worker this request is pinned to, or any if it is to none, can take a batch.
    pub fn free_for(&self, known: &Known) -> bool {
        self.free_workers().any(|free| known.request.worker.is_none_or(|pinned| pinned == free))
    }

    /// The same for a batch that is not full: a worker that prepares must be idle for it.
    pub fn open_for(&self, known: &Known) -> bool {
        let idle = |id| self.workers.get(&id).is_some_and(|it| it.busy == 0 || !self.staged);
        let fits = |id| known.request.worker.is_none_or(|pinned| pinned == id);
        self.free_workers().any(|id| fits(id) && idle(id))
    }

    /// Whether a worker can take what is due of this group.
    pub fn served(&self, group: &[&Known]) -> bool {
        let full = self.due(group) == Some(DispatchReason::Full);
        self.open_for(group[0]) || full && self.free_for(group[0])
    }

    /// Whether the worker this request is pinned to is not there to stay.
    pub fn stranded(&self, known: &Known) -> bool {
        let stays = |id| self.workers.get(&id).is_some_and(|worker| !worker.retiring);
        known.request.worker.is_some_and(|pinned| !stays(pinned))
    }

    pub fn may_meet(&self, a: &Known, b: &Known) -> bool {
        let kinds = self.config.mix_origins || a.request.origin.kind == b.request.origin.kind;
        kinds && a.request.group == b.request.group && a.request.worker == b.request.worker
    }

    /// Whether they stand in one group: where lengths are padded, only those that run as long do.
    pub fn same_lane(&self, a: &Known, b: &Known) -> bool {
        self.may_meet(a, b) && self.class(a) == self.class(b)
    }

    /// The length at which it runs where lengths are padded: the next larger one of the model, or the
    /// square root of a power of 2.
    pub fn class(&self, known: &Known) -> u64 {
        if self.config.measure == Measure::Padded { self.runs_as(length(known)) } else { 0 }
    }

    fn runs_as(&self, length: u64) -> u64 {
        let lengths = self.config.lengths.iter().map(|&it| u64::from(it));
        let octave = (0..).map(|it| 1u64 << it).find(|&it| length.pow(2) <= it).unwrap_or(0);
        lengths.filter(|&it| it >= length).min().unwrap_or(octave.isqrt())
    }

    /// The class of the next shorter lengths; 0 if there is none.
    pub fn shorter(&self, class: u64) -> u64 {
        (1..class).rev().map(|it| self.runs_as(it)).find(|&it| it != class).unwrap_or(0)
    }

    /// What all of them weigh as they are run in the group of this one.
    pub fn weight(&self, members: &[&Known], lead: &Known) -> u64 {
        match self.config.measure {
            Measure::Padded => sum_items(members) * self.class(lead),
            Measure::Items | Measure::Packed => sum_cost(members),
        }
    }

    /// How many items are run for so many.
    pub fn rows(&self, items: u64) -> u64 {
        let fits = |size: &&u32| **size <= self.config.max_items && u64::from(**size) >= items;
        self.config.sizes.iter().filter(fits).min().map_or(items, |&size| size.into())
    }

    /// Whether these may borrow the last of them.
    pub fn may_borrow(&self, members: &[&Known], lead: &Known) -> bool {
        let (all, last) = (sum_items(members), members[members.len() - 1].request.items);
        let own = self.config.lengths.iter().any(|&it| it > 0);
        let longest = members.iter().map(|it| length(it)).max().unwrap_or(0);
        let padded = all * if own { self.class(lead) } else { longest };
        let free = own && self.rows(all) == self.rows(all - u64::from(last));
        free || padded.max(if own { 0 } else { sum_cost(members) }) * 4 <= sum_cost(members) * 5
    }

    /// What is real and what is padded of a batch; none where nothing is.
    pub fn padding(&self, members: &[&Known]) -> Option<Padding> {
        let (items, longest) =
            (sum_items(members), members.iter().map(|it| length(it)).max().unwrap_or(0));
        let (real, padded) = match self.config.measure {
            Measure::Padded if self.config.lengths.iter().any(|&it| it > 0) => {
                let run = self.rows(items) * self.runs_as(longest);
                (sum_cost(members), run.max(sum_cost(members)))
            }
            Measure::Padded => (sum_cost(members), (items * longest).max(sum_cost(members))),
            Measure::Packed => return None,
            Measure::Items => {
                let fits = |size: &&u32| **size <= self.config.max_items && **size > 0;
                let sizes: Vec<_> = self.config.sizes.iter().filter(fits).collect();
                let above = sizes.iter().map(|it| u64::from(**it)).filter(|it| *it >= items).min();
                (items, above.or((!sizes.is_empty()).then_some(items))?)
            }
        };
        Some(Padding { real, padded })
    }

    pub fn holds(&self, members: &[&Known]) -> bool {
        let cost = sum_cost(members);
        sum_items(members) <= self.config.max_items.into() && cost <= self.config.max_cost
    }

    /// Whether one more would be too much, in requests or in items.
    pub fn full_for(&self, known: &Known) -> bool {
        let waiting: Vec<_> = self.fresh().collect();
        let items = sum_items(&waiting) + u64::from(known.request.items);
        let most = u64::from(self.config.max_queue) * u64::from(self.config.max_items);
        count(&waiting) >= self.config.max_queue as usize || items > most
    }

    pub fn groups(&self) -> Vec<Vec<&Known>> {
        let mut groups: Vec<Vec<&Known>> = Vec::new();
        for known in self.fresh() {
            match groups.iter_mut().find(|group| self.same_lane(group[0], known)) {
                Some(group) => group.push(known),
                None => groups.push(vec![known]),
            }
        }
        groups
    }

    /// Arrival number of the oldest request of this priority in any group that is due and served.
    pub fn oldest_due(&self, priority: Priority) -> Option<u64> {
        let served = self.groups().into_iter().filter(|group| self.served(group));
        let due = served.filter(|group| self.due(group).is_some());
        due.flatten().filter(|known| known.request.priority == priority).map(|it| it.seq).min()
    }

    pub fn due(&self, group: &[&Known]) -> Option<DispatchReason> {
        let oldest = group.iter().map(|known| known.arrived).min()?;
        let cost = self.weight(group, group[0]);
        if sum_items(group) >= self.config.max_items.into() || cost >= self.config.max_cost {
            return Some(DispatchReason::Full);
        }
        match self.window() {
            None => Some(DispatchReason::Idle),
            Some(delay) if oldest + delay <= self.now => Some(DispatchReason::Window),
            Some(_) if group.iter().any(|known| known.half_time() <= self.now) => {
                Some(DispatchReason::Deadline)
            }
            Some(_) => self.draining.then_some(DispatchReason::Drain),
        }
    }

    pub fn window(&self) -> Option<Nanos> {
        match self.config.policy {
            Policy::Opportunistic => None,
            Policy::Window { delay } => Some(delay),
            Policy::Adaptive(adaptive) => adaptive.window,
        }
    }
}

/// Requests among them: parts before the last are none.
pub fn count(members: &[&Known]) -> usize {
    members.iter().filter(|known| !known.request.more).count()
}

/// The length of each of its items.
fn length(known: &Known) -> u64 {
    known.request.cost.div_ceil(known.request.items.into()).max(1)
}

pub fn sum_cost(members: &[&Known]) -> u64 {
    members.iter().map(|known| known.request.cost).sum()
}

pub fn sum_items(members: &[&Known]) -> u64 {
    members.iter().map(|known| u64::from(known.request.items)).sum()
}
