//! What every model holds, and what the loads that wait for memory need.
//!
//! The table of [`MemoryBudget`](super::budget::MemoryBudget): it is told what happens, and says what that means to
//! [`MemoryPlan`]. Nothing here waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jitney_batcher::{AskedRate, FirstLoad, LoadStep, MemoryPlan, MemoryState, ModelMemory, Nanos};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::budget_model::{BudgetModel, BudgetTerms, HeldWorker, SharedPages};
use super::gpu_table::GpuTable;
use super::messages::ControlMessage;
use super::state::ModelState;
use crate::outcome::LaunchError;
use crate::process::MeasuredMemory;

/// What a process holds beside its model until one was measured: about what Python and this package take.
const BASE_GUESS: u64 = 32 << 20;
/// How long a load is taken to last until one has.
const LOAD_GUESS: Duration = Duration::from_secs(5);

/// Models that are to leave, and how they are told.
pub(super) type LeavingModels = Vec<(u64, mpsc::Sender<ControlMessage>)>;

#[derive(Debug, Default)]
pub(super) struct BudgetTable {
    next: u64,
    pub(super) models: BTreeMap<u64, BudgetModel>,
    /// Loads that wait for memory, the first one first.
    waiting: Vec<WaitingLoad>,
    /// The most that a process without Python, and one with it, held beside its model's files.
    base: [Option<u64>; 2],
    /// What processes of one kind share.
    shared: SharedPages,
    /// What processes that have ended shared with others, which hold it alone now: not measured since.
    left_behind: u64,
    /// When all were measured; none if a process has come or gone since.
    measured: Option<Instant>,
    /// The GPUs, where workers are placed by their memory.
    pub(super) gpus: Option<GpuTable>,
}

/// A load that waits for memory.
#[derive(Debug)]
struct WaitingLoad {
    model: u64,
    worker: u32,
    since: Nanos,
    granted: oneshot::Sender<()>,
}

/// What is to be done about a load.
pub(super) struct PlannedLoad {
    pub(super) step: LoadStep,
    /// What the worker holds at most while it loads, with all that it shares.
    all: u64,
    /// The GPU that it goes to.
    gpu: Option<u32>,
}

/// A worker that has loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadedWorker {
    pub(super) pid: Option<u32>,
    pub(super) memory: MeasuredMemory,
    /// What it says that it holds on its GPU.
    pub(super) gpu_memory: u64,
    pub(super) took: Duration,
}

impl BudgetTable {
    pub(super) fn new(gpus: Option<GpuTable>) -> Self {
        Self { gpus, ..Self::default() }
    }

    /// Lets a model take part; its number.
    pub(super) fn enter(
        &mut self,
        now: Nanos,
        (terms, gpus): (BudgetTerms, Vec<u32>),
        published: &Arc<ModelState>,
        control: &mpsc::Sender<ControlMessage>,
    ) -> u64 {
        let model = self.next;
        self.next += 1;
        self.gpus.iter_mut().for_each(|table| table.enter(model, gpus.clone(), terms.files));
        let entry = BudgetModel {
            terms,
            published: Arc::clone(published),
            control: control.clone(),
            seen: 0,
            asked: AskedRate::new(now),
            workers: BTreeMap::new(),
            size: None,
            load: LOAD_GUESS,
            loaded: 0,
            leaving: false,
        };
        self.models.insert(model, entry);
        model
    }

    /// A load waits for memory from now on; resolves if it is let pass those before it.
    pub(super) fn wait(&mut self, now: Nanos, model: u64, worker: u32) -> oneshot::Receiver<()> {
        let (granted, told) = oneshot::channel();
        self.waiting.push(WaitingLoad { model, worker, since: now, granted });
        told
    }

