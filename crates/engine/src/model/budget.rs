//! Memory for models that are loaded when somebody asks for them.
//!
//! Every process that runs a model is counted here, with the memory that it holds (PSS: what processes share
//! counts once). One of a model that is loaded on demand asks before it is started. It waits until there is
//! room, and idle models leave for it; their processes have ended before it begins. Who leaves is decided by
//! [`MemoryPlan`](jitney_batcher::MemoryPlan), a pure function beside the batcher; here is when that is asked, and what
//! follows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jitney_batcher::{LoadStep, Nanos};
use tokio::sync::{Notify, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::budget_table::{BudgetTable, LeavingModels, LoadedWorker};
use super::gpu_record::GpuReading;
use super::gpu_table::{GpuMemoryConfig, GpuTable};
use super::messages::ControlMessage;
use super::state::ModelState;
use crate::outcome::LaunchError;
use crate::process::measured_memory;

/// How often a load that waits for memory looks whether there is some.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the memory of all processes is measured meanwhile, and while none waits; also when one has come or gone.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
const MEASURE_SELDOM: Duration = Duration::from_secs(10);
/// How often the driver of the GPUs is asked while nothing loads: it takes a process of its own each time.
const READ_GPUS_SELDOM: Duration = Duration::from_secs(30);

/// The memory of all models together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: u64,
    started: Instant,
    table: Mutex<BudgetTable>,
    /// Loads wait for memory in the order in which they were asked for.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
    /// Whether somebody measures what is loaded, while no load waits.
    watched: AtomicBool,
    /// How workers are placed by the memory of GPUs, if they are.
    gpus: Option<GpuMemoryConfig>,
    /// The driver is asked by one at a time, and the others use what it said.
    gpus_turn: tokio::sync::Mutex<()>,
    gpus_watched: AtomicBool,
}

impl MemoryBudget {
    /// So many bytes for all models, and of every GPU.
    pub(crate) fn new(limit: u64, gpus: Option<GpuMemoryConfig>) -> Arc<Self> {
        let table = gpus.as_ref().map(|gpus| GpuTable::new(gpus.limit));
        Arc::new(Self {
            limit,
            started: Instant::now(),
            table: Mutex::new(BudgetTable::new(table)),
            turn: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            watched: AtomicBool::new(false),
            gpus,
            gpus_turn: tokio::sync::Mutex::default(),
            gpus_watched: AtomicBool::new(false),
        })
    }

    pub(super) fn table(&self) -> MutexGuard<'_, BudgetTable> {
        // Every change is whole when it is made, so a panic elsewhere leaves nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    /// Waits until there is memory for a worker, and takes it.
    pub(super) async fn take(&self, model: u64, worker: u32) -> Result<(), LaunchError> {
        if !self.waits(model) {
            self.read_gpus(model, MEASURE_EVERY).await;
            return self.try_take(model, worker).map(drop);
        }
        let now = self.now();
        let mut granted = self.table().wait(now, model, worker);
        let _turn = tokio::select! {
            biased;
            Ok(()) = &mut granted => return Ok(()),
            turn = self.turn.lock() => turn,
        };
        if granted.try_recv().is_ok() {
            return Ok(());
        }
        loop {
            let changed = self.changed.notified();
            self.measure(MEASURE_EVERY).await;
            self.read_gpus(model, MEASURE_EVERY).await;
            let mut taken = self.try_take(model, worker);
            if let Err(LaunchError::NoRoom { gpu: Some(_), .. }) = taken {
                // Other programs may have ended a moment ago.
                self.read_gpus(model, Duration::ZERO).await;
                taken = self.try_take(model, worker);
            }
            let Some(leaving) = taken? else { return Ok(()) };
            if leaving.is_empty() {
                let now = self.now();
                self.table().let_pass(now, self.limit, (model, worker));
            }
            self.ask_to_leave(leaving).await;
            // Somebody may have become idle, which nobody tells.
            drop(timeout(LOOK_EVERY, changed).await);
        }
    }

    fn waits(&self, model: u64) -> bool {
        self.table().models.get(&model).is_some_and(|model| model.terms.on_demand)
    }

    /// Measures all processes, where that was so long ago.
    async fn measure(&self, every: Duration) {
        let (pids, left_behind) = self.table().unmeasured(every);
        let measured = measured_memory(pids).await;
        self.table().set_measured(&measured, left_behind);
    }

    /// Asks the driver what is held on GPUs, where that was so long ago and the model uses any.
    async fn read_gpus(&self, model: u64, every: Duration) {
        let uses = |table: &BudgetTable| table.gpus.as_ref().is_some_and(|gpus| gpus.has(model));
        if let Some(config) = self.gpus.as_ref().filter(|_| uses(&self.table())) {
            let _turn = self.gpus_turn.lock().await;
            let read = self.table().gpus.as_ref().and_then(|gpus| gpus.read);
            if read.is_none_or(|at| at.elapsed() >= every) {
                let read = list_gpus(config).await;
                self.table().gpus.iter_mut().for_each(|gpus| gpus.set_read(&read));
            }
        }
    }

    /// Takes the memory for a worker, or says who is to leave first; nobody where others are on their way.
    fn try_take(&self, id: u64, worker: u32) -> Result<Option<LeavingModels>, LaunchError> {
        let (now, mut table) = (self.now(), self.table());
        table.count_requests(now);
        let Some(model) = table.models.get(&id) else { return Ok(None) };
        if model.terms.on_demand && model.is_forgotten() {
            return Err(LaunchError::Unwanted);
        }
        let plan = table.load_plan(now, id, self.limit)?;
        match plan.step {
            LoadStep::Begin => {}
            LoadStep::Leave(places) => {
                return Ok(Some(table.controls(&table.counted(now).0, &places)));
            }
            LoadStep::Wait { .. } | LoadStep::Never { .. } => return Ok(Some(Vec::new())),
        }
        table.begin(now, (id, worker), &plan);
        Ok(None)
    }

