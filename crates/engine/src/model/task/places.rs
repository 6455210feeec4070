//! How a worker is told to the batcher: as one with slots, or as several with one slot each.
//!
//! A worker that overlaps the stages of its batches runs them side by side, so each of its places
//! counts as a worker of its own; as slots of one they would be filled only as the last batch ends.

use jitney_batcher::{Down, Event, WorkerId};

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
    pub(super) fn tell_down(&mut self, worker: u32, why: Down) {
        for at in 0..self.places(worker) {
            self.step(Event::WorkerDown { worker: place(worker, at), why });
        }
    }

    /// A worker that says itself how many batches it holds overlaps them.
    fn places(&self, worker: u32) -> u8 {
        let slots = self.state.pool.slots(worker);
        if slots > self.state.pool.plan.slots { slots } else { 1 }
    }
}
