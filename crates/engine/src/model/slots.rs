//! How many batches a worker may hold now, as the batcher is told.
//!
//! A worker that prepares batches while it works on another says itself how many it can hold. One that
//! runs one batch after another in a process of its own has a second slot under the adaptive policy, so
//! that its next batch is there as the last one ends. When a further slot is filled is the policy's
//! decision.

use jitney_batcher::{DownReason, Event, WorkerId};

use crate::pool::WorkerCapacity;

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
#[derive(Debug, Default)]
pub(super) struct WorkerSlots {
    /// Whether each worker gets one batch at a time for now: after the exit of a worker with several
    /// batches nothing tells which of them ended it, until the second tries are over.
    pub(super) single: bool,
}

impl WorkerSlots {
    /// Changes whether each worker gets one batch at a time; true if that is a change.
    pub(super) fn set_single(&mut self, single: bool) -> bool {
        std::mem::replace(&mut self.single, single) != single
    }

    /// What the batcher is told of a change of a worker; `early` if a worker that runs one batch after
    /// another may be given its next one just before the last one ends.
    pub(super) fn event(
        &self,
        worker: u32,
        capacity: WorkerCapacity,
        early: bool,
        change: SlotChange,
    ) -> Event {
        let worker = WorkerId(worker);
        match change {
            SlotChange::Up => {
                let more = capacity.slots.saturating_add(u8::from(early && capacity.ahead()));
                Event::WorkerUp { worker, slots: if self.single { 1 } else { more } }
            }
            SlotChange::Retired => Event::WorkerRetire { worker },
            SlotChange::Down(why) => Event::WorkerDown { worker, why },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::BatchOrder;

    fn told(slots: &WorkerSlots, capacity: WorkerCapacity, early: bool) -> u8 {
        let event = slots.event(2, capacity, early, SlotChange::Up);
        let Event::WorkerUp { worker: WorkerId(2), slots } = event else { panic!("{event:?}") };
        slots
    }

    #[test]
    fn a_worker_that_runs_one_batch_after_another_may_have_a_second_slot() {
        let slots = WorkerSlots::default();
        let capacity = WorkerCapacity { slots: 1, order: BatchOrder::Sequential };
        assert_eq!(told(&slots, capacity, true), 2);
        assert_eq!(told(&slots, capacity, false), 1);
        assert_eq!(told(&slots, WorkerCapacity::usual(1), true), 1);
    }

    #[test]
    fn a_worker_that_overlaps_its_batches_is_one_with_as_many_slots_as_it_says() {
        let mut slots = WorkerSlots::default();
        let capacity = WorkerCapacity { slots: 3, order: BatchOrder::Overlapping };
        assert_eq!([true, false].map(|early| told(&slots, capacity, early)), [3, 3]);
        assert!(slots.set_single(true) && !slots.set_single(true));
        assert_eq!(told(&slots, capacity, true), 1);
    }
}
