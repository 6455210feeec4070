//! Ray Serve's `@serve.batch` since 2.48: batches are sealed before a worker is free.
//!
//! Every replica batches alone; a router sends each request to the shorter of two replicas drawn by
//! lot. A batch collects from its first item until it is full or the timeout is over, is then frozen
//! and queues behind the running one. A handler that blocks the event loop stops the collector while
//! it runs, which by accident binds late.

use std::collections::VecDeque;

use jitney_batcher::Nanos;

use jitney_sim::dice::Dice;
use jitney_sim::job::Job;
use jitney_sim::pipeline::Took;
use jitney_sim::scheduler::{Orders, Scheduler};

/// The decorator's arguments, and what the handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaySettings {
    /// Most requests in a batch.
    pub max_batch_size: usize,
    /// How long a batch collects.
    pub batch_wait_timeout: Nanos,
    /// Whether the handler blocks the event loop.
    pub blocking: bool,
}

impl RaySettings {
    /// Ten requests, ten milliseconds.
    pub const DEFAULT: Self =
        Self { max_batch_size: 10, batch_wait_timeout: 10_000_000, blocking: false };
}

#[derive(Debug, Default)]
struct Replica {
    /// Arrived, not yet seen by the collector.
    queue: VecDeque<u32>,
    collecting: Vec<u32>,
    since: Nanos,
    sealed: VecDeque<Vec<u32>>,
    running: usize,
    dead: bool,
}

impl Replica {
    fn ongoing(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(Vec::len).sum();
        self.queue.len() + self.collecting.len() + sealed + self.running
    }

    fn collect(&mut self, settings: &RaySettings, now: Nanos) {
        while !(settings.blocking && (self.running > 0 || !self.sealed.is_empty())) {
            if self.collecting.is_empty() {
                self.since = now;
            }
            let room = settings.max_batch_size - self.collecting.len();
            let taken = room.min(self.queue.len());
            self.collecting.extend(self.queue.drain(..taken));
            let full = self.collecting.len() == settings.max_batch_size;
            let over = now >= self.since + settings.batch_wait_timeout;
            if self.collecting.is_empty() || !(full || over) {
                return;
            }
            self.sealed.push_back(std::mem::take(&mut self.collecting));
        }
    }
}

/// Replicas behind a router.
#[derive(Debug)]
pub struct Ray {
    settings: RaySettings,
    replicas: Vec<Replica>,
    dice: Dice,
}

impl Ray {
    /// One replica per worker.
    #[must_use]
    pub fn new(settings: RaySettings, workers: usize, seed: u64) -> Self {
        let replicas = (0..workers).map(|_| Replica::default()).collect();
        Self { settings, replicas, dice: Dice::new(seed ^ 0x4a7) }
    }

    fn work(&mut self, at: usize, now: Nanos, out: &mut Orders) {
        let replica = &mut self.replicas[at];
        replica.collect(&self.settings, now);
        if replica.running == 0
            && !replica.dead
            && let Some(batch) = replica.sealed.pop_front()
        {
            replica.running = batch.len();
            out.dispatch(at, batch);
        }
        self.wake(out);
    }

    fn wake(&self, out: &mut Orders) {
        let collecting = self.replicas.iter().filter(|replica| !replica.collecting.is_empty());
        out.wake(collecting.map(|each| each.since + self.settings.batch_wait_timeout).min());
    }

    /// The one with fewer requests of two drawn by lot among the living.
    fn route(&mut self) -> Option<usize> {
        let alive: Vec<usize> =
            (0..self.replicas.len()).filter(|&at| !self.replicas[at].dead).collect();
        let draw = |dice: &mut Dice| alive.get(dice.below(alive.len())).copied();
        let (one, other) = (draw(&mut self.dice)?, draw(&mut self.dice)?);
        let shorter = self.replicas[one].ongoing() <= self.replicas[other].ongoing();
        Some(if shorter { one } else { other })
    }
}

impl Scheduler for Ray {
    fn arrive(&mut self, now: Nanos, id: u32, _: &Job, out: &mut Orders) {
        let Some(at) = self.route() else { return out.reject(id) };
        self.replicas[at].queue.push_back(id);
        self.work(at, now, out);
    }

    fn done(&mut self, now: Nanos, worker: usize, _: Took, out: &mut Orders) {
        self.replicas[worker].running = 0;
        self.work(worker, now, out);
    }

    fn timer(&mut self, now: Nanos, out: &mut Orders) {
        for at in 0..self.replicas.len() {
            self.work(at, now, out);
        }
    }

    fn lost(&mut self, _: Nanos, worker: usize, members: &[u32], out: &mut Orders) {
        let dead = Replica { dead: true, ..Replica::default() };
        let gone = std::mem::replace(&mut self.replicas[worker], dead);
        let waiting = gone.queue.into_iter().chain(gone.collecting);
        let all = waiting.chain(gone.sealed.into_iter().flatten()).chain(members.iter().copied());
        all.for_each(|id| out.reject(id));
        self.wake(out);
    }

    fn back(&mut self, _: Nanos, worker: usize, _: &mut Orders) {
        self.replicas[worker].dead = false;
    }
}
