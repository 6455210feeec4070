//! Which worker holds how much of which GPU, and where the next one goes.
//!
//! The driver tells what is held there by anybody; what of that is a model's shows when it has loaded. Nothing here
//! asks the driver or waits: [`MemoryBudget`](super::budget::MemoryBudget) does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jitney_batcher::{GpuChoice, GpuRoom, MemoryPlan, MemoryState, ModelMemory, Nanos};
use jitney_settings::DeviceMemory;
use tokio::time::Instant;

use super::gpu_record::{GpuReading, GpuRecord};
use crate::outcome::LaunchError;

/// What a process holds on its GPU beside its model until one was measured: about what a CUDA context takes.
const BASE_GUESS: u64 = 512 << 20;

/// How workers are placed by the memory of GPUs.
#[derive(Clone)]
pub struct GpuMemoryConfig {
    /// What may be held of each.
    pub limit: DeviceMemory,
    /// Asks the driver, and blocks meanwhile. Empty where it does not answer.
    pub list: Arc<dyn Fn() -> Vec<GpuReading> + Send + Sync>,
}

impl fmt::Debug for GpuMemoryConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GpuMemoryConfig").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// All GPUs, and those who hold memory there.
#[derive(Debug)]
pub(super) struct GpuTable {
    limit: DeviceMemory,
    gpus: BTreeMap<u32, GpuRecord>,
    models: BTreeMap<u64, GpuModel>,
    held: BTreeMap<(u64, u32), HeldGpu>,
    /// The most that a process held beside what it said.
    base: Option<u64>,
    /// When the driver was asked; none if a worker has come or gone since.
    pub(super) read: Option<Instant>,
}

/// A model whose workers get a GPU each.
#[derive(Debug)]
struct GpuModel {
    /// One of these.
    ids: Vec<u32>,
    /// Bytes of its files.
    files: u64,
    /// What its last worker held.
    size: Option<u64>,
}

/// What a worker holds, or will, on its GPU.
#[derive(Clone, Copy, Debug)]
struct HeldGpu {
    id: u32,
    bytes: u64,
    loads: bool,
    /// What everybody held there when its load began; none where another load went on there meanwhile.
    before: Option<u64>,
    /// Its model was told that the GPU is gone.
    told: bool,
}

impl GpuTable {
    pub(super) fn new(limit: DeviceMemory) -> Self {
        let (gpus, models, held) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { limit, gpus, models, held, base: None, read: None }
    }

    /// A model takes part whose workers may have these GPUs, one each.
    pub(super) fn enter(&mut self, model: u64, ids: Vec<u32>, files: u64) {
        self.models.insert(model, GpuModel { ids, files, size: None });
    }

    /// A model is gone.
    pub(super) fn forget(&mut self, model: u64) {
        self.models.remove(&model);
        self.held.retain(|(other, _), _| *other != model);
    }

    /// The driver lists these. Where it lists none it does not answer, which says nothing about a GPU.
    pub(super) fn set_read(&mut self, readings: &[GpuReading]) {
        self.read = Some(Instant::now());
        for reading in readings {
            self.gpus.entry(reading.id).or_default();
        }
        for (id, gpu) in self.gpus.iter_mut().filter(|_| !readings.is_empty()) {
            gpu.set_read(*id, readings.iter().find(|reading| reading.id == *id));
        }
    }

    /// Where a load goes that waits for memory, and what is to be done about it, beside these models.
    pub(super) fn best(
        &self,
        now: Nanos,
        model: u64,
        others: (&[u64], &[ModelMemory]),
    ) -> Option<(MemoryPlan, GpuChoice)> {
        let plan = self.plan(model)?;
        let choice = GpuChoice::best(&plan, &self.rooms(&self.usable(now, model), others))?;
        Some((MemoryPlan { limit: self.limit_of(choice.id).unwrap_or(0), ..plan }, choice))
    }

    /// Where a load goes that begins now.
    pub(super) fn at_once(
        &self,
        now: Nanos,
        model: u64,
        others: (&[u64], &[ModelMemory]),
    ) -> Option<u32> {
        let rooms = self.rooms(&self.usable(now, model), others);
        GpuChoice::at_once(&self.plan(model)?, &rooms)
    }