    /// A worker begins to load, as planned.
    pub(super) fn begin(&mut self, now: Nanos, (id, worker): (u64, u32), plan: &PlannedLoad) {
        self.waiting.retain(|it| (it.model, it.worker) != (id, worker));
        if let (Some(gpus), Some(gpu)) = (&mut self.gpus, plan.gpu) {
            gpus.begin(now, (id, worker), gpu);
        }
        let all = plan.all;
        if let Some(model) = self.models.get_mut(&id) {
            let memory = MeasuredMemory { share: all, own: all, peak: all, shared: 0 };
            model.workers.insert(worker, HeldWorker { memory, pid: None, loads: true });
            model.leaving = false;
        }
    }

    /// A worker has loaded, and holds so much.
    pub(super) fn loaded(&mut self, now: Nanos, (id, worker): (u64, u32), loaded: LoadedWorker) {
        let LoadedWorker { pid, memory, gpu_memory, took } = loaded;
        self.gpus.iter_mut().for_each(|gpus| gpus.set_loaded((id, worker), gpu_memory));
        let Some(model) = self.models.get_mut(&id) else { return };
        let BudgetTerms { files, python, .. } = model.terms;
        model.workers.insert(worker, HeldWorker { memory, pid, loads: false });
        (model.size, model.load, model.loaded) = (Some(memory), took, now);
        // Others share with it now what was theirs alone.
        self.measured = None;
        let base = &mut self.base[usize::from(python)];
        *base = (*base).max(Some(memory.peak.saturating_sub(files)));
    }

    /// A worker has ended, or nobody waits for its load any more.
    pub(super) fn release(&mut self, id: u64, worker: u32) {
        self.waiting.retain(|it| (it.model, it.worker) != (id, worker));
        if let Some(model) = self.models.get_mut(&id) {
            let memory = model.workers.remove(&worker).map(|it| it.memory).unwrap_or_default();
            self.left_behind += memory.share.saturating_sub(memory.own);
            self.measured = None;
            model.leaving &= !model.workers.is_empty();
        }
        self.gpus.iter_mut().for_each(|gpus| gpus.release(id, worker));
    }

    /// Begins the loads that fit now, while the first one has to wait for longer.
    pub(super) fn let_pass(&mut self, now: Nanos, limit: u64, first: (u64, u32)) {
        let Some(head) = self.first_load(now, first) else { return };
        let others = self.waiting.iter().map(|it| (it.model, it.worker));
        for (id, worker) in others.filter(|it| *it != first).collect::<Vec<_>>() {
            let waits = self.load_plan(now, first.0, limit);
            if !waits.is_ok_and(|plan| head.lets_pass(&plan.step)) {
                return;
            }
            let wanted = self.models.get(&id).is_some_and(|model| !model.is_forgotten());
            let plan = self.load_plan(now, id, limit).ok().filter(|_| wanted);
            let fits = plan.filter(|plan| plan.step == LoadStep::Begin);
            let place = self.waiting.iter().position(|it| (it.model, it.worker) == (id, worker));
            if let (Some(plan), Some(place)) = (fits, place)
                && self.waiting.remove(place).granted.send(()).is_ok()
            {
                self.begin(now, (id, worker), &plan);
            }
        }
    }

    fn first_load(&self, now: Nanos, (id, worker): (u64, u32)) -> Option<FirstLoad> {
        let waiting = self.waiting.iter().find(|it| (it.model, it.worker) == (id, worker))?;
        let model = self.models.get(&id)?;
        let (waited, load) = (now - waiting.since, model.load.as_nanos() as Nanos);
        Some(FirstLoad { waited, load })
    }

