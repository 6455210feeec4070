//! The workers of one model version: how many are wanted, who is up, who waits for them.
//!
//! The pool belongs to the model's task and is changed by nobody else. Every worker has a
//! [`supervisor`] of its own, a task that starts it, hands it batches, and starts it again when it
//! exits; the pool learns of that through [`WorkerEvent`]s.

mod backoff;
mod event;
mod recovery;
mod riding;
mod supervisor;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) use self::event::WorkerEvent;
pub(crate) use self::riding::Batch;
pub(crate) use self::supervisor::WorkerPlan;
use self::supervisor::WorkerSupervisor;
pub use self::worker::{BoxFuture, Launcher, Worker, WorkerGone, WorkerMessage};

use crate::error::ScaleError;
use crate::outcome::LaunchError;

/// What the outside may know of a worker.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Its id, never used again after it has gone.
    pub id: u32,
    /// When it was asked for.
    pub started: SystemTime,
    /// Whether it has loaded the model.
    pub ready: bool,
    /// The process id, for workers that are processes.
    pub pid: Option<u32>,
    /// Bytes of memory it uses; 0 when not measured.
    pub memory: u64,
    /// The GPU it was given, if any.
    pub gpu: Option<u32>,
}

struct PoolWorker {
    /// Taken when the worker is asked to leave.
    retire: Option<oneshot::Sender<()>>,
    /// The way to the worker in its present life.
    batches: Option<mpsc::Sender<Batch>>,
    task: JoinHandle<()>,
    started: SystemTime,
    state: WorkerState,
    pid: Option<u32>,
    /// Batches the worker may run at a time in its present life.
    slots: u8,
    /// Whether it may be handed one more, to be run afterwards.
    ahead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    /// Starting, or between two starts.
    Starting,
    Ready,
    /// Starting again was given up.
    GivenUp,
    /// Asked to leave once its batch is done.
    Stopping,
}

struct Waiter {
    reply: oneshot::Sender<Result<(), ScaleError>>,
}

/// All workers of one model version.
pub(crate) struct Pool {
    launcher: Arc<dyn Launcher>,
    pub(crate) plan: WorkerPlan,
    ids: Arc<AtomicU32>,
    events: mpsc::Sender<WorkerEvent>,
    workers: BTreeMap<u32, PoolWorker>,
    min: u32,
    waiters: Vec<Waiter>,
}

impl Pool {
    pub(crate) fn new(
        launcher: Arc<dyn Launcher>,
        plan: WorkerPlan,
        ids: Arc<AtomicU32>,
        events: mpsc::Sender<WorkerEvent>,
    ) -> Self {
        let (workers, waiters) = (BTreeMap::new(), Vec::new());
        Self { launcher, plan, ids, events, workers, min: 0, waiters }
    }

    /// Grows to `min`, shrinks to `max`, and tells `reply` when that many are ready. Returns the
    /// workers that were asked to leave.
    pub(crate) fn scale(
        &mut self,
        min: u32,
        max: u32,
        reply: oneshot::Sender<Result<(), ScaleError>>,
    ) -> Vec<u32> {
        self.min = min;
        self.launcher.set_worker_count(max);
        self.dismiss_lost();
        while self.staying() < min as usize {
            self.add_worker();
        }
        let surplus = self.staying().saturating_sub(max as usize);
        let leaving: Vec<u32> = self.staying_ids().rev().take(surplus).collect();
        for worker in &leaving {
            self.retire(*worker);
        }
        self.waiters.push(Waiter { reply });
        leaving
    }

    /// Asks everybody to leave; returns whom.
    pub(crate) fn retire_all(&mut self) -> Vec<u32> {
        self.min = 0;
        for waiter in self.waiters.drain(..) {
            drop(waiter.reply.send(Err(ScaleError::Gone)));
        }
        let everyone: Vec<u32> = self.staying_ids().collect();
        for worker in &everyone {
            self.retire(*worker);
        }
        everyone
    }

    /// Ends everybody at once; batches under way are dropped with their requests.
    pub(crate) fn abort_all(&mut self) {
        for worker in self.workers.values() {
            worker.task.abort();
        }
        self.workers.clear();
    }

    /// Hands a batch to a worker, or gives it back when the worker has just died; the worker's
    /// `Died` is on its way then.
    #[expect(clippy::result_large_err, reason = "a batch comes back whole, and only from the dead")]
    pub(crate) fn hand(&self, worker: u32, batch: Batch) -> Result<(), Batch> {
        let Some(batches) = self.workers.get(&worker).and_then(|worker| worker.batches.as_ref())
        else {
            return Err(batch);
        };
        batches.try_send(batch).map_err(|refused| refused.into_inner())
    }

