//! Triton's dynamic batcher: preferred sizes, a queue delay, a queue timeout.
//!
//! One queue, late binding. With an idle instance: the largest preferred size reached is shipped
//! while the oldest is younger than the delay; all pending are shipped when the largest preferred
//! size is reached, the delay is over or there is none; else it sleeps. Without a delay this is the
//! eager policy. A timeout is on the time in the queue, applied when the queue is looked at.

use jitney_batcher::Nanos;

use super::pool::{Pool, PoolPolicy};
use jitney_sim::job::Job;
use jitney_sim::scheduler::Orders;

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
    pool: Pool,
}

impl Triton {
    /// One instance per worker.
    #[must_use]
    pub fn new(settings: TritonSettings, workers: usize) -> Self {
        Self { settings, pool: Pool::new(workers) }
    }

    /// How many to ship now, if any.
    fn size(&self, age: Nanos) -> Option<usize> {
        let TritonSettings { max_batch_size, preferred, delay, .. } = &self.settings;
        let pending = self.pool.queue.len().min(*max_batch_size);
        let largest = preferred.last().unwrap_or(max_batch_size);
        let mark = preferred.iter().rev().find(|&&size| size <= pending);
        match mark {
            Some(&mark) if age < *delay => Some(mark),
            _ if pending >= *largest || age >= *delay => Some(pending),
            _ => None,
        }
    }
}

impl PoolPolicy for Triton {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn enqueue(&mut self, now: Nanos, id: u32, _: &Job, _: &mut Orders) {
        self.pool.queue.push_back((id, now));
    }

    fn decide(&mut self, now: Nanos, out: &mut Orders) {
        let TritonSettings { timeout, delay, .. } = self.settings;
        out.wake(None);
        while !self.pool.idle.is_empty() {
            self.pool.expire(out, |at| now - at >= timeout);
            let Some(&(_, oldest)) = self.pool.queue.front() else { return };
            let Some(size) = self.size(now - oldest) else {
                return out.wake(Some(oldest.saturating_add(timeout).min(oldest + delay)));
            };
            if let Some(worker) = self.pool.idle.pop_front() {
                out.dispatch(worker, self.pool.take(size));
            }
        }
    }
}
