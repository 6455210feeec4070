//! How many batches a worker may hold now, and under which names the batcher knows it.
//!
//! A worker that overlaps the stages of its batches runs them side by side, so each of its slots is a
//! worker of its own to the batcher; as slots of one they would be filled only as the last batch ends.
//! That is what a worker wants that runs one batch after another in a process of its own: under the
//! adaptive policy it has a second slot, and its next batch is there as the last one ends.

use jitney_batcher::{DownReason, Event, WorkerId};

use crate::pool::WorkerCapacity;

/// Slots of a worker that the batcher can tell apart; a power of two.
const SLOTS: u32 = 256;

/// The batcher's name for a worker's slot; those of one worker follow each other.
pub(super) fn slot(worker: u32, slot: u8) -> WorkerId {
    WorkerId(worker.wrapping_mul(SLOTS).wrapping_add(slot.into()))
}

/// The worker to which a slot belongs.
pub(super) fn worker_of(slot: WorkerId) -> u32 {
    slot.0 / SLOTS
}

/// What happened to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotChange {
    /// It may have batches, or another number of them.
    Up,
    /// It gets nothing more.
    Retired,
    /// It is gone.
    Down(DownReason),
}

/// The rules by which the workers of one model version get slots.
#[derive(Debug)]
pub(super) struct WorkerSlots {
    /// The slots that every worker has.
    usual: u8,
    /// Whether each worker gets one batch at a time for now: after the exit of a worker with several
    /// batches nothing tells which of them ended it, until the second tries are over.
    pub(super) single: bool,
}

impl WorkerSlots {
    pub(super) fn new(usual: u8) -> Self {
        Self { usual, single: false }
    }

    /// Changes whether each worker gets one batch at a time; true if that is a change.
    pub(super) fn set_single(&mut self, single: bool) -> bool {
        std::mem::replace(&mut self.single, single) != single
    }

    /// What the batcher is told of a change of a worker; `early` if a worker that runs one batch after
    /// another may be given its next one just before the last one ends.
    pub(super) fn events(
        &self,
        worker: u32,
        capacity: WorkerCapacity,
        early: bool,
        change: SlotChange,
    ) -> impl Iterator<Item = Event> + use<> {
        let extra = u8::from(early && capacity.ahead);
        let slots = if self.single { 1 } else { capacity.slots + extra };
        let names = self.names(capacity);
        (0..names).map(move |at| {
            let worker = slot(worker, at);
            match change {
                SlotChange::Up if names == 1 => Event::WorkerUp { worker, slots },
                SlotChange::Up => Event::WorkerUp { worker, slots: u8::from(at < slots) },
                SlotChange::Retired => Event::WorkerRetire { worker },
                SlotChange::Down(why) => Event::WorkerDown { worker, why },
            }
        })
    }

    /// A worker that says itself how many batches it holds overlaps them.
    fn names(&self, capacity: WorkerCapacity) -> u8 {
        if capacity.slots > self.usual { capacity.slots } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(slots: &WorkerSlots, capacity: WorkerCapacity, early: bool) -> Vec<(u32, u8)> {
        let of = |event| {
            let Event::WorkerUp { worker, slots } = event else { return None };
            Some((worker.0, slots))
        };
        slots.events(2, capacity, early, SlotChange::Up).filter_map(of).collect()
    }

    #[test]
    fn a_worker_that_runs_one_batch_after_another_may_have_a_second_slot() {
        let (slots, capacity) = (WorkerSlots::new(1), WorkerCapacity { slots: 1, ahead: true });
        assert_eq!(told(&slots, capacity, true), [(512, 2)]);
        assert_eq!(told(&slots, capacity, false), [(512, 1)]);
        assert_eq!(told(&slots, WorkerCapacity { ahead: false, ..capacity }, true), [(512, 1)]);
    }

    #[test]
    fn a_worker_that_overlaps_its_batches_is_several_to_the_batcher() {
        let (mut slots, capacity) =
            (WorkerSlots::new(1), WorkerCapacity { slots: 2, ahead: false });
        assert_eq!(told(&slots, capacity, true), [(512, 1), (513, 1)]);
        assert_eq!(slots.events(2, capacity, true, SlotChange::Retired).count(), 2);
        assert!(slots.set_single(true) && !slots.set_single(true));
        assert_eq!(told(&slots, capacity, true), [(512, 1), (513, 0)]);
    }

    #[test]
    fn a_slot_leads_back_to_its_worker() {
        for worker in [0, 1, 9000] {
            assert!([0, 1, 255].into_iter().all(|at| worker_of(slot(worker, at)) == worker));
        }
    }
}
