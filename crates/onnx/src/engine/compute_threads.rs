//! How many threads a worker computes with: as many as the operator says, or its share of the processors, which changes
//! with the number of workers.

use std::thread::available_parallelism;

/// The threads of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ComputeThreads {
    /// What the operator says.
    pub(super) fixed: Option<usize>,
    /// Whether the processors that this process may run on are its own.
    pub(super) pinned: bool,
    /// How many workers share the machine; none in the server itself, whose threads have other things to do.
    pub(super) workers: Option<u32>,
}

impl ComputeThreads {
    /// The same once there are so many workers.
    pub(crate) fn among(self, workers: u32) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// How many there are.
    pub(crate) fn count(self) -> usize {
        let processors = || available_parallelism().map_or(1, usize::from);
        match (self.fixed, self.workers) {
            (Some(fixed), _) => fixed,
            (None, Some(_)) if self.pinned => processors(),
            (None, Some(workers)) => (processors() / workers.max(1) as usize).max(1),
            (None, None) => 1,
        }
    }
}