    /// How many more workers of a model there is memory for.
    pub(super) fn room(&self, now: Nanos, model: u64, others: (&[u64], &[ModelMemory])) -> u32 {
        let each = self.models.get(&model).and_then(|model| model.size).filter(|size| *size > 0);
        let rooms = self.rooms(&self.usable(now, model), others);
        match each.filter(|_| rooms.iter().all(|gpu| gpu.limit.is_some())) {
            Some(each) => rooms.iter().map(|gpu| (gpu.free() / each) as u32).sum(),
            None => u32::MAX,
        }
    }

    /// Those of these models that leave where more is held than may be.
    pub(super) fn excess(&self, others: (&[u64], &[ModelMemory])) -> Vec<usize> {
        let ids: Vec<u32> = self.gpus.keys().copied().collect();
        let rooms = self.rooms(&ids, others);
        let excess = |gpu: &GpuRoom| gpu.limit.map(|limit| MemoryPlan::excess(limit, &gpu.models));
        rooms.iter().filter_map(excess).flatten().collect()
    }

    /// Whether a worker holds more than there can be for it, beside those of these models that stay.
    pub(super) fn beyond(
        &self,
        worker: (u64, u32),
        others: (&[u64], &[ModelMemory]),
    ) -> Option<LaunchError> {
        let HeldGpu { id, bytes: needed, .. } = *self.held.get(&worker)?;
        let (limit, room) = (self.limit_of(id)?, self.rooms(&[id], others).pop()?);
        let own = others.0.iter().position(|model| *model == worker.0);
        let stays = room.models.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        let stays = stays.filter(|(_, it)| it.held == MemoryState::Stays);
        let stay: u64 = stays.map(|(_, it)| it.bytes).sum();
        let error = LaunchError::NoRoom { needed, stay, limit, gpu: Some(id) };
        (needed.saturating_add(stay) > limit).then_some(error)
    }

    /// Workers whose GPU is gone, each told once.
    pub(super) fn lost(&mut self) -> Vec<(u64, u32, u32)> {
        let gone = |id: u32| self.gpus.get(&id).is_some_and(|gpu| gpu.gone);
        let lost = self.held.iter_mut().filter(|(_, held)| !held.told && gone(held.id));
        lost.map(|((model, worker), held)| {
            held.told = true;
            (*model, *worker, held.id)
        })
        .collect()
    }

    /// What a load needs on a GPU; its limit is that of each.
    fn plan(&self, model: u64) -> Option<MemoryPlan> {
        let GpuModel { files, size, .. } = self.models.get(&model)?;
        let guess = files / 10 * 13 + self.base.unwrap_or(BASE_GUESS);
        Some(MemoryPlan {
            limit: 0,
            needed: size.unwrap_or(guess),
            measured: size.is_some(),
            // It may use no GPU at all.
            least: size.unwrap_or(0),
        })
    }

    /// The GPUs that a worker may go to. Where all are unsound or it has failed on the others, those that are left;
    /// where none is, all: a load there says what is wrong.
    fn usable(&self, now: Nanos, model: u64) -> Vec<u32> {
        let ids = self.models.get(&model).map_or(&[][..], |model| &model.ids);
        let rank = |id: &u32| match self.gpus.get(id) {
            Some(gpu) if gpu.gone => 3,
            Some(gpu) if !gpu.is_sound(now) => 2,
            Some(gpu) if gpu.has_failed(model) => 1,
            Some(_) | None => 0,
        };
        let least = ids.iter().map(rank).min();
        ids.iter().copied().filter(|id| Some(rank(id)) == least).collect()
    }

    /// These GPUs with what models hold there, in their order, and what others hold.
    fn rooms(&self, gpus: &[u32], (ids, models): (&[u64], &[ModelMemory])) -> Vec<GpuRoom> {
        let room = |id: u32| {
            let there = || self.held.iter().filter(move |(_, held)| held.id == id);
            let of = |(model, memory): (&u64, &ModelMemory)| {
                let bytes = there().filter(|((other, _), _)| other == model);
                let bytes = bytes.map(|(_, held)| held.bytes).sum();
                // One that holds nothing here need not leave.
                let held = if bytes == 0 { MemoryState::Busy } else { memory.held };
                ModelMemory { bytes, own: bytes, held }
            };
            let mut models: Vec<_> = ids.iter().zip(models).map(of).collect();
            // Some of what is held by nobody known may be theirs who load.
            let loads = there().any(|(_, held)| held.loads);
            let held = if loads { MemoryState::Busy } else { MemoryState::Stays };
            let ours: u64 = there().filter(|(_, it)| !it.loads).map(|(_, it)| it.bytes).sum();
            models.push(ModelMemory { bytes: self.used(id).saturating_sub(ours), own: 0, held });
            GpuRoom { id, limit: self.limit_of(id), models, workers: there().count() }
        };
        gpus.iter().map(|id| room(*id)).collect()
    }

