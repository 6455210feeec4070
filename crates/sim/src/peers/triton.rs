//! Triton's dynamic batcher: preferred sizes, a queue delay, a queue timeout.
//!
//! One queue, late binding. With an idle instance: the largest preferred size reached is shipped
//! while the oldest is younger than the delay; all pending are shipped when the largest preferred
//! size is reached, the delay is over or there is none; else it sleeps. Without a delay this is the
//! eager policy. A timeout is on the time in the queue, applied when the queue is looked at.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

use super::idle::IdleWorkers;
use crate::job::Job;
use crate::scheduler::{Orders, Scheduler};

/// `dynamic_batching { … }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TritonSettings {
    /// Most requests in a batch.
    pub max_batch_size: usize,
    /// Sizes worth shipping at once, ascending; none means the largest batch only.
    pub preferred: Vec<usize>,
    /// Age of the oldest request at which a batch of any size is shipped.
    pub delay: Nanos,
    /// Time in the queue after which a request is rejected; `u64::MAX` is never.
    pub timeout: Nanos,
}

impl TritonSettings {
    /// `dynamic_batching {}`: an idle instance takes what is there.
    #[must_use]
    pub fn eager(max_batch_size: usize) -> Self {
        Self { max_batch_size, preferred: Vec::new(), delay: 0, timeout: Nanos::MAX }
    }
}

/// Triton's scheduler for one model.
#[derive(Debug)]
pub struct Triton {
    settings: TritonSettings,
    queue: VecDeque<(u32, Nanos)>,
    pool: IdleWorkers,
}

impl Triton {
    /// One instance per worker.
    #[must_use]
    pub fn new(settings: TritonSettings, workers: usize) -> Self {
        Self { settings, queue: VecDeque::new(), pool: IdleWorkers::new(workers) }
    }

    fn decide(&mut self, now: Nanos, out: &mut Orders) {
        out.wake(None);
        while self.pool.any() {
            self.expire(now, out);
            let Some(&(_, oldest)) = self.queue.front() else { return };
            let Some(size) = self.size(now - oldest) else {
                let rejected = oldest.saturating_add(self.settings.timeout);
                return out.wake(Some(rejected.min(oldest + self.settings.delay)));
            };
            if let Some(worker) = self.pool.take() {
                out.dispatch(worker, self.queue.drain(..size).map(|(id, _)| id));
            }
        }
    }

    fn expire(&mut self, now: Nanos, out: &mut Orders) {
        while let Some(&(id, at)) = self.queue.front()
            && now - at >= self.settings.timeout
        {
            self.queue.pop_front();
            out.reject(id);
        }
    }

    /// How many to ship now, if any.
    fn size(&self, age: Nanos) -> Option<usize> {
        let TritonSettings { max_batch_size, preferred, delay, .. } = &self.settings;
        let pending = self.queue.len().min(*max_batch_size);
        let largest = preferred.last().unwrap_or(max_batch_size);
        let mark = preferred.iter().rev().find(|&&size| size <= pending);
        match mark {
            Some(&mark) if age < *delay => Some(mark),
            _ if pending >= *largest || age >= *delay => Some(pending),
            _ => None,
        }
    }
}

impl Scheduler for Triton {
    fn arrive(&mut self, now: Nanos, id: u32, _: &Job, out: &mut Orders) {
        self.queue.push_back((id, now));
        self.decide(now, out);
    }

    fn done(&mut self, now: Nanos, worker: usize, _: Nanos, out: &mut Orders) {
        self.pool.give(worker);
        self.decide(now, out);
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        self.decide(now, out);
    }

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