    /// What is to be done about a load: memory of the machine and of a GPU are wanted together. Nothing about one that
    /// is not on demand: it begins, on the GPU with most room.
    pub(super) fn load_plan(
        &self,
        now: Nanos,
        id: u64,
        limit: u64,
    ) -> Result<PlannedLoad, LaunchError> {
        let Some(model) = self.models.get(&id) else { return Err(LaunchError::Unwanted) };
        let plan = self.plan(model, limit);
        let (ids, held) = self.counted(now);
        let all = self.most(model);
        if !model.terms.on_demand {
            let gpu = self.gpus.as_ref().and_then(|gpus| gpus.at_once(now, id, (&ids, &held)));
            return Ok(PlannedLoad { step: LoadStep::Begin, all, gpu });
        }
        let on_gpu = self.gpus.as_ref().and_then(|gpus| gpus.best(now, id, (&ids, &held)));
        let none = |plan: MemoryPlan, stay, gpu| LaunchError::NoRoom {
            needed: plan.needed,
            stay,
            limit: plan.limit,
            gpu,
        };
        match (plan.step(&held), on_gpu) {
            (LoadStep::Never { stay }, _) => Err(none(plan, stay, None)),
            (step, None) => Ok(PlannedLoad { step, all, gpu: None }),
            (step, Some((plan, choice))) => match choice.step {
                LoadStep::Never { stay } => Err(none(plan, stay, Some(choice.id))),
                there @ (LoadStep::Begin | LoadStep::Leave(_) | LoadStep::Wait { .. }) => {
                    Ok(PlannedLoad { step: step.and(there), all, gpu: Some(choice.id) })
                }
            },
        }
    }

    /// What is held by models that stay, beside this one.
    pub(super) fn staying(&self, now: Nanos, id: u64) -> u64 {
        let (ids, held) = self.held(now);
        let others = ids.iter().zip(&held).filter(|(other, _)| **other != id);
        others.filter(|(_, it)| it.held == MemoryState::Stays).map(|(_, it)| it.bytes).sum()
    }

    /// Whether a worker holds more on its GPU than there can be for it.
    pub(super) fn beyond_gpu(&self, now: Nanos, worker: (u64, u32)) -> Option<LaunchError> {
        let (ids, held) = self.held(now);
        self.gpus.as_ref()?.beyond(worker, (&ids, &held))
    }

    /// Those that leave where more is held than may be.
    pub(super) fn excess(&self, now: Nanos, limit: u64) -> LeavingModels {
        let (ids, held) = self.held(now);
        let mut places = MemoryPlan::excess(limit, &held);
        places.extend(self.gpus.iter().flat_map(|gpus| gpus.excess((&ids, &held))));
        places.sort_unstable();
        places.dedup();
        self.controls(&ids, &places)
    }

    /// Counts the requests of all models.
    pub(super) fn count_requests(&mut self, now: Nanos) {
        for model in self.models.values_mut() {
            let requests = model.published.requests.load(Relaxed);
            model.asked.add(now, requests - model.seen);
            model.seen = requests;
        }
    }

    /// The processes that are to be measured, where that was long ago, and what will be found with them.
    pub(super) fn unmeasured(&mut self, every: Duration) -> (Vec<u32>, u64) {
        let now = Instant::now();
        if self.measured.is_some_and(|at| now - at < every) {
            return (Vec::new(), 0);
        }
        self.measured = Some(now);
        let workers = self.models.values().flat_map(|model| model.workers.values());
        (workers.filter_map(|worker| worker.pid).collect(), self.left_behind)
    }

    /// Processes hold so much, and among it so many bytes that others have left behind.
    pub(super) fn set_measured(&mut self, measured: &[(u32, MeasuredMemory)], left_behind: u64) {
        self.left_behind = self.left_behind.saturating_sub(left_behind);
        for model in self.models.values_mut() {
            for worker in model.workers.values_mut() {
                let found = measured.iter().find(|(pid, _)| worker.pid == Some(*pid));
                if let Some((_, memory)) = found {
                    worker.memory = *memory;
                    model.size = model.size.map(|size| size.max(*memory));
                }
            }
        }
        let there = self.models.values().flat_map(|model| {
            let BudgetTerms { python, files, .. } = model.terms;
            let loaded = model.workers.values().filter(|it| it.pid.is_some());
            // Weights that are mapped are shared by the workers of their model alone.
            loaded.map(move |it| (python, it.memory.shared.saturating_sub(files)))
        });
        self.shared.learn(there);
    }

    /// What a worker of a model holds at most: as measured, else by its files and by what others hold beside theirs.
    /// It may need more while it loads than later.
    fn most(&self, model: &BudgetModel) -> u64 {
        let BudgetTerms { files, python, .. } = model.terms;
        let guess = || files / 10 * 13 + self.base[usize::from(python)].unwrap_or(BASE_GUESS);
        model.size.map_or_else(guess, |size| size.peak)
    }