    fn used(&self, id: u32) -> u64 {
        self.gpus.get(&id).map_or(0, |gpu| gpu.used)
    }

    /// Bytes that may be held; none where the driver does not tell how many there are.
    fn limit_of(&self, id: u32) -> Option<u64> {
        self.limit.of(self.gpus.get(&id)?.total?)
    }

    /// Whether its workers get a GPU.
    pub(super) fn has(&self, model: u64) -> bool {
        self.models.get(&model).is_some_and(|model| !model.ids.is_empty())
    }

    /// The GPU of a worker.
    pub(super) fn of(&self, model: u64, worker: u32) -> Option<u32> {
        self.held.get(&(model, worker)).map(|held| held.id)
    }

    /// A worker begins to load on a GPU. One that comes again had ended by itself.
    pub(super) fn begin(&mut self, now: Nanos, (model, worker): (u64, u32), id: u32) {
        self.set_failed(now, (model, worker));
        let bytes = self.plan(model).map_or(0, |plan| plan.needed);
        let mut before = Some(self.used(id));
        // What is found to be held later is not of one of them alone.
        for other in self.held.values_mut().filter(|it| it.loads && it.id == id) {
            (other.before, before) = (None, None);
        }
        let held = HeldGpu { id, bytes, loads: true, before, told: false };
        self.held.insert((model, worker), held);
    }

    /// A worker has loaded. It holds by how much more is held on its GPU than before, and no less than it says. Where
    /// others loaded there at the same time, what it says and the most that others held beside that.
    pub(super) fn set_loaded(&mut self, (model, worker): (u64, u32), said: u64) {
        let Some(mut held) = self.held.get(&(model, worker)).copied() else { return };
        let grown = held.before.map(|before| self.used(held.id).saturating_sub(before));
        if let Some(grown) = grown.filter(|_| said > 0) {
            self.base = self.base.max(Some(grown.saturating_sub(said)));
        }
        let beside = self.base.filter(|_| said > 0).unwrap_or(0);
        held.bytes = grown.map_or(said + beside, |grown| grown.max(said));
        (held.loads, held.before) = (false, None);
        self.held.insert((model, worker), held);
        self.gpus.entry(held.id).or_default().set_loaded();
        self.models.entry(model).and_modify(|model| model.size = Some(held.bytes));
    }

    /// A worker that has one did not load, or ended by itself, on its GPU.
    pub(super) fn set_failed(&mut self, now: Nanos, (model, worker): (u64, u32)) {
        let Some(held) = self.held.remove(&(model, worker)) else { return };
        let others = self.held.values().any(|it| it.id == held.id && !it.loads);
        let gpu = self.gpus.entry(held.id).or_default();
        if let Some(said) = gpu.set_failed(now, model, others) {
            tracing::warn!(gpu = held.id, "GPU {} {said}", held.id);
        }
        self.read = None;
    }

    /// A worker has ended, or nobody waits for its load any more.
    pub(super) fn release(&mut self, model: u64, worker: u32) {
        self.held.remove(&(model, worker));
        self.read = None;
    }
}

#[cfg(test)]
mod tests {
    use jitney_batcher::LoadStep;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn listed(used: &[(u32, u64)]) -> Vec<GpuReading> {
        let total = Some(20 * GIB);
        used.iter().map(|(id, used)| GpuReading { id: *id, used: used * GIB, total }).collect()
    }

    fn table(models: u64) -> GpuTable {
        let mut table = GpuTable::new(DeviceMemory::Share(0.5));
        (1..=models).for_each(|model| table.enter(model, vec![0, 1], 0));
        table.set_read(&listed(&[(0, 0), (1, 0)]));
        table
    }

