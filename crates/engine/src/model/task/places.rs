//! How a worker is told to the batcher: as one with slots, or as several with one slot each.
//!
//! A worker that overlaps the stages of its batches runs them side by side, so each of its places
//! counts as a worker of its own; as slots of one they would be filled only as the last batch ends.
//!
//! That is what a worker wants that runs one batch after another in a process of its own: under the
//! adaptive policy it has a second slot, and its next batch lies before it as the last one ends.

use std::time::Duration;

use jitney_batcher::{DownReason, Event, Policy, WorkerId};

use super::Task;

/// Places of a worker that the batcher can tell apart; a power of two.
const PLACES: u32 = 256;

/// The name of a worker's place; those of one worker follow each other.
pub(super) fn place(worker: u32, place: u8) -> WorkerId {
    WorkerId(worker.wrapping_mul(PLACES).wrapping_add(place.into()))
}

/// The worker to whom a place belongs.
pub(super) fn worker_of(place: WorkerId) -> u32 {
    place.0 / PLACES
}

impl Task {
    /// The worker is there, with the slots that it may fill now.
    pub(super) fn tell_up(&mut self, worker: u32) {
        let slots = self.slots(worker);
        let places = self.places(worker);
        if places == 1 {
            return self.step(Event::WorkerUp { worker: place(worker, 0), slots });
        }
        for at in 0..places {
            let slots = u8::from(at < slots);
            self.step(Event::WorkerUp { worker: place(worker, at), slots });
        }
    }

    /// The worker gets nothing more.
    pub(super) fn tell_retire(&mut self, worker: u32) {
        for at in 0..self.places(worker) {
            self.step(Event::WorkerRetire { worker: place(worker, at) });
        }
    }

    /// The worker is gone.
    pub(super) fn tell_down(&mut self, worker: u32, why: DownReason) {
        for at in 0..self.places(worker) {
            self.step(Event::WorkerDown { worker: place(worker, at), why });
        }
    }

    /// A worker that says itself how many batches it holds overlaps them.
    fn places(&self, worker: u32) -> u8 {
        let slots = self.state.pool.slots(worker);
        if slots > self.state.pool.plan.slots { slots } else { 1 }
    }

    /// Tells everybody's slots anew.
    pub(super) fn tell_slots(&mut self) {
        for worker in self.state.pool.ready() {
            self.tell_up(worker);
        }
    }

    /// Batches that the worker may hold now.
    fn slots(&self, worker: u32) -> u8 {
        if self.state.probation {
            return 1;
        }
        self.state.pool.slots(worker) + u8::from(self.second_slot(worker))
    }

    /// Whether the worker may be handed its next batch just before the last one ends.
    fn second_slot(&self, worker: u32) -> bool {
        self.adaptive() && self.state.sequences.is_none() && self.state.pool.ahead(worker)
    }

    pub(super) fn adaptive(&self) -> bool {
        matches!(self.state.batcher.config().policy, Policy::Adaptive(_))
    }

    /// How long it took to reach the worker tells how far ahead the next one leaves.
    pub(super) fn note_handoff(&mut self, handoff: Option<Duration>) {
        if let Some(handoff) = handoff.filter(|_| self.adaptive()) {
            self.step(Event::Handed { took: handoff.as_nanos() as u64 });
        }
    }
}
