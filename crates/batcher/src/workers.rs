//! Which workers there are and which of them can take a batch.
//!
//! A worker is a name, its slots and when its last batch is expected to end; `running` knows the
//! batches themselves. Workers are few, so they are simply scanned.

mod models;

use crate::forecast::WorkerForecast;
use crate::held::HeldModels;
use crate::request::{Nanos, WorkerId};

/// A worker that takes more than this many times as long as expected is not planned with.
const SUSPECT: u64 = 3;
/// A worker that is overdue is expected after this part of what it was to take.
const OVERDUE: u64 = 20;

/// How long before its last batch ends a worker is handed the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// What passes until the batch is there.
    pub(crate) by: Nanos,
    /// How long preparing it takes; 0 where workers do not.
    pub(crate) prepare: Nanos,
}

/// What a batch that is handed over is expected to take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedTimes {
    pub(crate) takes: Nanos,
    /// 0 where workers do not prepare.
    pub(crate) prepare: Nanos,
}

/// How long the stages of a batch took, and the shares of these times in which the other stage was
/// busy with another batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageTimes {
    pub(crate) prepare: Nanos,
    pub(crate) prepare_shared: f64,
    pub(crate) exec_shared: f64,
}

/// A way of filling the slots of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotUse {
    /// So many batches at a time, each when the policy says so.
    AtATime(u8),
    /// Full batches at once, and smaller ones when the worker is idle.
    Full,
}

/// A time from the first to the second.
type StageSpan = (Nanos, Nanos);

fn shared(one: StageSpan, other: StageSpan) -> Nanos {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

/// Who may have a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenTo {
    Everybody,
    /// It is to run suspects once it is idle.
    Nobody,
    /// It runs suspects, and nothing else until they are over.
    Suspects,
}

#[derive(Debug)]
struct TrackedWorker {
    id: WorkerId,
    slots: u8,
    /// How many of them are filled, and whether full batches fill them at once.
    used: u8,
    at_once: bool,
    busy: u8,
    retiring: bool,
    open_to: OpenTo,
    /// When its last batch is expected to be over, and how long that one was to take.
    finish: Nanos,
    takes: Nanos,
    /// Requests in its last batch, and in all of them.
    requests: u32,
    held: u32,
    /// When its last batch is expected to be prepared; nothing where it does not prepare.
    preparing: StageSpan,
    /// When the batch that was answered last was prepared, and when it ran.
    prepared: Nanos,
    ran: StageSpan,
    models: HeldModels,
}

impl TrackedWorker {
    fn new(id: WorkerId, slots: u8) -> Self {
        Self {
            id,
            slots,
            used: slots,
            at_once: false,
            busy: 0,
            retiring: false,
            open_to: OpenTo::Everybody,
            finish: 0,
            takes: 0,
            requests: 0,
            held: 0,
            preparing: (0, 0),
            prepared: 0,
            ran: (0, 0),
            models: HeldModels::default(),
        }
    }

    fn free(&self) -> bool {
        !self.retiring && self.busy < self.slots && self.open_to == OpenTo::Everybody
    }

    /// Whether nothing runs on it, and batches may.
    fn idle(&self) -> bool {
        self.busy == 0 && self.slots > 0 && !self.retiring
    }

    /// Whether the policy fills another slot of it.
    fn fills_another(&self) -> bool {
        self.free() && self.busy < self.used.max(1)
    }

    /// Whether it takes a batch now: it has none, or its last one is about to end, so that it may be
    /// handed the next one `ahead` of that. An overdue worker is not: its end is unknown.
    fn open(&self, now: Nanos, ahead: Ahead) -> bool {
        let grace = if ahead.prepare > 0 { self.takes } else { self.takes / OVERDUE };
        let ending =
            self.takes > 0 && self.opens(ahead) <= now && now <= self.finish.saturating_add(grace);
        self.fills_another() && (self.busy == 0 || ending || self.at_once)
    }

    /// From when on it may be handed the next batch: so early that the batch is prepared when the
    /// last one ends, and not before that one is prepared.
    fn opens(&self, ahead: Ahead) -> Nanos {
        if ahead.prepare == 0 {
            return self.finish.saturating_sub(ahead.by.min(self.takes / 2));
        }
        let just_in_time = self.finish.saturating_sub(ahead.prepare);
        just_in_time.max(self.preparing.1).saturating_sub(ahead.by)
    }

    /// How long until it is free; none if that is unknown.
    fn left(&self, now: Nanos) -> Option<Nanos> {
        if self.finish > now {
            return Some(self.finish - now);
        }
        let suspect = now - self.finish > (SUSPECT - 1) * self.takes;
        (!suspect).then_some(self.takes / OVERDUE)
    }

