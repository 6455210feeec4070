//! What is remembered of a version beside its samples: how long its batches took, and what its workers held.

use std::collections::HashMap;

use super::compute_times::ComputeTimes;
use super::memory_trail::MemoryTrail;
use super::model_entry::SizeCount;

/// What the sampler saw of a version that is not in its sample.
#[derive(Debug, Default)]
pub(super) struct VersionLook {
    pub(super) sizes: Vec<SizeCount>,
    /// By process.
    pub(super) memory: Vec<(u32, u64)>,
}

/// What is remembered of it.
#[derive(Debug, Default)]
pub(super) struct VersionRecord {
    pub(super) times: ComputeTimes,
    memory: HashMap<u32, MemoryTrail>,
}

impl VersionRecord {
    pub(super) fn look(&mut self, time: u64, look: &VersionLook) {
        self.times.look(time, &look.sizes);
        let mut before = std::mem::take(&mut self.memory);
        for &(pid, bytes) in &look.memory {
            let mut trail = before.remove(&pid).unwrap_or_default();
            trail.push(time, bytes);
            self.memory.insert(pid, trail);
        }
    }

    /// Bytes per second by which a worker's memory grows, if it only grows.
    pub(super) fn growth(&self, pid: u32) -> Option<f64> {
        self.memory.get(&pid)?.growth()
    }
}
