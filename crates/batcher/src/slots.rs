//! Which workers there are and which of them can take a batch.
//!
//! Apart from `running`, which knows the batches: here a worker is a name and two counts. It
//! never decides what a worker gets. Workers are few, so they are simply scanned.

use crate::adaptive::Fleet;
use crate::request::{Nanos, WorkerId};

/// A worker that takes more than this many times as long as expected is not planned with.
const SUSPECT: u64 = 3;
/// A worker that is overdue is expected after this part of what it was to take.
const OVERDUE: u64 = 20;

#[derive(Debug)]
struct Worker {
    id: WorkerId,
    slots: u8,
    busy: u8,
    retiring: bool,
    /// When its last batch is expected to be over, and how long that one was to take.
    finish: Nanos,
    takes: Nanos,
    /// Requests in its last batch.
    riders: u32,
}

impl Worker {
    fn free(&self) -> bool {
        !self.retiring && self.busy < self.slots
    }

    /// Whether it takes a batch now: it has none, or its last one is about to end, so that it may be
    /// handed the next one `ahead` of that. Not when it is overdue: nobody knows for how long.
    fn open(&self, now: Nanos, ahead: Nanos) -> bool {
        let ending = self.takes > 0
            && self.finish.saturating_sub(self.early(ahead)) <= now
            && now <= self.finish.saturating_add(self.takes / OVERDUE);
        self.free() && (self.busy == 0 || ending)
    }

    /// How long before its end it may be handed the next batch.
    fn early(&self, ahead: Nanos) -> Nanos {
        ahead.min(self.takes / 2)
    }

    /// How long until it is free; none if nobody knows.
    fn left(&self, now: Nanos) -> Option<Nanos> {
        if self.finish > now {
            return Some(self.finish - now);
        }
        let suspect = now - self.finish > (SUSPECT - 1) * self.takes;
        (!suspect).then_some(self.takes / OVERDUE)
    }

    /// Sketches one that is busy; another slot is filled `ahead` of its being free.
    fn survey_busy(&self, now: Nanos, ahead: Nanos, fleet: &mut Fleet) {
        // Nobody is given a batch ahead of time while another could run it now.
        if !fleet.idles() && self.open(now, ahead) {
            return fleet.open_soon(self.finish.saturating_sub(now), self.riders);
        }
        let Some(left) = self.left(now) else { return };
        fleet.busy(left);
        let at = self.finish.saturating_sub(self.early(ahead));
        if self.free() && self.takes > 0 && at > now {
            fleet.ahead = Some(fleet.ahead.map_or(at, |other| other.min(at)));
        }
    }
}

/// All workers, lowest number first.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    workers: Vec<Worker>,
}

impl Slots {
    /// A worker is ready, or has another number of slots than before.
    pub(crate) fn up(&mut self, id: WorkerId, slots: u8) {
        match self.find(id) {
            Ok(at) => {
                self.workers[at].slots = slots;
                self.workers[at].retiring = false;
            }
            Err(at) => {
                let (busy, retiring, finish, takes, riders) = (0, false, 0, 0, 0);
                let worker = Worker { id, slots, busy, retiring, finish, takes, riders };
                self.workers.insert(at, worker);
            }
        }
    }

    /// The worker gets nothing more and is forgotten once it is idle.
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

    /// Whether any batch could leave.
    pub(crate) fn any_free(&self) -> bool {
        self.workers.iter().any(Worker::free)
    }

    /// Takes a slot of the lowest-numbered worker that has one, of `avoid` only if no other has.
    pub(crate) fn take(&mut self, avoid: Option<WorkerId>) -> Option<WorkerId> {
        self.take_by(avoid, Worker::free, |_| 0)
    }

    /// The same where a worker takes another batch only as its last one ends; idle ones go before
    /// those.
    pub(crate) fn take_due(
        &mut self,
        avoid: Option<WorkerId>,
        now: Nanos,
        ahead: Nanos,
    ) -> Option<WorkerId> {
        let rank = |worker: &Worker| u64::from(worker.busy > 0) * worker.finish.max(1);
        self.take_by(avoid, |worker| worker.open(now, ahead), rank)
    }

    fn take_by(
        &mut self,
        avoid: Option<WorkerId>,
        open: impl Fn(&Worker) -> bool,
        rank: impl Fn(&Worker) -> u64,
    ) -> Option<WorkerId> {
        let open = self.workers.iter_mut().filter(|worker| open(worker));
        let worker = open.min_by_key(|worker| (Some(worker.id) == avoid, rank(worker)))?;
        worker.busy += 1;
        Some(worker.id)
    }

    /// Notes what is expected of the worker that was just taken: when a batch handed to it now
    /// starts, and when it is over. Says when that is, and whether it had nothing else to do.
    pub(crate) fn expect(
        &mut self,
        id: WorkerId,
        now: Nanos,
        takes: Nanos,
        riders: u32,
    ) -> (Nanos, bool) {
        let Ok(at) = self.find(id) else { return (now, true) };
        let worker = &mut self.workers[at];
        let alone = worker.busy == 1;
        let start = if alone { now } else { worker.finish.max(now) };
        (worker.finish, worker.takes) = (start.saturating_add(takes), takes);
        worker.riders = riders;
        (worker.finish, alone)
    }

