//! How many workers were asked for last: what descriptions and records of the model say, from its
//! registration on, whether or not the pool knows of it yet.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::settings::ModelSettings;

/// The fewest and the most workers. The two may be read a moment apart, which a later change sets
/// right.
#[derive(Debug)]
pub(crate) struct WorkerTarget {
    min: AtomicU32,
    max: AtomicU32,
}

impl WorkerTarget {
    /// What the model was registered with.
    pub(crate) fn of(settings: &ModelSettings) -> Self {
        Self { min: settings.workers_min.into(), max: settings.workers_max.into() }
    }

    pub(crate) fn get(&self) -> (u32, u32) {
        (self.min.load(Ordering::Relaxed), self.max.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, min: u32, max: u32) {
        self.min.store(min, Ordering::Relaxed);
        self.max.store(max, Ordering::Relaxed);
    }
}