    /// How many more workers of a model there is memory for.
    pub(super) fn room(&self, model: u64) -> u32 {
        self.table().room(self.now(), model, self.limit)
    }

    /// How long the last load of a model took, without its wait for memory.
    pub(super) fn load_time(&self, model: u64) -> Option<Duration> {
        let table = self.table();
        let model = table.models.get(&model)?;
        model.size.map(|_| model.load)
    }

    /// The GPU that a worker goes to, where it was chosen here.
    pub(super) fn gpu(&self, model: u64, worker: u32) -> Option<u32> {
        self.table().gpus.as_ref()?.of(model, worker)
    }

    /// A worker did not load, for a reason that may lie with its GPU.
    pub(super) fn failed(&self, model: u64, worker: u32) {
        let now = self.now();
        self.table().gpus.iter_mut().for_each(|gpus| gpus.set_failed(now, (model, worker)));
    }

    /// What so many more workers like those of a model need, and what is free, where they do not fit.
    pub(crate) fn missing_beside(&self, of: &Arc<ModelState>, workers: u32) -> Option<(u64, u64)> {
        self.table().missing_beside(of, workers, self.limit)
    }

    fn no_room(&self, needed: u64, stay: u64) -> LaunchError {
        LaunchError::NoRoom { needed, stay, limit: self.limit, gpu: None }
    }

    /// Asks models to end their workers, unless somebody has just asked for them.
    async fn ask_to_leave(&self, models: LeavingModels) {
        for (id, control) in models {
            let (reply, answer) = oneshot::channel();
            let asked = control.send(ControlMessage::Leave { reply }).await;
            if asked.is_ok() && answer.await == Ok(true) {
                let mut table = self.table();
                // It may have left already.
                let model = table.models.get_mut(&id).filter(|model| !model.workers.is_empty());
                model.into_iter().for_each(|model| model.leaving = true);
            }
        }
    }

    /// A worker has loaded its model. One that holds more than there can be for it does not stay; for one that
    /// holds more than was thought others leave.
    pub(super) async fn loaded(
        self: &Arc<Self>,
        id: u64,
        worker: u32,
        mut loaded: LoadedWorker,
    ) -> Result<(), LaunchError> {
        let measured = measured_memory(Vec::from_iter(loaded.pid)).await;
        loaded.memory = measured.first().map(|(_, memory)| *memory).unwrap_or_default();
        self.read_gpus(id, Duration::ZERO).await;
        let (now, memory) = (self.now(), loaded.memory);
        let (stay, on_demand, on_gpu) = {
            let mut table = self.table();
            table.loaded(now, (id, worker), loaded);
            let model = table.models.get(&id);
            let on_demand = model.is_some_and(|model| model.terms.on_demand);
            (table.staying(now, id), on_demand, table.beyond_gpu(now, (id, worker)))
        };
        self.changed.notify_waiters();
        if on_demand && memory.share.saturating_add(stay) > self.limit {
            return Err(self.no_room(memory.share, stay));
        }
        if let Some(error) = on_gpu.filter(|_| on_demand) {
            return Err(error);
        }
        if on_demand && !self.watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(Arc::clone(self).watch());
        }
        let gpu = self.gpu(id, worker);
        if gpu.is_some() && !self.gpus_watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(Arc::clone(self).watch_gpus());
        }
        Ok(())
    }

    /// Lets models leave whenever more is held than may be: one may grow after its load.
    async fn watch(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            self.measure(MEASURE_SELDOM).await;
            let now = self.now();
            let leaving = self.table().excess(now, self.limit);
            self.ask_to_leave(leaving).await;
            drop(timeout(MEASURE_SELDOM, changed).await);
        }
    }

    /// Lets workers be replaced whose GPU is gone, and models leave a GPU where more is held than may be.
    async fn watch_gpus(self: Arc<Self>) {
        let Some(config) = self.gpus.as_ref() else { return };
        loop {
            sleep(READ_GPUS_SELDOM).await;
            let read = list_gpus(config).await;
            let (now, mut lost) = (self.now(), Vec::new());
            let leaving = {
                let mut table = self.table();
                table.gpus.iter_mut().for_each(|gpus| {
                    gpus.set_read(&read);
                    lost = gpus.lost();
                });
                table.excess(now, self.limit)
            };
            for (model, worker, gpu) in lost {
                let control = self.table().controls(&[model], &[0]).pop();
                if let Some((_, control)) = control {
                    drop(control.send(ControlMessage::Replace { worker, gpu }).await);
                }
            }
            self.ask_to_leave(leaving).await;
        }
    }

    /// A worker has ended, or is no longer wanted.
    pub(super) fn release(&self, model: u64, worker: u32) {
        self.table().release(model, worker);
        self.changed.notify_waiters();
    }

    /// A model is gone.
    pub(super) fn leave(&self, model: u64) {
        let mut table = self.table();
        table.models.remove(&model);
        table.gpus.iter_mut().for_each(|gpus| gpus.forget(model));
        drop(table);
        self.changed.notify_waiters();
    }
}

/// What the driver of the GPUs says.
async fn list_gpus(config: &GpuMemoryConfig) -> Vec<GpuReading> {
    let list = Arc::clone(&config.list);
    spawn_blocking(move || list()).await.unwrap_or_default()
}
