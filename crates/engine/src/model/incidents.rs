//! What went wrong with the workers of a model version: counted and remembered by its task, read by
//! descriptions and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;

use crate::outcome::{EXIT_KINDS, LaunchError, WorkerExit};

/// The last thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIncident {
    /// What, in one line.
    pub error: String,
    /// When.
    pub at: SystemTime,
    /// How the worker's process ended, if it did by itself.
    pub exit: Option<WorkerExit>,
}

/// What went wrong so far.
#[derive(Clone, Debug, Default)]
pub struct IncidentReport {
    /// Exits of workers that had loaded, by kind.
    pub exits: [(&'static str, u64); EXIT_KINDS.len()],
    /// Times that a worker was started again.
    pub restarts: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// The last of all.
    pub last: Option<Arc<WorkerIncident>>,
    /// The last with an exit.
    pub last_exit: Option<Arc<WorkerIncident>>,
}

#[derive(Debug, Default)]
pub(crate) struct Incidents {
    exits: [AtomicU64; EXIT_KINDS.len()],
    restarts: AtomicU64,
    load_failures: AtomicU64,
    last: ArcSwapOption<WorkerIncident>,
    last_exit: ArcSwapOption<WorkerIncident>,
}

impl Incidents {
    /// A worker that had loaded has exited, and is started again.
    pub(super) fn exited(&self, exit: WorkerExit) {
        self.exits[exit.kind()].fetch_add(1, Relaxed);
        self.restarts.fetch_add(1, Relaxed);
        self.remember(exit.to_string(), Some(exit));
    }

    /// A worker could not load the model, and is perhaps started again.
    pub(super) fn load_failed(&self, error: &LaunchError, again: bool) {
        self.load_failures.fetch_add(1, Relaxed);
        self.restarts.fetch_add(again.into(), Relaxed);
        self.remember(error.to_string(), error.exit());
    }

    fn remember(&self, error: String, exit: Option<WorkerExit>) {
        let incident = Arc::new(WorkerIncident { error, at: SystemTime::now(), exit });
        if exit.is_some() {
            self.last_exit.store(Some(Arc::clone(&incident)));
        }
        self.last.store(Some(incident));
    }

    pub(super) fn report(&self) -> IncidentReport {
        let exits = |kind: usize| (EXIT_KINDS[kind], self.exits[kind].load(Relaxed));
        IncidentReport {
            exits: std::array::from_fn(exits),
            restarts: self.restarts.load(Relaxed),
            load_failures: self.load_failures.load(Relaxed),
            last: self.last.load_full(),
            last_exit: self.last_exit.load_full(),
        }
    }
}
