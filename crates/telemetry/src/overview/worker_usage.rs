//! What the processes of workers use, as the sampler saw it last.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::{Meter, ProcessUsage};

/// All workers that are processes, by their ids.
#[derive(Debug, Default)]
pub(super) struct WorkerUsages {
    by_pid: HashMap<u32, WorkerUsage>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerUsage {
    pub(super) memory: u64,
    /// Percent of one processor since the look before, if there was one.
    pub(super) cpu_percent: Option<f64>,
    cpu: Duration,
    at: Instant,
}

impl WorkerUsages {
    /// Looks at a worker, and compares it with what was seen of it `before`; returns its memory.
    pub(super) fn look(&mut self, pid: u32, before: &Self, meter: &Meter) -> Option<u64> {
        let usage = WorkerUsage::new(meter.process(pid)?, before.get(pid), Instant::now());
        self.by_pid.insert(pid, usage);
        Some(usage.memory)
    }

    pub(super) fn get(&self, pid: u32) -> Option<&WorkerUsage> {
        self.by_pid.get(&pid)
    }
}

impl WorkerUsage {
    fn new(now: ProcessUsage, before: Option<&Self>, at: Instant) -> Self {
        let ProcessUsage { memory, cpu } = now;
        let percent = |before: &Self| {
            let took = (at - before.at).as_secs_f64().max(1e-3);
            // A process that has another's id has used less.
            let share = cpu.checked_sub(before.cpu)?.as_secs_f64() / took;
            Some((share * 1e3).round() / 10.0)
        };
        Self { memory, cpu_percent: before.and_then(percent), cpu, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_time_between_two_looks() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let used = |cpu| ProcessUsage { memory: 7, cpu };
        let first = WorkerUsage::new(used(second), None, start);
        assert_eq!((first.memory, first.cpu_percent), (7, None));
        let next = WorkerUsage::new(used(second * 2), Some(&first), start + 2 * second);
        assert_eq!(next.cpu_percent, Some(50.0));
        let other = WorkerUsage::new(used(Duration::ZERO), Some(&next), start + 4 * second);
        assert_eq!(other.cpu_percent, None);
    }
}
