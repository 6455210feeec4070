//! Wakes of a thread's tasks that come from other threads, gathered.
//!
//! The runtime makes a system call to wake a task of another thread, also where that thread is awake. The answers to a
//! batch come together: the first one for a thread wakes a task there, which wakes those that wait for this one and for
//! all that follow until it runs.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// The wakes of one thread.
#[derive(Debug, Default)]
pub(crate) struct GatheredWakes(Mutex<WakeList>);

#[derive(Debug, Default)]
struct WakeList {
    waiting: Vec<Arc<GatheredWake>>,
    /// Wakes the task that hands them on.
    task: Option<Waker>,
}

/// A task of the thread, as who wakes it has it.
#[derive(Debug)]
struct GatheredWake {
    wakes: Arc<GatheredWakes>,
    task: Waker,
}

impl Wake for GatheredWake {
    fn wake(self: Arc<Self>) {
        let wakes = Arc::clone(&self.wakes);
        wakes.add(self);
    }
}

impl GatheredWakes {
    /// Wakes the tasks of this thread, on which it runs, for good.
    pub(crate) async fn hand_on(self: Arc<Self>) {
        let mut woken = Vec::new();
        poll_fn(|context| {
            let mut list = self.lock();
            if !list.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
                list.task = Some(context.waker().clone());
            }
            std::mem::swap(&mut list.waiting, &mut woken);
            drop(list);
            woken.drain(..).for_each(|wake| wake.task.wake_by_ref());
            Poll::Pending
        })
        .await
    }

    /// Waits on this thread for what another one brings.
    pub(crate) async fn wait_for<F: Future + Unpin>(self: &Arc<Self>, mut brought: F) -> F::Output {
        let mut wake: Option<(Arc<GatheredWake>, Waker)> = None;
        poll_fn(|context| {
            let known = wake.take_if(|(wake, _)| !wake.task.will_wake(context.waker()));
            drop(known);
            let (_, waker) = wake.get_or_insert_with(|| {
                let (wakes, task) = (Arc::clone(self), context.waker().clone());
                let wake = Arc::new(GatheredWake { wakes, task });
                let waker = Waker::from(Arc::clone(&wake));
                (wake, waker)
            });
            Pin::new(&mut brought).poll(&mut Context::from_waker(waker))
        })
        .await
    }

    fn add(&self, wake: Arc<GatheredWake>) {
        let mut list = self.lock();
        list.waiting.push(wake);
        let task = list.task.clone().filter(|_| list.waiting.len() == 1);
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, WakeList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_comes_together_wakes_the_thread_once_and_every_task() {
        let wakes = Arc::new(GatheredWakes::default());
        let (thread, task) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (on_thread, on_task) =
            (Waker::from(Arc::clone(&thread)), Waker::from(Arc::clone(&task)));
        let count = |count: &Count| count.0.load(Ordering::Relaxed);
        let mut hand_on = std::pin::pin!(Arc::clone(&wakes).hand_on());
        let mut run = || hand_on.as_mut().poll(&mut Context::from_waker(&on_thread)).is_pending();
        assert!(run());
        for turn in 1..=2 {
            let (senders, mut waiting): (Vec<_>, Vec<_>) = (0..3)
                .map(|_| {
                    let (sender, receiver) = oneshot::channel::<()>();
                    (sender, Box::pin(wakes.wait_for(receiver)))
                })
                .unzip();
            let context = &mut Context::from_waker(&on_task);
            assert!(waiting.iter_mut().all(|it| it.as_mut().poll(context).is_pending()));
            assert!(senders.into_iter().all(|sender| sender.send(()).is_ok()));
            assert_eq!((count(&thread), count(&task)), (turn, 3 * (turn - 1)));
            assert!(run());
            assert_eq!((count(&thread), count(&task)), (turn, 3 * turn));
            assert!(waiting.iter_mut().all(|it| it.as_mut().poll(context).is_ready()));
        }
    }

    #[test]
    fn a_task_is_woken_as_it_waited_last() {
        let wakes = Arc::new(GatheredWakes::default());
        let (before, now) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (sender, receiver) = oneshot::channel::<()>();
        let mut waiting = std::pin::pin!(wakes.wait_for(receiver));
        for task in [&before, &now] {
            let waker = Waker::from(Arc::clone(task));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(sender.send(()).is_ok());
        let mut hand_on = std::pin::pin!(Arc::clone(&wakes).hand_on());
        assert!(hand_on.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!([before, now].map(|it| it.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
