//! Memory for models that are loaded when somebody asks for them.
//!
//! Every process that runs a model is counted here, with the memory that it holds (PSS: what processes share
//! counts once). One of a model that is loaded on demand asks before it is started. It waits until there is
//! room, and idle models leave for it; their processes have ended before it begins. Who leaves is decided by
//! [`MemoryPlan`], a pure function beside the batcher; here is what that is told, and what follows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jitney_batcher::{AskedRate, LoadStep, MemoryPlan, MemoryState, ModelMemory, Nanos, worth};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::messages::ControlMessage;
use super::state::ModelState;
use crate::outcome::LaunchError;
use crate::pool::{BoxFuture, Launcher, LoadProgress, ProgressSender, Worker};
use crate::process::measured_memory;

/// How often a load that waits for memory looks whether there is some.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the memory of all processes is measured meanwhile.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How often a load says that it waits, at most; at least twice in the time that a start may take.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// What a process holds beside its model until one was measured: about what Python and this package take.
const BASE_GUESS: u64 = 32 << 20;
/// How long a load is taken to last until one has.
const LOAD_GUESS: Duration = Duration::from_secs(5);

/// Models that are to leave, and how they are told.
type LeavingModels = Vec<(u64, mpsc::Sender<ControlMessage>)>;

/// The memory of all models together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: u64,
    started: Instant,
    table: Mutex<BudgetTable>,
    /// Loads wait for memory in the order in which they were asked for.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct BudgetTable {
    next: u64,
    models: BTreeMap<u64, BudgetModel>,
    /// The most that a process without Python, and one with it, held beside its model's files.
    base: [Option<u64>; 2],
    measured: Option<Instant>,
}

/// How a model takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetTerms {
    /// It is loaded when somebody asks for it, and leaves for others.
    pub(crate) on_demand: bool,
    /// Once loaded it does not leave.
    pub(crate) keep: bool,
    /// Bytes of its files.
    pub(crate) files: u64,
    /// Whether its processes run Python.
    pub(crate) python: bool,
    /// How long a start may take without a word.
    pub(crate) startup_timeout: Duration,
}

#[derive(Debug)]
struct BudgetModel {
    terms: BudgetTerms,
    published: Arc<ModelState>,
    control: mpsc::Sender<ControlMessage>,
    /// Requests that were counted.
    seen: u64,
    asked: AskedRate,
    workers: BTreeMap<u32, HeldWorker>,
    /// What its last worker held.
    size: Option<u64>,
    load: Duration,
    loaded: Nanos,
    leaving: bool,
}

/// A process of a model, by what it holds.
#[derive(Clone, Copy, Debug)]
struct HeldWorker {
    bytes: u64,
    /// None while it loads.
    pid: Option<u32>,
}

impl BudgetModel {
    fn bytes(&self) -> u64 {
        self.workers.values().map(|worker| worker.bytes).sum()
    }

    /// Whether somebody waits for an answer of it.
    fn is_asked(&self) -> bool {
        let counters = self.published.counters();
        let ended = counters.answered + counters.rejected + counters.failed + counters.abandoned;
        counters.requests > ended
    }

    /// Whether those who made it load have gone, and nobody else wants a worker.
    fn is_forgotten(&self) -> bool {
        let ModelState { from_zero, ready, .. } = &*self.published;
        from_zero.load(Relaxed) && ready.load(Relaxed) == 0 && !self.is_asked()
    }

    fn held(&self, now: Nanos) -> MemoryState {
        if !self.terms.on_demand {
            return MemoryState::Stays;
        }
        if self.workers.values().any(|worker| worker.pid.is_none()) {
            return MemoryState::Loading { measured: self.size.is_some() };
        }
        if self.leaving {
            return MemoryState::Leaving;
        }
        if self.terms.keep {
            return MemoryState::Stays;
        }
        if self.is_asked() {
            return MemoryState::Busy;
        }
        let load = self.load.as_nanos() as Nanos;
        let worth = worth(self.asked.rate(now), load, self.bytes());
        MemoryState::unasked(now, self.loaded, load, worth)
    }
}

impl BudgetTable {
    /// Counts the requests of all models.
    fn count_requests(&mut self, now: Nanos) {
        for model in self.models.values_mut() {
            let requests = model.published.requests.load(Relaxed);
            model.asked.add(now, requests - model.seen);
            model.seen = requests;
        }
    }

    /// The processes that are to be measured, where that was long ago.
    fn unmeasured(&mut self) -> Vec<u32> {
        let now = Instant::now();
        if self.measured.is_some_and(|at| now - at < MEASURE_EVERY) {
            return Vec::new();
        }
        self.measured = Some(now);
        let workers = self.models.values().flat_map(|model| model.workers.values());
        workers.filter_map(|worker| worker.pid).collect()
    }

