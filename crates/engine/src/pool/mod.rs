//! The workers of one model version: how many are wanted, which are up, and who waits for them.
//!
//! The pool belongs to the model's task, which alone changes it. Every worker has a
//! [`supervisor`] of its own, a task that starts it, hands it batches, and starts it again when it
//! exits; the pool learns of that through [`WorkerEvent`]s.

mod batches;
mod pool_worker;
mod recovery;
mod replacements;
mod supervisor;
mod wear;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

pub(crate) use self::batches::{BatchRun, WorkerBatch};
pub use self::pool_worker::WorkerView;
use self::pool_worker::{PoolWorker, PoolWorkerState};
use self::replacements::{WornReplacement, WornWorkers};
pub(crate) use self::supervisor::WorkerEvent;
use self::supervisor::WorkerSupervisor;
pub(crate) use self::wear::{ReplaceReason, WearLimits};
pub(crate) use self::worker::{BatchOrder, LoadedFields, WorkerCapacity, WorkerPlan, micros};
pub use self::worker::{
    BatchTimes, BoxFuture, CollectorPauses, GraphMemory, Launcher, LoadProgress, LoadedReport,
    MeasuredRun, ProgressSender, Worker, WorkerGone, WorkerMessage,
};
use crate::data_threads::ModelThreads;
use crate::error::ScaleError;
use crate::gpu_assignment::GpuAnswers;
use crate::outcome::{LaunchError, LoadFailure};

/// All workers of one model version.
pub(crate) struct WorkerPool {
    launcher: Arc<dyn Launcher>,
    pub(crate) plan: WorkerPlan,
    next_id: Arc<AtomicU32>,
    events: mpsc::Sender<WorkerEvent>,
    threads: ModelThreads,
    workers: BTreeMap<u32, PoolWorker>,
    /// From the first one on that is worn.
    worn: Option<WornWorkers>,
    /// How many serve, as their supervisors see it; 0 before the first one does.
    serving: Arc<AtomicU32>,
    min: u32,
    /// The last load, if it failed: nobody has loaded since, was lost since, or was asked for since.
    failure: Option<Arc<LoadFailure>>,
    /// Those who wait until the workers that they asked for are ready.
    waiters: Vec<oneshot::Sender<Result<(), ScaleError>>>,
}

impl WorkerPool {
    pub(crate) fn new(
        launcher: Arc<dyn Launcher>,
        plan: WorkerPlan,
        next_id: Arc<AtomicU32>,
        events: mpsc::Sender<WorkerEvent>,
        threads: ModelThreads,
    ) -> Self {
        Self {
            launcher,
            plan,
            next_id,
            events,
            threads,
            workers: BTreeMap::new(),
            worn: None,
            serving: Arc::default(),
            min: 0,
            failure: None,
            waiters: Vec::new(),
        }
    }

    /// Grows to `min`, shrinks to `max`, and tells `reply` when that many are ready. Returns the
    /// workers that were asked to stop.
    pub(crate) fn scale(
        &mut self,
        min: u32,
        max: u32,
        reply: oneshot::Sender<Result<(), ScaleError>>,
    ) -> Vec<u32> {
        self.waiters.push(reply);
        self.resize(min, max)
    }

    /// The same for nobody who waits.
    pub(crate) fn resize(&mut self, min: u32, max: u32) -> Vec<u32> {
        self.min = min;
        // A worker that gave up is replaced by a new one.
        self.retire(self.ids(|state| state == PoolWorkerState::GivenUp));
        let mut staying = self.staying();
        if staying.len() < min as usize || max == 0 {
            self.failure = None;
        }
        self.launcher.set_worker_count(min.max(staying.len() as u32).min(max));
        while staying.len() < min as usize {
            staying.push(self.add_worker());
        }
        // Those that serve stay, the oldest before others.
        staying.sort_by_key(|id| self.workers.get(id).is_none_or(|it| !it.state.serves()));
        let mut leaving = staying.split_off(staying.len().min(max as usize));
        let with_them = |it: &PoolWorker| it.replaces.is_some_and(|id| leaving.contains(&id));
        let replacements = self.workers.iter().filter(|(_, it)| with_them(it)).map(|(id, _)| *id);
        let replacements: Vec<u32> = replacements.collect();
        leaving.extend(replacements);
        self.retire(leaving)
    }