    /// Adds a busy worker to the forecast; another slot is filled `ahead` of its end.
    fn survey_busy(&self, now: Nanos, ahead: Ahead, forecast: &mut WorkerForecast) {
        // No worker is given a batch ahead of time while another could run it now.
        if !forecast.idles() && self.open(now, ahead) {
            return forecast.open_soon(self.finish.saturating_sub(now), self.requests);
        }
        let Some(left) = self.left(now) else { return };
        forecast.busy(left);
        let at = self.opens(ahead);
        if self.fills_another() && self.takes > 0 && at > now {
            forecast.ahead = Some(forecast.ahead.map_or(at, |other| other.min(at)));
        }
    }
}

/// All workers, lowest number first.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    workers: Vec<TrackedWorker>,
    /// Whether they prepare batches while they run others.
    staged: bool,
    /// How their slots are filled; none: all of them are.
    slot_use: Option<SlotUse>,
    /// Whether suspects wait for an idle one.
    pub(crate) keeps: bool,
}

impl Workers {
    /// A worker is ready, or has another number of slots than before.
    pub(crate) fn up(&mut self, id: WorkerId, slots: u8) {
        match self.find(id) {
            Ok(at) => {
                self.workers[at].slots = slots;
                self.workers[at].retiring = false;
            }
            Err(at) => {
                self.workers.insert(at, TrackedWorker::new(id, slots));
            }
        }
        self.use_slots(self.slot_use);
    }

    /// From now on slots are filled in this way; none: all of them.
    pub(crate) fn use_slots(&mut self, slot_use: Option<SlotUse>) {
        self.slot_use = slot_use;
        let most = match slot_use {
            Some(SlotUse::AtATime(most)) => most,
            _ => u8::MAX,
        };
        for worker in &mut self.workers {
            worker.used = worker.slots.min(most);
            worker.at_once = slot_use == Some(SlotUse::Full);
        }
    }

    /// The worker gets no more batches and is forgotten once it is idle.
    pub(crate) fn retire(&mut self, id: WorkerId) {
        if let Ok(at) = self.find(id) {
            self.workers[at].retiring = true;
            self.forget_retired(at);
        }
    }

    /// The worker is gone.
    pub(crate) fn down(&mut self, id: WorkerId) {
        if let Ok(at) = self.find(id) {
            self.workers.remove(at);
        }
    }

    /// Takes a slot of the lowest-numbered worker that has one, of `avoid` only if no other has.
    /// With `ahead` a busy worker takes another batch only as its last one ends, and idle workers
    /// go first.
    pub(crate) fn take(
        &mut self,
        avoid: Option<WorkerId>,
        now: Nanos,
        ahead: Option<Ahead>,
    ) -> Option<WorkerId> {
        let staged = self.staged;
        let rank = |worker: &TrackedWorker| match ahead {
            Some(_) if worker.busy > 0 => worker.finish.max(1),
            None if staged => worker.busy.into(),
            _ => 0,
        };
        let workers = self.workers.iter_mut().filter(|worker| match ahead {
            Some(ahead) => worker.open(now, ahead),
            None => worker.free(),
        });
        let worker = workers.min_by_key(|worker| (Some(worker.id) == avoid, rank(worker)))?;
        worker.busy += 1;
        Some(worker.id)
    }

    /// Takes a slot of an idle worker for suspects, of `avoid` only if there is no other. It gets nothing else
    /// until they are over.
    pub(crate) fn take_whole(&mut self, avoid: WorkerId) -> Option<WorkerId> {
        let idle = self.workers.iter_mut().filter(|worker| worker.idle());
        let worker = idle.min_by_key(|worker| worker.id == avoid)?;
        (worker.open_to, worker.busy) = (OpenTo::Suspects, 1);
        Some(worker.id)
    }

    /// Takes another slot of a worker that runs suspects, if it has one.
    pub(crate) fn take_more(&mut self, id: WorkerId) -> bool {
        let worker = self.find(id).ok().map(|at| &mut self.workers[at]);
        worker.filter(|it| it.busy < it.slots).map(|it| it.busy += 1).is_some()
    }

    /// Suspects wait for an idle worker, or none do any more. While others of them run, they wait for these; else the
    /// worker that has least to do gets nothing new.
    pub(crate) fn keep_for_suspects(&mut self, wait: bool) {
        self.keeps = wait;
        let mut run = false;
        for worker in &mut self.workers {
            match worker.open_to {
                OpenTo::Suspects => run = true,
                OpenTo::Everybody | OpenTo::Nobody => worker.open_to = OpenTo::Everybody,
            }
        }
        let staying = self.workers.iter_mut().filter(|it| !it.retiring && it.slots > 0);
        if let Some(worker) = staying.min_by_key(|it| it.busy).filter(|_| wait && !run) {
            worker.open_to = OpenTo::Nobody;
        }
    }