    /// A process holds so much.
    fn set_measured(&mut self, pid: u32, bytes: u64) {
        for model in self.models.values_mut() {
            for worker in model.workers.values_mut().filter(|it| it.pid == Some(pid)) {
                worker.bytes = bytes;
                model.size = model.size.max(Some(bytes));
            }
        }
    }

    /// What a worker of a model will hold: as measured, else by its files and by what others hold beside theirs.
    fn plan(&self, model: &BudgetModel, limit: u64) -> MemoryPlan {
        let BudgetTerms { files, python, .. } = model.terms;
        let (files, base) = (files / 10 * 13, self.base[usize::from(python)]);
        let guess = files + base.unwrap_or(BASE_GUESS);
        let (needed, measured) = (model.size.unwrap_or(guess), model.size.is_some());
        MemoryPlan { limit, needed, measured, least: files + BASE_GUESS }
    }

    /// All models that hold memory, by their numbers.
    fn held(&self, now: Nanos) -> (Vec<u64>, Vec<ModelMemory>) {
        let there = self.models.iter().filter(|(_, model)| !model.workers.is_empty());
        let held =
            |model: &BudgetModel| ModelMemory { bytes: model.bytes(), held: model.held(now) };
        there.map(|(id, model)| (*id, held(model))).unzip()
    }

    /// Where these models are told to leave.
    fn controls(&self, ids: &[u64], places: &[usize]) -> LeavingModels {
        let ids = places.iter().map(|place| ids[*place]);
        ids.filter_map(|id| Some((id, self.models.get(&id)?.control.clone()))).collect()
    }
}

impl MemoryBudget {
    /// So many bytes for all models.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            started: Instant::now(),
            table: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Lets the workers of a model be counted.
    pub(super) fn bind(
        self: &Arc<Self>,
        launcher: Arc<dyn Launcher>,
        terms: BudgetTerms,
        published: &Arc<ModelState>,
        control: &mpsc::Sender<ControlMessage>,
    ) -> Arc<dyn Launcher> {
        let mut table = self.table();
        let model = table.next;
        table.next += 1;
        let entry = BudgetModel {
            terms,
            published: Arc::clone(published),
            control: control.clone(),
            seen: 0,
            asked: AskedRate::new(self.now()),
            workers: BTreeMap::new(),
            size: None,
            load: LOAD_GUESS,
            loaded: 0,
            leaving: false,
        };
        table.models.insert(model, entry);
        let tell_every = TELL_EVERY.min(terms.startup_timeout / 2);
        Arc::new(BudgetedLauncher { launcher, budget: Arc::clone(self), model, tell_every })
    }

    fn table(&self) -> MutexGuard<'_, BudgetTable> {
        // Every change is whole when it is made, so a panic elsewhere leaves nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    /// Waits until there is memory for a worker, and takes it.
    async fn take(&self, model: u64, worker: u32) -> Result<(), LaunchError> {
        let _turn = match self.waits(model) {
            true => Some(self.turn.lock().await),
            false => None,
        };
        loop {
            let changed = self.changed.notified();
            let pids = self.table().unmeasured();
            for (pid, bytes) in measured_memory(pids).await {
                self.table().set_measured(pid, bytes);
            }
            let Some(leaving) = self.try_take(model, worker)? else { return Ok(()) };
            for (id, control) in leaving {
                self.ask_to_leave(id, &control).await;
            }
            // Somebody may have become idle, which nobody tells.
            drop(timeout(LOOK_EVERY, changed).await);
        }
    }

    fn waits(&self, model: u64) -> bool {
        self.table().models.get(&model).is_some_and(|model| model.terms.on_demand)
    }

    /// Takes the memory for a worker, or says who is to leave first; nobody where others are on their way.
    fn try_take(&self, id: u64, worker: u32) -> Result<Option<LeavingModels>, LaunchError> {
        let (now, mut table) = (self.now(), self.table());
        table.count_requests(now);
        let Some(model) = table.models.get(&id) else { return Ok(None) };
        let plan = table.plan(model, self.limit);
        if model.terms.on_demand {
            if model.is_forgotten() {
                return Err(LaunchError::Unwanted);
            }
            let (ids, held) = table.held(now);
            match plan.step(&held) {
                LoadStep::Begin => {}
                LoadStep::Leave(places) => return Ok(Some(table.controls(&ids, &places))),
                LoadStep::Wait => return Ok(Some(Vec::new())),
                LoadStep::Never { stay } => return Err(self.no_room(plan.needed, stay)),
            }
        }
        if let Some(model) = table.models.get_mut(&id) {
            model.workers.insert(worker, HeldWorker { bytes: plan.needed, pid: None });
            model.leaving = false;
        }
        Ok(None)
    }

    fn no_room(&self, needed: u64, stay: u64) -> LaunchError {
        LaunchError::NoRoom { needed, stay, limit: self.limit }
    }