    /// The workers that do not stop, the oldest first; one that is to take the place of another is not counted beside it.
    fn staying(&self) -> Vec<u32> {
        let stays = |it: &PoolWorker| it.state != PoolWorkerState::Stopping;
        let beside = |it: &PoolWorker| {
            it.replaces.is_some_and(|id| self.workers.get(&id).is_some_and(stays))
        };
        let staying = self.workers.iter().filter(|(_, it)| stays(it) && !beside(it));
        staying.map(|(id, _)| *id).collect()
    }

    /// Starts a worker in place of one that serves. That one goes on until the new one is ready.
    pub(crate) fn replace(&mut self, worker: u32) {
        let stays = |it: &PoolWorker| it.state == PoolWorkerState::Ready;
        if self.workers.get(&worker).is_some_and(stays) {
            let id = self.add_worker();
            self.workers.entry(id).and_modify(|it| it.replaces = Some(worker));
        }
    }

    /// A worker is to be replaced when its turn has come; it serves on until then.
    pub(crate) fn replace_in_turn(&mut self, worker: u32) {
        self.worn.get_or_insert_default().add(worker);
    }

    /// When to look again whether a worker that is worn can be replaced.
    pub(crate) fn replace_alarm(&self) -> Option<Instant> {
        self.worn.as_ref().and_then(WornWorkers::alarm)
    }

    /// Replaces the first worker that is worn, unless another one is being started. Returns it where it was asked to
    /// stop for that.
    pub(crate) fn replace_next(&mut self) -> Option<u32> {
        let serving = if self.loads_from().is_some() { None } else { Some(self.ready()) };
        let (worn, launcher) = (self.worn.as_mut()?, &self.launcher);
        match worn.next(serving, || launcher.room() > 0)? {
            WornReplacement::Beside(worker) => {
                self.replace(worker);
                None
            }
            WornReplacement::After(worker) => self.retire(vec![worker]).pop(),
        }
    }

    /// Asks the worker to stop that this one replaces; returns it.
    pub(crate) fn retire_replaced(&mut self, by: u32) -> Vec<u32> {
        let replaced = self.workers.get_mut(&by).and_then(|it| it.replaces.take());
        let stays =
            |id: &u32| self.workers.get(id).is_some_and(|it| it.state != PoolWorkerState::Stopping);
        self.retire(replaced.filter(stays).into_iter().collect())
    }

    /// Asks all workers to stop; returns which.
    pub(crate) fn retire_all(&mut self) -> Vec<u32> {
        self.min = 0;
        self.answer_waiters(&Err(ScaleError::Gone));
        self.retire(self.ids(|state| state != PoolWorkerState::Stopping))
    }

    /// Ends all workers at once; batches under way are dropped with their requests.
    pub(crate) fn abort_all(&mut self) {
        for worker in self.workers.values() {
            worker.task.abort();
        }
        self.workers.clear();
    }

    /// Hands a batch to a worker, or gives it back when the worker has just exited; the event `Exited`
    /// is on its way then.
    pub(crate) fn hand(&self, worker: u32, batch: WorkerBatch) -> Result<(), WorkerBatch> {
        let Some(batches) = self.workers.get(&worker).and_then(|worker| worker.batches.as_ref())
        else {
            return Err(batch);
        };
        batches.try_send(batch).map_err(|unsent| unsent.into_inner())
    }

    /// The thread of a worker that is not its model's own.
    pub(crate) fn elsewhere(&self, worker: u32) -> Option<&Handle> {
        self.threads.elsewhere(self.workers.get(&worker)?.thread)
    }

    /// A caller went away: workers that can had better not go on for it.
    pub(crate) fn caller_left(&self) {
        self.workers.values().for_each(|worker| worker.left.notify_one());
    }

