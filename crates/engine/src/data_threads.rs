//! The threads of the data plane, as models share them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use crate::gathered_wakes::GatheredWakes;

/// One of the threads.
struct DataThread {
    runtime: Handle,
    wakes: Arc<GatheredWakes>,
}

impl From<Handle> for DataThread {
    fn from(runtime: Handle) -> Self {
        Self { runtime, wakes: Arc::default() }
    }
}

/// The runtimes of the data plane; models take turns.
pub(crate) struct DataThreads {
    all: Arc<[DataThread]>,
    next: AtomicUsize,
}

impl DataThreads {
    /// # Errors
    /// There is none.
    pub(crate) fn new(all: Vec<Handle>) -> io::Result<Self> {
        if all.is_empty() {
            return Err(io::Error::other("no data-plane runtime"));
        }
        let all: Arc<[DataThread]> = all.into_iter().map(DataThread::from).collect();
        if all.len() > 1 {
            all.iter().for_each(|it| drop(it.runtime.spawn(Arc::clone(&it.wakes).hand_on())));
        }
        Ok(Self { all, next: AtomicUsize::new(0) })
    }

    /// For what concerns no model.
    pub(crate) fn first(&self) -> &Handle {
        &self.all[0].runtime
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
    all: Arc<[DataThread]>,
    home: usize,
}

impl ModelThreads {
    /// All on one thread.
    #[cfg(test)]
    pub(crate) fn only(thread: Handle) -> Self {
        Self { all: [thread.into()].into(), home: 0 }
    }

    /// Of the task.
    pub(crate) fn home(&self) -> &Handle {
        self.at(self.home)
    }

    /// Where the next supervisor goes: to the thread that has the fewest, the task's own before others.
    pub(crate) fn choose(&self, supervisors: impl Fn(usize) -> usize) -> usize {
        let count = self.all.len();
        let threads = (0..count).map(|step| (self.home + step) % count);
        threads.min_by_key(|thread| supervisors(*thread)).unwrap_or(self.home)
    }

    pub(crate) fn at(&self, thread: usize) -> &Handle {
        &self.all[thread].runtime
    }

    /// A thread that is not the task's.
    pub(crate) fn elsewhere(&self, thread: usize) -> Option<&Handle> {
        (thread != self.home).then(|| self.at(thread))
    }

    /// The wakes of the thread that asks, where answers come from others.
    pub(crate) fn wakes_here(&self) -> Option<&Arc<GatheredWakes>> {
        if self.all.len() == 1 {
            return None;
        }
        let here = Handle::try_current().ok()?.id();
        self.all.iter().find(|it| it.runtime.id() == here).map(|it| &it.wakes)
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
