//! Which workers there are and which of them can take a batch.
//!
//! Apart from `running`, which knows the batches: here a worker is a name and two counts. It
//! never decides what a worker gets. Workers are few, so they are simply scanned.

use crate::request::WorkerId;

#[derive(Debug)]
struct Worker {
    id: WorkerId,
    slots: u8,
    busy: u8,
    retiring: bool,
}

impl Worker {
    fn free(&self) -> bool {
        !self.retiring && self.busy < self.slots
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
            Err(at) => self.workers.insert(at, Worker { id, slots, busy: 0, retiring: false }),
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
        let mut free = self.workers.iter().enumerate().filter(|(_, worker)| worker.free());
        let first = free.next()?;
        let (at, _) = match avoid {
            Some(id) if first.1.id == id => free.next().unwrap_or(first),
            _ => first,
        };
        self.workers[at].busy += 1;
        Some(self.workers[at].id)
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

    /// Gives a slot back.
    pub(crate) fn release(&mut self, id: WorkerId) {
        if let Ok(at) = self.find(id) {
            self.workers[at].busy -= 1;
            self.forget_retired(at);
        }
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
        slots.release(WorkerId(3));
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
        slots.release(WorkerId(1));
        assert_eq!(slots.workers.len(), 1);
    }

    #[test]
    fn a_known_worker_that_comes_up_again_has_its_new_slots() {
        let mut slots = Slots::default();
        slots.up(WorkerId(0), 2);
        slots.take(None);
        slots.take(None);
        slots.up(WorkerId(0), 1);
        slots.release(WorkerId(0));
        assert!(!slots.any_free());
        slots.release(WorkerId(0));
        assert!(slots.any_free());
    }
}