    pub(crate) fn up(
        &mut self,
        worker: u32,
        pid: Option<u32>,
        capacity: WorkerCapacity,
        batches: mpsc::Sender<WorkerBatch>,
        report: &LoadedReport,
    ) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            // A worker that was asked to stop while it loaded is not ready.
            if worker.state != PoolWorkerState::Stopping {
                worker.state = PoolWorkerState::WarmingUp;
            }
            worker.pid = pid;
            worker.capacity = capacity;
            worker.batches = Some(batches);
            worker.progress = None;
            (worker.graphs, worker.gpu_memory) = (report.graphs, report.gpu_memory);
            self.failure = None;
        }
    }

    /// A worker says how far it is with loading, or was seen to be so far with warming up.
    pub(crate) fn progressed(&mut self, worker: u32, step: LoadProgress) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.progress = Some(step);
        }
    }

    /// A worker says what it says now and then: what it holds on its GPU, how its collector paused.
    pub(crate) fn told(&mut self, worker: u32, times: &BatchTimes) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.gpu_memory = times.gpu_memory.or(worker.gpu_memory);
            worker.pauses = times.pauses.or(worker.pauses);
        }
    }

    /// A worker that has loaded the model is warm: it serves from now on.
    pub(crate) fn serves(&mut self, worker: u32) {
        if let Some(worker) = self.workers.get_mut(&worker)
            && worker.state == PoolWorkerState::WarmingUp
        {
            worker.state = PoolWorkerState::Ready;
            worker.progress = None;
        }
    }

    /// It is started again after this time.
    pub(crate) fn exited(&mut self, worker: u32, restart: Duration) {
        if let Some(worn) = &mut self.worn {
            worn.forget(worker);
        }
        if let Some(worker) = self.workers.get_mut(&worker)
            && matches!(worker.state, PoolWorkerState::WarmingUp | PoolWorkerState::Ready)
        {
            worker.state = PoolWorkerState::Starting;
            self.failure = None;
        }
        if let Some(worker) = self.workers.get_mut(&worker) {
            (worker.progress, worker.graphs) = (None, None);
            (worker.gpu_memory, worker.pauses) = (None, None);
            worker.loads_from = Instant::now() + restart;
            worker.restarts += 1;
        }
    }

    pub(crate) fn launch_failed(
        &mut self,
        worker: u32,
        error: LaunchError,
        retry_at: Option<Instant>,
    ) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.progress = None;
            worker.loads_from = retry_at.unwrap_or(worker.loads_from);
            worker.restarts += u32::from(retry_at.is_some());
        }
        self.answer_waiters(&Err(ScaleError::Launch(error.clone())));
        self.failure = Some(Arc::new(LoadFailure { error, retry_at }));
    }

    pub(crate) fn given_up(&mut self, worker: u32) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.state = PoolWorkerState::GivenUp;
        }
        if !self.has_workers()
            && let Some(failure) = &mut self.failure
        {
            Arc::make_mut(failure).retry_at = None;
        }
    }

    /// The last load, if it failed and no other worker gives hope.
    pub(crate) fn failure(&self) -> Option<&Arc<LoadFailure>> {
        self.failure.as_ref()
    }

    /// What all models have answered on the GPU of a worker, if it has one.
    pub(crate) fn gpu_answers(&self, worker: u32) -> Option<GpuAnswers> {
        self.launcher.gpu_answers(worker)
    }

    /// How many more workers there is memory for.
    pub(crate) fn room(&self) -> u32 {
        self.launcher.room()
    }

    pub(crate) fn stopped(&mut self, worker: u32) {
        self.workers.remove(&worker);
        self.launcher.forget(worker);
        if self.worn.as_mut().is_some_and(|worn| worn.ended(worker)) && self.count() < self.min {
            self.add_worker();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// The workers that have loaded the model and stay.
    pub(crate) fn ready(&self) -> Vec<u32> {
        self.ids(|state| state == PoolWorkerState::Ready)
    }

    /// Lets every worker know with its next batch how many share the machine.
    pub(crate) fn share(&self) {
        match self.ready_count() {
            0 => {}
            count => self.serving.store(count, Ordering::Relaxed),
        }
    }

    /// How many workers serve.
    pub(crate) fn ready_count(&self) -> u32 {
        let is_ready = |worker: &&PoolWorker| worker.state == PoolWorkerState::Ready;
        self.workers.values().filter(is_ready).count() as u32
    }

    /// How many workers serve, are being started, or were given up.
    pub(crate) fn count(&self) -> u32 {
        self.staying().len() as u32
    }

    /// When the first of the loads under way began.
    pub(crate) fn loads_from(&self) -> Option<Instant> {
        use PoolWorkerState::{Starting, WarmingUp};
        let loading = self.workers.values().filter(|it| matches!(it.state, Starting | WarmingUp));
        loading.map(|worker| worker.loads_from).min()
    }

    /// How many workers are wanted.
    pub(crate) fn wanted(&self) -> u32 {
        self.min
    }

    /// Whether a request may come in: a worker serves, or one is being started and the last load
    /// did not fail.
    pub(crate) fn admits(&self) -> bool {
        self.ready_count() > 0 || (self.failure.is_none() && self.has_workers())
    }

    /// How many batches a worker can hold.
    pub(crate) fn capacity(&self, worker: u32) -> WorkerCapacity {
        let usual = WorkerCapacity::usual(self.plan.slots);
        self.workers.get(&worker).map_or(usual, |worker| worker.capacity)
    }

    /// Whether a worker serves or is being started.
    fn has_workers(&self) -> bool {
        use PoolWorkerState::{Ready, Starting, WarmingUp};
        self.workers.values().any(|worker| matches!(worker.state, Starting | WarmingUp | Ready))
    }

    /// TorchServe's health: no fewer workers than wanted, counting those that are being restarted.
    pub(crate) fn healthy(&self) -> bool {
        self.ids(|state| state != PoolWorkerState::GivenUp).len() >= self.min as usize
    }

    pub(crate) fn views(&self) -> Vec<WorkerView> {
        let staying = self.workers.iter().filter(|(_, it)| it.state != PoolWorkerState::Stopping);
        staying.map(|(id, worker)| worker.view(*id, &*self.launcher)).collect()
    }

    fn add_worker(&mut self) -> u32 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let ((retire, retired), left) = (oneshot::channel(), Arc::new(Notify::new()));
        let at = |thread| self.workers.values().filter(|it| it.thread == thread).count();
        let thread = self.threads.choose(at);
        let told = (&left, &self.serving);
        let supervisor =
            WorkerSupervisor::new(id, &self.launcher, &self.plan, retired, told, &self.events);
        let entry = PoolWorker {
            retire: Some(retire),
            batches: None,
            left,
            task: self.threads.at(thread).spawn(supervisor.run()),
            thread,
            started: SystemTime::now(),
            loads_from: Instant::now(),
            state: PoolWorkerState::Starting,
            pid: None,
            capacity: WorkerCapacity::usual(self.plan.slots),
            progress: None,
            graphs: None,
            gpu_memory: None,
            pauses: None,
            restarts: 0,
            replaces: None,
        };
        self.workers.insert(id, entry);
        id
    }

    /// Asks these workers to stop and returns them.
    fn retire(&mut self, leaving: Vec<u32>) -> Vec<u32> {
        for id in &leaving {
            if let Some(worker) = self.workers.get_mut(id) {
                worker.state = PoolWorkerState::Stopping;
                // Dropping the sender is the signal.
                worker.retire.take();
            }
        }
        leaving
    }

    /// The workers whose state is such, the oldest first.
    fn ids(&self, is_such: impl Fn(PoolWorkerState) -> bool) -> Vec<u32> {
        let such = self.workers.iter().filter(|(_, worker)| is_such(worker.state));
        such.map(|(id, _)| *id).collect()
    }

    fn answer_waiters(&mut self, answer: &Result<(), ScaleError>) {
        for waiter in self.waiters.drain(..) {
            // A caller that does not wait any more is fine.
            drop(waiter.send(answer.clone()));
        }
    }

    /// Tells those who wait for the workers, if all that are wanted are ready.
    pub(crate) fn tell_waiters(&mut self) {
        if self.ready().len() >= self.min as usize {
            self.answer_waiters(&Ok(()));
        }
    }
}
