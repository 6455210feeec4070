//! Clipper as its paper has it: additive increase, multiplicative decrease of the batch size.
//!
//! Eager: an idle container takes what is there, up to its cap. The cap grows by one when a full
//! batch kept the objective (smaller ones say nothing about it; growing on those too serves fewer in
//! time) and shrinks by a tenth when one did not. Expired requests are removed
//! when polled, not before. The objective is on the batch alone, not on the wait before it.

use jitney_batcher::Nanos;

use super::pool::{Pool, PoolPolicy};
use jitney_sim::job::Job;
use jitney_sim::scheduler::Orders;

/// The objective and the largest batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipperSettings {
    /// How long a batch may take.
    pub objective: Nanos,
    /// Most requests in a batch.
    pub max_batch_size: usize,
}

/// One queue, one cap per container.
#[derive(Debug)]
pub struct Clipper {
    settings: ClipperSettings,
    pool: Pool,
    caps: Vec<f64>,
    /// Size of the batch on each container.
    sizes: Vec<usize>,
}

impl Clipper {
    /// One container per worker.
    #[must_use]
    pub fn new(settings: ClipperSettings, workers: usize) -> Self {
        let (caps, sizes) = (vec![1.0; workers], vec![0; workers]);
        Self { settings, pool: Pool::new(workers), caps, sizes }
    }
}

impl PoolPolicy for Clipper {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn enqueue(&mut self, _: Nanos, id: u32, job: &Job, _: &mut Orders) {
        self.pool.queue.push_back((id, job.deadline));
    }

    fn decide(&mut self, now: Nanos, out: &mut Orders) {
        while !self.pool.idle.is_empty() {
            self.pool.expire(out, |deadline| deadline <= now);
            if self.pool.queue.is_empty() {
                return;
            }
            let Some(worker) = self.pool.idle.pop_front() else { return };
            let size = (self.caps[worker] as usize).min(self.pool.queue.len());
            self.sizes[worker] = size;
            out.dispatch(worker, self.pool.take(size));
        }
    }

    fn learn(&mut self, worker: usize, exec: Nanos) {
        let cap = &mut self.caps[worker];
        if exec > self.settings.objective {
            *cap *= 0.9;
        } else if self.sizes[worker] >= *cap as usize {
            *cap += 1.0;
        }
        *cap = cap.clamp(1.0, self.settings.max_batch_size as f64);
    }
}
