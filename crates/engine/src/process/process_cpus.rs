//! Keeps a process to some processors: all its threads, and all that it has started.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jitney_settings::CpuList;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Processes of one worker that are looked for.
const PROCESSES_MAX: usize = 1024;

/// The process while its id is its own; none before it is known, elsewhere, and when it has ended.
#[derive(Debug, Default)]
pub(crate) struct ProcessCpus(Mutex<Option<Pid>>);

impl ProcessCpus {
    pub(super) fn new(id: Pid) -> Self {
        Self(Mutex::new(Some(id)))
    }

    /// It has ended, and is about to be reaped.
    pub(super) fn end(&self) {
        *self.id() = None;
    }

    fn id(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it runs on these. What it starts later has them from whoever starts it.
    pub(crate) fn set(&self, cpus: &CpuList) {
        // Held all the time: meanwhile nobody else gets the id.
        let id = self.id();
        let Some(id) = *id else { return };
        let mut mask = CpuSet::new();
        cpus.numbers().iter().for_each(|cpu| mask.set(*cpu as usize));
        if let Err(error) = sched_setaffinity(Some(id), &mask) {
            tracing::warn!(%error, %cpus, "a worker cannot be kept to its processors");
            return;
        }
        // Twice: a thread that had not been moved may have started another one meanwhile.
        for _ in 0..2 {
            move_all(id, &mask);
        }
    }
}

fn move_all(id: Pid, mask: &CpuSet) {
    let mut processes = vec![id.as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(process) = processes.get(next).copied() {
        next += 1;
        for task in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let name = task.file_name();
            let thread = name.to_str().and_then(|it| Pid::from_raw(it.parse().ok()?));
            let Some(thread) = thread else { continue };
            // One that has just ended needs nothing.
            if sched_setaffinity(Some(thread), mask).is_err() || processes.len() >= PROCESSES_MAX {
                continue;
            }
            let started = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            processes.extend(started.split_whitespace().filter_map(|id| id.parse::<i32>().ok()));
        }
    }
}
