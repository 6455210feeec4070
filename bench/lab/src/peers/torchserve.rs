//! TorchServe: `batch_size` and `max_batch_delay`.
//!
//! One bounded queue per model. The worker that holds the queue's lock blocks for its first job,
//! then collects until the batch is full or the delay is over, counted from that first take and not
//! from the job's arrival. While it collects, the other idle workers wait for the lock. There is no
//! deadline and no model of the service time.

use jitney_batcher::Nanos;

use super::pool::{Pool, PoolPolicy};
use jitney_sim::job::Job;
use jitney_sim::scheduler::Orders;

/// The two knobs, and the length of the job queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorchServeSettings {
    /// Most requests in a batch.
    pub batch_size: usize,
    /// How long a worker collects after it took its first job.
    pub max_batch_delay: Nanos,
    /// Jobs that may wait; one more is rejected.
    pub job_queue_size: usize,
}

impl TorchServeSettings {
    /// With TorchServe's default queue of 100 jobs.
    #[must_use]
    pub fn new(batch_size: usize, max_batch_delay: Nanos) -> Self {
        Self { batch_size, max_batch_delay, job_queue_size: 100 }
    }
}

/// The worker that holds the lock.
#[derive(Debug)]
struct Collector {
    worker: usize,
    since: Nanos,
    batch: Vec<u32>,
}

/// TorchServe's job queue and the threads that poll it.
#[derive(Debug)]
pub struct TorchServe {
    settings: TorchServeSettings,
    pool: Pool,
    collector: Option<Collector>,
}

impl TorchServe {
    /// As many polling threads as workers.
    #[must_use]
    pub fn new(settings: TorchServeSettings, workers: usize) -> Self {
        Self { settings, pool: Pool::new(workers), collector: None }
    }

    /// The next thread gets the lock and its first job; without a job it would only block.
    fn lock(&mut self, now: Nanos) -> Option<Collector> {
        self.pool.queue.front()?;
        let worker = self.pool.idle.pop_front()?;
        Some(Collector { worker, since: now, batch: self.pool.take(1).collect() })
    }

    fn collect(&mut self, collector: &mut Collector, now: Nanos) {
        // Without a delay the loop still polls once before it looks at the time.
        let polls =
            if now < collector.since + self.settings.max_batch_delay { usize::MAX } else { 1 };
        let room = self.settings.batch_size - collector.batch.len();
        collector.batch.extend(self.pool.take(room.min(polls)));
    }
}

impl PoolPolicy for TorchServe {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn enqueue(&mut self, now: Nanos, id: u32, _: &Job, out: &mut Orders) {
        if self.pool.queue.len() >= self.settings.job_queue_size {
            return out.reject(id);
        }
        self.pool.queue.push_back((id, now));
    }

    fn decide(&mut self, now: Nanos, out: &mut Orders) {
        out.wake(None);
        while let Some(mut collector) = self.collector.take().or_else(|| self.lock(now)) {
            self.collect(&mut collector, now);
            let end = collector.since + self.settings.max_batch_delay;
            if collector.batch.len() < self.settings.batch_size && now < end {
                out.wake(Some(end));
                self.collector = Some(collector);
                return;
            }
            out.dispatch(collector.worker, collector.batch);
        }
    }

    fn lose(&mut self, worker: usize, out: &mut Orders) {
        if let Some(collector) = self.collector.take_if(|collector| collector.worker == worker) {
            collector.batch.into_iter().for_each(|id| out.reject(id));
        }
    }
}
