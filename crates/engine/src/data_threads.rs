//! The threads of the data plane, as models share them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

/// The runtimes of the data plane; models take turns.
pub(crate) struct DataThreads {
    all: Arc<[Handle]>,
    next: AtomicUsize,
}

impl DataThreads {
    /// # Errors
    /// There is none.
    pub(crate) fn new(all: Vec<Handle>) -> io::Result<Self> {
        if all.is_empty() {
            return Err(io::Error::other("no data-plane runtime"));
        }
        Ok(Self { all: all.into(), next: AtomicUsize::new(0) })
    }

    /// For what concerns no model.
    pub(crate) fn first(&self) -> &Handle {
        &self.all[0]
    }

    /// The threads as the next model uses them.
    pub(crate) fn take_turn(&self) -> ModelThreads {
        let home = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len();
        ModelThreads { all: Arc::clone(&self.all), home }
    }
}

/// Where a model's task runs, and where those run that talk to its workers.
///
/// The first worker is with the task: a batch for it wakes no other thread. The others are spread, since one
/// thread that writes and reads the frames of all of them is what bounds a model on many cores.
#[derive(Clone)]
pub(crate) struct ModelThreads {
    all: Arc<[Handle]>,
    home: usize,
}

impl ModelThreads {
    /// All on one thread.
    #[cfg(test)]
    pub(crate) fn only(thread: Handle) -> Self {
        Self { all: [thread].into(), home: 0 }
    }

    /// Of the task.
    pub(crate) fn home(&self) -> &Handle {
        &self.all[self.home]
    }

    /// Where the next supervisor goes: to the thread that has the fewest, the task's own before others.
    pub(crate) fn choose(&self, supervisors: impl Fn(usize) -> usize) -> usize {
        let count = self.all.len();
        let threads = (0..count).map(|step| (self.home + step) % count);
        threads.min_by_key(|thread| supervisors(*thread)).unwrap_or(self.home)
    }

    pub(crate) fn at(&self, thread: usize) -> &Handle {
        &self.all[thread]
    }

    /// A thread that is not the task's.
    pub(crate) fn elsewhere(&self, thread: usize) -> Option<&Handle> {
        (thread != self.home).then(|| self.at(thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workers_are_spread_and_the_first_is_with_the_task() {
        let threads = DataThreads::new(vec![Handle::current(); 3]).unwrap();
        drop(threads.take_turn());
        let model = threads.take_turn();
        let mut taken = Vec::new();
        for _ in 0..4 {
            let thread = model.choose(|thread| taken.iter().filter(|it| **it == thread).count());
            taken.push(thread);
        }
        assert_eq!(taken, [1, 2, 0, 1]);
        let elsewhere = [1, 2].map(|thread| model.elsewhere(thread).is_some());
        assert_eq!(elsewhere, [false, true]);
        taken.remove(1);
        assert_eq!(model.choose(|thread| taken.iter().filter(|it| **it == thread).count()), 2);
    }

    #[test]
    fn an_engine_needs_a_thread() {
        assert!(DataThreads::new(Vec::new()).is_err());
    }
}
