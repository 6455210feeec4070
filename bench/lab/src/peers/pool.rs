//! One queue in front of all workers: what the peers have in common that bind late.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

use jitney_sim::job::Job;
use jitney_sim::pipeline::Took;
use jitney_sim::scheduler::{Orders, Scheduler};

/// The queue, and the idle workers in the order in which they became so.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Requests with their arrival or their deadline, whichever the policy looks at.
    pub(super) queue: VecDeque<(u32, Nanos)>,
    pub(super) idle: VecDeque<usize>,
    dead: Vec<bool>,
}

impl Pool {
    pub(super) fn new(workers: usize) -> Self {
        let (queue, idle) = (VecDeque::new(), (0..workers).collect());
        Self { queue, idle, dead: vec![false; workers] }
    }

    /// Takes the first `size` requests, or as many as there are.
    pub(super) fn take(&mut self, size: usize) -> impl Iterator<Item = u32> {
        let size = size.min(self.queue.len());
        self.queue.drain(..size).map(|(id, _)| id)
    }

    /// Rejects the requests at the head that are over by what the policy looks at.
    pub(super) fn expire(&mut self, out: &mut Orders, over: impl Fn(Nanos) -> bool) {
        while let Some((id, _)) = self.queue.pop_front_if(|&mut (_, at)| over(at)) {
            out.reject(id);
        }
    }

    fn give(&mut self, worker: usize) {
        if !self.dead[worker] {
            self.idle.push_back(worker);
        }
    }
}

/// A policy over such a queue.
pub(crate) trait PoolPolicy {
    fn pool(&mut self) -> &mut Pool;

    /// Puts a request into the queue, or rejects it.
    fn enqueue(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders);

    /// Gives idle workers what is due; called after everything that happens.
    fn decide(&mut self, now: Nanos, out: &mut Orders);

    /// A batch took this long on its worker.
    fn learn(&mut self, _worker: usize, _exec: Nanos) {}

    /// A worker died; its batch is rejected already.
    fn lose(&mut self, _worker: usize, _out: &mut Orders) {}
}

/// Such a policy as a scheduler of the simulator.
pub(crate) struct Pooled<P>(pub(crate) P);

impl<P: PoolPolicy> Scheduler for Pooled<P> {
    fn arrive(&mut self, now: Nanos, id: u32, job: &Job, out: &mut Orders) {
        self.0.enqueue(now, id, job, out);
        self.0.decide(now, out);
    }

    fn done(&mut self, now: Nanos, worker: usize, took: Took, out: &mut Orders) {
        self.0.learn(worker, took.whole());
        self.0.pool().give(worker);
        self.0.decide(now, out);
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        self.0.decide(now, out);
    }

    fn lost(&mut self, now: Nanos, worker: usize, members: &[u32], out: &mut Orders) {
        members.iter().for_each(|&id| out.reject(id));
        self.0.pool().dead[worker] = true;
        self.0.pool().idle.retain(|&each| each != worker);
        self.0.lose(worker, out);
        self.0.decide(now, out);
    }

    fn back(&mut self, now: Nanos, worker: usize, out: &mut Orders) {
        self.0.pool().dead[worker] = false;
        self.0.pool().give(worker);
        self.0.decide(now, out);
    }
}