    pub(crate) fn up(
        &mut self,
        worker: u32,
        pid: Option<u32>,
        (slots, ahead): (u8, bool),
        batches: mpsc::Sender<Batch>,
    ) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            // A worker that was asked to leave while it loaded stays on its way out.
            if worker.state != WorkerState::Stopping {
                worker.state = WorkerState::Ready;
            }
            worker.pid = pid;
            (worker.slots, worker.ahead) = (slots, ahead);
            worker.batches = Some(batches);
        }
    }

    pub(crate) fn exited(&mut self, worker: u32) {
        if let Some(worker) = self.workers.get_mut(&worker)
            && worker.state == WorkerState::Ready
        {
            worker.state = WorkerState::Starting;
        }
    }

    pub(crate) fn launch_failed(&mut self, error: &LaunchError) {
        for waiter in self.waiters.drain(..) {
            // Nobody listening is fine: the caller did not want to wait.
            drop(waiter.reply.send(Err(ScaleError::Launch(error.clone()))));
        }
    }

    pub(crate) fn given_up(&mut self, worker: u32) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.state = WorkerState::GivenUp;
        }
    }

    pub(crate) fn stopped(&mut self, worker: u32) {
        self.workers.remove(&worker);
        self.launcher.forget(worker);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Those who have loaded the model and stay.
    pub(crate) fn ready(&self) -> Vec<u32> {
        let ready =
            |(id, worker): (&u32, &PoolWorker)| (worker.state == WorkerState::Ready).then_some(*id);
        self.workers.iter().filter_map(ready).collect()
    }

    /// Whether a worker runs its batches one after another and may be handed the next one early.
    pub(crate) fn ahead(&self, worker: u32) -> bool {
        self.workers.get(&worker).is_some_and(|worker| worker.ahead)
    }

    /// How many batches a worker may run at a time.
    pub(crate) fn slots(&self, worker: u32) -> u8 {
        self.workers.get(&worker).map_or(self.plan.slots, |worker| worker.slots)
    }

    /// Whether somebody serves or still tries to.
    pub(crate) fn has_workers(&self) -> bool {
        self.workers
            .values()
            .any(|worker| matches!(worker.state, WorkerState::Starting | WorkerState::Ready))
    }

    /// TorchServe's health: no fewer workers than wanted, counting those that are being restarted.
    pub(crate) fn healthy(&self) -> bool {
        let alive =
            self.workers.values().filter(|worker| worker.state != WorkerState::GivenUp).count();
        alive >= self.min as usize
    }

    pub(crate) fn views(&self) -> Vec<WorkerView> {
        let view = |(id, worker): (&u32, &PoolWorker)| WorkerView {
            id: *id,
            started: worker.started,
            ready: worker.state == WorkerState::Ready,
            pid: worker.pid,
            memory: 0,
            gpu: self.launcher.gpu(*id),
        };
        self.workers
            .iter()
            .filter(|(_, worker)| worker.state != WorkerState::Stopping)
            .map(view)
            .collect()
    }

    fn add_worker(&mut self) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (retire, retired) = oneshot::channel();
        let supervisor =
            WorkerSupervisor::new(id, &self.launcher, &self.plan, retired, &self.events);
        let entry = PoolWorker {
            retire: Some(retire),
            batches: None,
            task: tokio::spawn(supervisor.run()),
            started: SystemTime::now(),
            state: WorkerState::Starting,
            pid: None,
            slots: self.plan.slots,
            ahead: false,
        };
        self.workers.insert(id, entry);
    }

    fn retire(&mut self, worker: u32) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.state = WorkerState::Stopping;
            // Dropping the sender is the signal.
            worker.retire.take();
        }
    }

    /// A worker that gave up is replaced by a new one when somebody scales.
    fn dismiss_lost(&mut self) {
        let lost: Vec<u32> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.state == WorkerState::GivenUp)
            .map(|(id, _)| *id)
            .collect();
        for worker in lost {
            self.retire(worker);
        }
    }

    fn staying_ids(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.workers
            .iter()
            .filter(|(_, worker)| worker.state != WorkerState::Stopping)
            .map(|(id, _)| *id)
    }

    fn staying(&self) -> usize {
        self.staying_ids().count()
    }

    /// Tells those who wait for the workers, if all that are wanted are ready.
    pub(crate) fn tell_waiters(&mut self) {
        let ready =
            self.workers.values().filter(|worker| worker.state == WorkerState::Ready).count();
        if ready >= self.min as usize {
            for waiter in self.waiters.drain(..) {
                drop(waiter.reply.send(Ok(())));
            }
        }
    }
}
