//! Clipper as its paper has it: additive increase, multiplicative decrease of the batch size.
//!
//! Eager: an idle container takes what is there, up to its cap. The cap grows by one when a full
//! batch kept the objective (smaller ones say nothing about it; growing on those too serves fewer in
//! time) and shrinks by a tenth when one did not. Expired requests are removed
//! when polled, not before. The objective is on the batch alone, not on the wait before it.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

use super::idle::IdleWorkers;
use crate::job::Job;
use crate::scheduler::{Orders, Scheduler};

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
    queue: VecDeque<(u32, Nanos)>,
    pool: IdleWorkers,
    caps: Vec<f64>,
    /// Size of the batch on each container.
    sizes: Vec<usize>,
}

impl Clipper {
    /// One container per worker.
    #[must_use]
    pub fn new(settings: ClipperSettings, workers: usize) -> Self {
        let (caps, sizes) = (vec![1.0; workers], vec![0; workers]);
        Self { settings, queue: VecDeque::new(), pool: IdleWorkers::new(workers), caps, sizes }
    }

    fn decide(&mut self, now: Nanos, out: &mut Orders) {
        while self.pool.any() {
            while let Some(&(id, deadline)) = self.queue.front()
                && deadline <= now
            {
                self.queue.pop_front();
                out.reject(id);
            }
            if self.queue.is_empty() {
                return;
            }
            let Some(worker) = self.pool.take() else { return };
            let size = (self.caps[worker] as usize).min(self.queue.len());
            self.sizes[worker] = size;
            out.dispatch(worker, self.queue.drain(..size).map(|(id, _)| id));
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

impl Scheduler for Clipper {
    fn arrive(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders) {
        self.queue.push_back((id, job.deadline));
        self.decide(now, out);
    }

    fn done(&mut self, now: Nanos, worker: usize, exec: Nanos, out: &mut Orders) {
        self.learn(worker, exec);
        self.pool.give(worker);
        self.decide(now, out);
    }

    fn timer(&mut self, _: Nanos, _: &mut Orders) {}

    fn lost(&mut self, now: Nanos, worker: usize, members: &[u32], out: &mut Orders) {
        members.iter().for_each(|&id| out.reject(id));
        self.pool.lost(worker);
        self.decide(now, out);
    }

    fn back(&mut self, now: Nanos, worker: usize, out: &mut Orders) {
        self.pool.back(worker);
        self.decide(now, out);
    }
}