    /// Notes when the batch that was just handed to a worker will be over. Returns whether the
    /// worker was idle before, and that time where it prepares batches.
    pub(crate) fn expect(
        &mut self,
        id: WorkerId,
        now: Nanos,
        expected: ExpectedTimes,
        requests: u32,
    ) -> (bool, Nanos) {
        let Ok(at) = self.find(id) else { return (true, 0) };
        let worker = &mut self.workers[at];
        let ExpectedTimes { takes, prepare } = expected;
        let alone = worker.busy == 1;
        let start = if alone { now } else { worker.finish.max(now) };
        (worker.takes, worker.requests) = (takes, requests);
        worker.held += requests;
        if prepare == 0 {
            worker.finish = start.saturating_add(takes);
            return (alone, 0);
        }
        let from = if alone { now } else { worker.preparing.1.max(now) };
        worker.preparing = (from, from.saturating_add(prepare));
        worker.finish = start.max(worker.preparing.1).saturating_add(takes);
        (alone, worker.finish)
    }

    /// Forecasts when the workers are free; one may be handed a batch `ahead` of that.
    pub(crate) fn survey(&self, now: Nanos, ahead: Ahead, forecast: &mut WorkerForecast) {
        let staying = || self.workers.iter().filter(|it| !it.retiring && it.slots > 0);
        forecast.clear(now, staying().filter(|worker| worker.busy == 0).count() as u32);
        for worker in staying().filter(|worker| worker.busy > 0) {
            worker.survey_busy(now, ahead, forecast);
        }
    }

    /// Whether there is a slot for a batch that is pinned to this worker, or to none. Where workers
    /// prepare batches while they run others, a busy one takes only full ones.
    pub(crate) fn free_for(&self, pinned: Option<WorkerId>, full: bool) -> bool {
        match pinned {
            None => self.workers.iter().any(|it| self.takes(it, full)),
            Some(id) => self.find(id).is_ok_and(|at| self.takes(&self.workers[at], full)),
        }
    }

    fn takes(&self, worker: &TrackedWorker, full: bool) -> bool {
        worker.free() && (full || worker.busy == 0 || !self.staged)
    }

    /// They have told how long they prepare batches.
    pub(crate) fn prepare(&mut self) {
        self.staged = true;
    }

    /// Requests on all workers.
    pub(crate) fn held(&self) -> u32 {
        self.workers.iter().map(|it| it.held).sum()
    }

    /// How many workers there are, the most slots of any, and how many of them are filled.
    pub(crate) fn slots(&self) -> (u32, u8, u8) {
        let staying = || self.workers.iter().filter(|it| !it.retiring);
        let most = |of: fn(&TrackedWorker) -> u8| staying().map(of).max().unwrap_or(0);
        (staying().count() as u32, most(|it| it.slots), most(|it| it.used))
    }

    /// Whether a batch that is not full waits until a worker is idle.
    pub(crate) fn full_only(&self) -> bool {
        self.slot_use == Some(SlotUse::Full)
    }

    /// Whether the worker exists and is not about to retire.
    pub(crate) fn stays(&self, id: WorkerId) -> bool {
        self.find(id).is_ok_and(|at| !self.workers[at].retiring)
    }

    /// Takes a slot of this worker.
    pub(crate) fn take_of(&mut self, id: WorkerId) -> Option<WorkerId> {
        let at = self.find(id).ok().filter(|&at| self.workers[at].free())?;
        self.workers[at].busy += 1;
        Some(id)
    }

    /// Frees the slot of a batch with so many requests that was to end then, or 0; a batch that waited
    /// behind it begins. Returns how long before its planned end this one was over, where there was a
    /// plan.
    pub(crate) fn release(
        &mut self,
        id: WorkerId,
        now: Nanos,
        (requests, ends): (u32, Nanos),
    ) -> Option<Nanos> {
        let at = self.find(id).ok()?;
        let worker = &mut self.workers[at];
        worker.busy -= 1;
        worker.held -= requests;
        if worker.busy == 0 && worker.open_to == OpenTo::Suspects {
            worker.open_to = OpenTo::Everybody;
        }
        if ends > 0 {
            let begins = worker.preparing.1.max(now);
            worker.finish = match worker.busy {
                0 => now,
                1 => begins.saturating_add(worker.takes),
                _ => (worker.finish + now).saturating_sub(ends).max(begins + worker.takes),
            };
            self.forget_retired(at);
            return Some(ends.saturating_sub(now));
        }
        let next = if worker.busy == 1 { worker.takes } else { 0 };
        let planned = worker.finish.saturating_sub(next);
        let early = (worker.takes > 0).then(|| planned.saturating_sub(now));
        if worker.busy == 1 {
            worker.finish = now.saturating_add(worker.takes);
        }
        self.forget_retired(at);
        early
    }

