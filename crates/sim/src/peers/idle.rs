//! Which workers are idle, in the order in which they became so.

use std::collections::VecDeque;

/// Idle and dead workers.
#[derive(Debug)]
pub(super) struct IdleWorkers {
    idle: VecDeque<usize>,
    dead: Vec<bool>,
}

impl IdleWorkers {
    pub(super) fn new(workers: usize) -> Self {
        Self { idle: (0..workers).collect(), dead: vec![false; workers] }
    }

    pub(super) fn take(&mut self) -> Option<usize> {
        self.idle.pop_front()
    }

    pub(super) fn any(&self) -> bool {
        !self.idle.is_empty()
    }

    pub(super) fn give(&mut self, worker: usize) {
        if !self.dead[worker] {
            self.idle.push_back(worker);
        }
    }

    pub(super) fn lost(&mut self, worker: usize) {
        self.dead[worker] = true;
        self.idle.retain(|&each| each != worker);
    }

    pub(super) fn back(&mut self, worker: usize) {
        self.dead[worker] = false;
        self.give(worker);
    }
}