    /// Asks a model to end its workers, unless somebody has just asked for it.
    async fn ask_to_leave(&self, id: u64, control: &mpsc::Sender<ControlMessage>) {
        let (reply, answer) = oneshot::channel();
        let asked = control.send(ControlMessage::Leave { reply }).await;
        if asked.is_ok() && answer.await == Ok(true) {
            let mut table = self.table();
            // It may have left already.
            let model = table.models.get_mut(&id).filter(|model| !model.workers.is_empty());
            model.into_iter().for_each(|model| model.leaving = true);
        }
    }

    /// A worker has loaded its model. One that holds more than there can be for it does not stay; for one that
    /// holds more than was thought others leave.
    async fn loaded(
        self: &Arc<Self>,
        id: u64,
        worker: u32,
        pid: Option<u32>,
        took: Duration,
    ) -> Result<(), LaunchError> {
        let bytes =
            measured_memory(Vec::from_iter(pid)).await.first().map_or(0, |(_, bytes)| *bytes);
        let (now, mut table) = (self.now(), self.table());
        let Some(model) = table.models.get_mut(&id) else { return Ok(()) };
        let BudgetTerms { files, python, on_demand, .. } = model.terms;
        model.workers.insert(worker, HeldWorker { bytes, pid: Some(pid.unwrap_or_default()) });
        (model.size, model.load, model.loaded) = (Some(bytes), took, now);
        let base = &mut table.base[usize::from(python)];
        *base = (*base).max(Some(bytes.saturating_sub(files)));
        let (ids, held) = table.held(now);
        let others = ids.iter().zip(&held).filter(|(other, _)| **other != id);
        let stay =
            others.filter(|(_, it)| it.held == MemoryState::Stays).map(|(_, it)| it.bytes).sum();
        let leaving = table.controls(&ids, &MemoryPlan::excess(self.limit, &held));
        drop(table);
        self.changed.notify_waiters();
        if on_demand && bytes.saturating_add(stay) > self.limit {
            return Err(self.no_room(bytes, stay));
        }
        if !leaving.is_empty() {
            let budget = Arc::clone(self);
            tokio::spawn(async move {
                for (id, control) in leaving {
                    budget.ask_to_leave(id, &control).await;
                }
            });
        }
        Ok(())
    }

    /// A worker has ended.
    fn release(&self, model: u64, worker: u32) {
        if let Some(model) = self.table().models.get_mut(&model) {
            model.workers.remove(&worker);
            model.leaving &= !model.workers.is_empty();
        }
        self.changed.notify_waiters();
    }
}

/// Starts the workers of a model when there is memory for them.
struct BudgetedLauncher {
    launcher: Arc<dyn Launcher>,
    budget: Arc<MemoryBudget>,
    model: u64,
    tell_every: Duration,
}

/// Waits for memory, and says so now and then: that is no time that a worker takes to start.
async fn wait_for_memory(
    taken: impl Future<Output = Result<(), LaunchError>>,
    tell_every: Duration,
    progress: &ProgressSender,
) -> Result<(), LaunchError> {
    let mut taken = std::pin::pin!(taken);
    loop {
        tokio::select! {
            biased;
            taken = &mut taken => return taken,
            () = sleep(tell_every) => {
                let what = "waiting for memory".to_owned();
                progress.send(LoadProgress { done: 0, of: 0, what }).await;
            }
        }
    }
}

impl Launcher for BudgetedLauncher {
    fn launch(
        &self,
        worker: u32,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let (launcher, model, tell_every) =
            (Arc::clone(&self.launcher), self.model, self.tell_every);
        let taken = TakenMemory { budget: Arc::clone(&self.budget), model, worker, loads: true };
        Box::pin(async move {
            wait_for_memory(taken.budget.take(model, worker), tell_every, &progress).await?;
            let began = Instant::now();
            let loaded = launcher.launch(worker, progress).await?;
            let took = began.elapsed();
            if let Err(error) = taken.budget.loaded(model, worker, loaded.pid(), took).await {
                loaded.end(true).await;
                return Err(error);
            }
            taken.keep();
            Ok(loaded)
        })
    }

    fn set_worker_count(&self, workers: u32) {
        self.launcher.set_worker_count(workers);
    }

    fn gpu(&self, worker: u32) -> Option<u32> {
        self.launcher.gpu(worker)
    }

    fn forget(&self, worker: u32) {
        self.budget.release(self.model, worker);
        self.launcher.forget(worker);
    }
}

impl Drop for BudgetedLauncher {
    fn drop(&mut self) {
        self.budget.table().models.remove(&self.model);
        self.budget.changed.notify_waiters();
    }
}

/// Memory for a worker that loads; given back unless it has loaded.
struct TakenMemory {
    budget: Arc<MemoryBudget>,
    model: u64,
    worker: u32,
    loads: bool,
}

impl TakenMemory {
    fn keep(mut self) {
        self.loads = false;
    }
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        if self.loads {
            self.budget.release(self.model, self.worker);
        }
    }
}
