//! What a policy looks like to the world: events come in, orders go out.
//!
//! Our batcher and the peers stand behind the same trait, so that no comparison can favour one.
//! A scheduler never learns how long a batch will take, only how long it took.

use std::ops::Range;

use jitney_batcher::Nanos;

use crate::job::Job;
use crate::pipeline::Took;

/// A policy that decides when batches leave.
pub trait Scheduler {
    /// A request arrives under this number.
    fn arrive(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders);
    /// A worker finished its oldest batch.
    fn done(&mut self, now: Nanos, worker: usize, took: Took, out: &mut Orders);
    /// The time asked for by [`Orders::wake`] has come.
    fn timer(&mut self, now: Nanos, out: &mut Orders);
    /// A worker died while it ran these requests (perhaps none), which have not ended.
    fn lost(&mut self, now: Nanos, worker: usize, members: &[u32], out: &mut Orders);
    /// A dead worker is back.
    fn back(&mut self, now: Nanos, worker: usize, out: &mut Orders);
    /// Models that share the GPU have answered so many items since the last call.
    fn neighbours_answered(&mut self, _items: u64) {}
}

/// What a scheduler wants done; reused from step to step.
#[derive(Debug, Default)]
pub struct Orders {
    pub(crate) batches: Vec<(usize, Range<usize>)>,
    pub(crate) members: Vec<u32>,
    pub(crate) rejected: Vec<u32>,
    pub(crate) timer: Option<Nanos>,
}

impl Orders {
    /// Hands these requests as one batch to a worker that is idle or has a free slot.
    pub fn dispatch(&mut self, worker: usize, members: impl IntoIterator<Item = u32>) {
        let start = self.members.len();
        self.members.extend(members);
        self.batches.push((worker, start..self.members.len()));
    }

    /// Ends a request without an answer.
    pub fn reject(&mut self, id: u32) {
        self.rejected.push(id);
    }

    /// Asks for a call of [`Scheduler::timer`], or for none; the last call counts.
    pub fn wake(&mut self, at: Option<Nanos>) {
        self.timer = at;
    }

    /// When [`Scheduler::timer`] is to be called.
    #[must_use]
    pub fn timer(&self) -> Option<Nanos> {
        self.timer
    }

    /// Passes all of it on to the orders of an outer scheduler, under other numbers of the workers.
    pub fn pass_on(&mut self, out: &mut Self, mut worker: impl FnMut(usize) -> usize) {
        for (inner, range) in self.batches.drain(..) {
            out.dispatch(worker(inner), self.members[range].iter().copied());
        }
        out.rejected.append(&mut self.rejected);
        out.timer = self.timer;
        self.members.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.members.clear();
        self.rejected.clear();
    }
}