    /// Sketches when the workers come free; one may be handed a batch `ahead` of that.
    pub(crate) fn survey(&self, now: Nanos, ahead: Nanos, fleet: &mut Fleet) {
        fleet.clear(now);
        let staying = || self.workers.iter().filter(|it| !it.retiring && it.slots > 0);
        let idle = staying().filter(|worker| worker.busy == 0).count() as u32;
        fleet.open_now(idle);
        for worker in staying().filter(|worker| worker.busy > 0) {
            worker.survey_busy(now, ahead, fleet);
        }
    }

    /// Whether a batch that is pinned to this worker, or to none, could leave.
    pub(crate) fn free_for(&self, pinned: Option<WorkerId>) -> bool {
        match pinned {
            None => self.any_free(),
            Some(id) => self.find(id).is_ok_and(|at| self.workers[at].free()),
        }
    }

    /// Whether the worker is there and not about to leave.
    pub(crate) fn stays(&self, id: WorkerId) -> bool {
        self.find(id).is_ok_and(|at| !self.workers[at].retiring)
    }

    /// Takes a slot of this very worker.
    pub(crate) fn take_of(&mut self, id: WorkerId) -> Option<WorkerId> {
        let at = self.find(id).ok().filter(|&at| self.workers[at].free())?;
        self.workers[at].busy += 1;
        Some(id)
    }

    /// Gives a slot back; a batch that waited behind this one begins. Says how long before its
    /// planned end this one was over, where there was a plan.
    pub(crate) fn release(&mut self, id: WorkerId, now: Nanos) -> Option<Nanos> {
        let at = self.find(id).ok()?;
        let worker = &mut self.workers[at];
        worker.busy -= 1;
        let next = if worker.busy == 1 { worker.takes } else { 0 };
        let planned = worker.finish.saturating_sub(next);
        let early = (worker.takes > 0).then(|| planned.saturating_sub(now));
        if worker.busy == 1 {
            worker.finish = now.saturating_add(worker.takes);
        }
        self.forget_retired(at);
        early
    }

    /// Batches that can run at a time.
    pub(crate) fn capacity(&self) -> u64 {
        self.workers.iter().filter(|w| !w.retiring).map(|w| u64::from(w.slots)).sum()
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

    fn three() -> Slots {
        let mut slots = Slots::default();
        for id in [5, 1, 3] {
            slots.up(WorkerId(id), 1);
        }
        slots
    }

    #[test]
    fn the_lowest_numbered_free_worker_is_taken() {
        let mut slots = three();
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(None)).map(|w| w.0).collect();
        assert_eq!(taken, [1, 3, 5]);
        slots.release(WorkerId(3), 0);
        assert_eq!(slots.take(None), Some(WorkerId(3)));
        assert!(!slots.any_free());
    }

    #[test]
    fn an_avoided_worker_is_taken_only_if_no_other_is_free() {
        let mut slots = three();
        let avoid = Some(WorkerId(1));
        assert_eq!(slots.take(avoid), Some(WorkerId(3)));
        assert_eq!(slots.take(avoid), Some(WorkerId(5)));
        assert_eq!(slots.take(avoid), Some(WorkerId(1)));
        assert_eq!(slots.take(avoid), None);
    }

    #[test]
    fn a_retiring_worker_takes_nothing_and_leaves_when_idle() {
        let mut slots = three();
        slots.take(None);
        slots.retire(WorkerId(1));
        slots.retire(WorkerId(3));
        assert_eq!(slots.capacity(), 1);
        assert_eq!(slots.take(None), Some(WorkerId(5)));
        slots.release(WorkerId(1), 0);
        assert_eq!(slots.workers.len(), 1);
    }

    #[test]
    fn a_known_worker_that_comes_up_again_has_its_new_slots() {
        let mut slots = Slots::default();
        slots.up(WorkerId(0), 2);
        slots.take(None);
        slots.take(None);
        slots.up(WorkerId(0), 1);
        slots.release(WorkerId(0), 0);
        assert!(!slots.any_free());
        slots.release(WorkerId(0), 0);
        assert!(slots.any_free());
    }

    #[test]
    fn an_overdue_worker_is_expected_soon_and_a_suspect_one_is_not_planned_with() {
        let (mut slots, mut fleet) = (three(), Fleet::default());
        for takes in [100, 200] {
            let worker = slots.take(None).expect("free");
            slots.expect(worker, 1000, takes, 1);
        }
        let mut left = |now| {
            slots.survey(now, 0, &mut fleet);
            (fleet.open, fleet.busy.clone())
        };
        assert_eq!(left(1040), (1, vec![60, 160]));
        assert_eq!(left(1100), (1, vec![5, 100]), "the first is due");
        assert_eq!(left(1300), (1, vec![5, 10]), "both are overdue");
        assert_eq!(left(1301), (1, vec![10]), "the first has taken three times as long");
        assert_eq!(left(9000), (1, vec![]));
    }
}