    const BUSY: ModelMemory = ModelMemory { bytes: 1, own: 1, held: MemoryState::Busy };
    const ALL: (&[u64], &[ModelMemory]) = (&[1, 2, 3], &[BUSY, BUSY, BUSY]);

    /// A worker loads, after which so much is held on its GPU.
    fn load(table: &mut GpuTable, worker: (u64, u32), used: u64) -> u32 {
        let gpu = table.at_once(0, worker.0, ALL).expect("a GPU");
        table.begin(0, worker, gpu);
        table.set_read(&listed(&[(gpu, used), (1 - gpu, table.used(1 - gpu) / GIB)]));
        table.set_loaded(worker, GIB);
        gpu
    }

    #[test]
    fn a_worker_goes_to_the_gpu_with_most_free_memory_and_holds_what_its_load_took() {
        let mut table = table(3);
        assert_eq!(load(&mut table, (1, 1), 4), 0);
        assert_eq!(load(&mut table, (2, 1), 2), 1);
        assert_eq!(load(&mut table, (3, 1), 5), 1, "8 GiB are free there, and 6 on the other");
        assert_eq!(
            [1, 2, 3].map(|model| table.models[&model].size),
            [4, 2, 3].map(|it| Some(it * GIB))
        );
        assert_eq!((table.base, table.room(0, 3, ALL)), (Some(3 * GIB), 2 + 1));
    }

    #[test]
    fn loads_side_by_side_are_told_apart_by_what_workers_say() {
        let mut table = table(2);
        assert_eq!(load(&mut table, (1, 1), 3), 0);
        table.begin(0, (1, 2), 1);
        table.begin(0, (2, 1), 1);
        table.set_read(&listed(&[(0, 3), (1, 9)]));
        table.set_loaded((1, 2), 2 * GIB);
        assert_eq!(table.held[&(1, 2)].bytes, 4 * GIB, "2 GiB beside, as the first one had");
        table.set_loaded((2, 1), 0);
        assert_eq!(table.held[&(2, 1)].bytes, 0, "it uses no GPU");
    }

    #[test]
    fn idle_models_leave_and_what_others_hold_stays() {
        let mut table = table(2);
        assert_eq!(load(&mut table, (1, 1), 4), 0);
        table.models.get_mut(&2).expect("there").size = Some(8 * GIB);
        table.set_read(&listed(&[(0, 5), (1, 9)]));
        let idle = [ModelMemory { bytes: 9, own: 9, held: MemoryState::Idle { worth: 1.0 } }];
        let (plan, choice) = table.best(0, 2, (&[1], &idle)).expect("a GPU");
        assert_eq!((choice.id, choice.step), (0, LoadStep::Leave(vec![0])));
        assert_eq!((plan.limit, plan.needed), (10 * GIB, 8 * GIB));
        table.set_read(&listed(&[(0, 8), (1, 9)]));
        let (_, choice) = table.best(0, 2, (&[1], &idle)).expect("a GPU");
        assert_eq!(choice.step, LoadStep::Never { stay: 4 * GIB });
        table.set_read(&listed(&[(0, 11), (1, 9)]));
        assert_eq!(table.excess((&[1], &idle)), [0]);
    }

    #[test]
    fn a_gpu_that_is_gone_or_fails_is_not_used_while_there_is_another() {
        let mut table = table(2);
        assert_eq!(load(&mut table, (1, 1), 2), 0);
        table.set_read(&listed(&[(1, 9)]));
        assert_eq!(table.lost(), [(1, 1, 0)]);
        assert_eq!(table.lost(), [], "it is told once");
        assert_eq!(table.at_once(0, 2, ALL), Some(1));
        table.set_read(&[]);
        assert!(!table.gpus[&1].gone, "the driver did not answer");
        table.set_read(&listed(&[(0, 0), (1, 9)]));
        assert_eq!(table.at_once(0, 2, ALL), Some(0), "it is back");
        table.begin(0, (2, 1), 0);
        table.set_failed(0, (2, 1));
        assert_eq!(table.at_once(0, 2, ALL), Some(1), "the same model goes elsewhere");
        table.begin(0, (1, 1), 0);
        assert!(!table.gpus[&0].is_sound(0), "a worker of another model had ended there, too");
        assert_eq!(table.usable(0, 3), [] as [u32; 0]);
    }
}