    /// What a worker of a model will take.
    pub(super) fn plan(&self, model: &BudgetModel, limit: u64) -> MemoryPlan {
        let BudgetTerms { files, python, .. } = model.terms;
        let most = self.most(model);
        match model.size {
            Some(MeasuredMemory { share: least, .. }) => {
                let there = self.kinds(|worker| worker.loads || worker.pid.is_some());
                let needed = self.shared.count(there).bytes(python, most);
                MemoryPlan { limit, needed, measured: true, least }
            }
            None => {
                let least = files / 10 * 13 + BASE_GUESS;
                MemoryPlan { limit, needed: most, measured: false, least }
            }
        }
    }

    /// The kinds of processes of which there are such: without Python, and with it.
    fn kinds(&self, is_such: impl Fn(&HeldWorker) -> bool) -> [bool; 2] {
        let has = |python: bool| {
            let of_kind = self.models.values().filter(|model| model.terms.python == python);
            of_kind.flat_map(|model| model.workers.values()).any(&is_such)
        };
        [has(false), has(true)]
    }

    /// How many more workers of a model there is memory for; those of a model that is loaded on demand wait for it.
    pub(super) fn room(&self, now: Nanos, id: u64, limit: u64) -> u32 {
        let measured = |model: &&BudgetModel| !model.terms.on_demand && model.size.is_some();
        let Some(model) = self.models.get(&id).filter(measured) else { return u32::MAX };
        let held: u64 = self.models.values().map(BudgetModel::bytes).sum();
        let each = self.plan(model, limit).needed.max(1);
        let room = u32::try_from(limit.saturating_sub(held) / each).unwrap_or(u32::MAX);
        let Some(gpus) = self.gpus.as_ref().filter(|gpus| gpus.has(id)) else { return room };
        let (ids, held) = self.held(now);
        room.min(gpus.room(now, id, (&ids, &held)))
    }

    /// What so many more workers like those of a model need, and what is free, where they do not fit. Models that are
    /// loaded on demand leave for others, and their own loads wait.
    pub(super) fn missing_beside(
        &self,
        of: &Arc<ModelState>,
        workers: u32,
        limit: u64,
    ) -> Option<(u64, u64)> {
        let model = self.models.values().find(|it| Arc::ptr_eq(&it.published, of))?;
        if model.terms.on_demand {
            return None;
        }
        let stay = self.models.values().filter(|it| !it.terms.on_demand || it.terms.keep);
        let free = limit.saturating_sub(stay.map(BudgetModel::bytes).sum());
        let needed = self.plan(model, limit).needed.saturating_mul(workers.into());
        (needed > free).then_some((needed, free))
    }

    /// All models that hold memory, by their numbers.
    pub(super) fn held(&self, now: Nanos) -> (Vec<u64>, Vec<ModelMemory>) {
        let there = self.models.iter().filter(|(_, model)| !model.workers.is_empty());
        let mut loads = self.shared.count(self.kinds(|worker| worker.pid.is_some()));
        let mut held = |model: &BudgetModel| {
            let (bytes, own) = model.counted(&mut loads);
            ModelMemory { bytes, own, held: model.held(now) }
        };
        there.map(|(id, model)| (*id, held(model))).unzip()
    }

    /// The same, and behind them what is held and not measured yet.
    pub(super) fn counted(&self, now: Nanos) -> (Vec<u64>, Vec<ModelMemory>) {
        let (ids, mut held) = self.held(now);
        let state = MemoryState::Busy;
        held.push(ModelMemory { bytes: self.left_behind, own: 0, held: state });
        (ids, held)
    }

    /// Where these models are told to leave.
    pub(super) fn controls(&self, ids: &[u64], places: &[usize]) -> LeavingModels {
        let ids = places.iter().map(|place| ids[*place]);
        ids.filter_map(|id| Some((id, self.models.get(&id)?.control.clone()))).collect()
    }
}