    /// How long the stages of a batch took that was dispatched then and has just been released. Its
    /// worker was handed it then and had prepared it after `prepare`; that includes what it waited
    /// for the one before it.
    pub(crate) fn stages(
        &mut self,
        id: WorkerId,
        now: Nanos,
        dispatched: Nanos,
        (prepare, exec): (Nanos, Nanos),
    ) -> StageTimes {
        let alone = StageTimes { prepare, ..StageTimes::default() };
        let Ok(at) = self.find(id) else { return alone };
        let worker = &mut self.workers[at];
        let prepared = dispatched.saturating_add(prepare).min(now);
        let preparing = (dispatched.max(worker.prepared).min(prepared), prepared);
        let ran = (now.saturating_sub(exec), now);
        let part = |it: Nanos, of: Nanos| it as f64 / of.max(1) as f64;
        let took = preparing.1 - preparing.0;
        let next = if worker.busy > 0 { worker.preparing } else { (0, 0) };
        let times = StageTimes {
            prepare: took,
            prepare_shared: part(shared(preparing, worker.ran), took),
            exec_shared: part(shared(ran, next), exec),
        };
        (worker.prepared, worker.ran) = (prepared, ran);
        times
    }

    /// Batches that can run at a time.
    pub(crate) fn capacity(&self) -> u64 {
        let at_a_time = |worker: &TrackedWorker| match self.staged {
            true => worker.slots.min(1).into(),
            false => u64::from(worker.slots),
        };
        self.workers.iter().filter(|w| !w.retiring).map(at_a_time).sum()
    }

    fn forget_retired(&mut self, at: usize) {
        if self.workers[at].retiring && self.workers[at].busy == 0 {
            self.workers.remove(at);
        }
    }

    fn find(&self, id: WorkerId) -> Result<usize, usize> {
        self.workers.binary_search_by_key(&id, |worker| worker.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Workers {
        let mut workers = Workers::default();
        for id in [5, 1, 3] {
            workers.up(WorkerId(id), 1);
        }
        workers
    }

    #[test]
    fn the_lowest_numbered_free_worker_is_taken() {
        let mut workers = three();
        let taken: Vec<_> =
            std::iter::from_fn(|| workers.take(None, 0, None)).map(|w| w.0).collect();
        assert_eq!(taken, [1, 3, 5]);
        workers.release(WorkerId(3), 0, (0, 0));
        assert_eq!(workers.take(None, 0, None), Some(WorkerId(3)));
        assert!(!workers.free_for(None, true));
    }

    #[test]
    fn an_avoided_worker_is_taken_only_if_no_other_is_free() {
        let mut workers = three();
        let avoid = Some(WorkerId(1));
        assert_eq!(workers.take(avoid, 0, None), Some(WorkerId(3)));
        assert_eq!(workers.take(avoid, 0, None), Some(WorkerId(5)));
        assert_eq!(workers.take(avoid, 0, None), Some(WorkerId(1)));
        assert_eq!(workers.take(avoid, 0, None), None);
    }

    #[test]
    fn a_retiring_worker_takes_nothing_and_is_forgotten_when_idle() {
        let mut workers = three();
        workers.take(None, 0, None);
        workers.retire(WorkerId(1));
        workers.retire(WorkerId(3));
        assert_eq!(workers.capacity(), 1);
        assert_eq!(workers.take(None, 0, None), Some(WorkerId(5)));
        workers.release(WorkerId(1), 0, (0, 0));
        assert_eq!(workers.workers.len(), 1);
    }

    #[test]
    fn a_known_worker_that_comes_up_again_has_its_new_slots() {
        let mut workers = Workers::default();
        workers.up(WorkerId(0), 2);
        workers.take(None, 0, None);
        workers.take(None, 0, None);
        workers.up(WorkerId(0), 1);
        workers.release(WorkerId(0), 0, (0, 0));
        assert!(!workers.free_for(None, true));
        workers.release(WorkerId(0), 0, (0, 0));
        assert!(workers.free_for(None, true));
    }

    #[test]
    fn an_overdue_worker_is_expected_soon_and_a_suspect_one_is_not_planned_with() {
        let (mut workers, mut forecast) = (three(), WorkerForecast::default());
        for takes in [100, 200] {
            let worker = workers.take(None, 0, None).expect("free");
            workers.expect(worker, 1000, ExpectedTimes { takes, prepare: 0 }, 1);
        }
        let mut left = |now| {
            workers.survey(now, Ahead::default(), &mut forecast);
            (forecast.open, forecast.busy.clone())
        };
        assert_eq!(left(1040), (1, vec![60, 160]));
        assert_eq!(left(1100), (1, vec![5, 100]), "the first is due");
        assert_eq!(left(1300), (1, vec![5, 10]), "both are overdue");
        assert_eq!(left(1301), (1, vec![10]), "the first has taken three times as long");
        assert_eq!(left(9000), (1, vec![]));
    }
}
