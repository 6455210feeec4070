//! Which GPU does a worker go to?
//!
//! Every GPU is asked by [`MemoryPlan::step`] what a load would mean there, and the best answer is taken: most
//! memory that is free, else what is on its way out, else the idle models that are missed least. Pure, as the plan is.

use std::cmp::Ordering;

use crate::memory_plan::{LoadStep, MemoryPlan, MemoryState, ModelMemory};

/// A GPU as a load finds it.
#[derive(Clone, Debug)]
pub struct GpuRoom {
    /// Its number.
    pub id: u32,
    /// Bytes that may be held there; none where nobody knows how many it has.
    pub limit: Option<u64>,
    /// What every model holds there, in the order of the list of all models, and behind them what others hold.
    pub models: Vec<ModelMemory>,
    /// Workers that are there.
    pub workers: usize,
}

impl GpuRoom {
    /// Bytes that may still be held.
    #[must_use]
    pub fn free(&self) -> u64 {
        let held = self.models.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
        self.limit.unwrap_or(0).saturating_sub(held)
    }

    fn step(&self, plan: &MemoryPlan) -> LoadStep {
        match self.limit {
            Some(limit) => MemoryPlan { limit, ..*plan }.step(&self.models),
            None => LoadStep::Begin,
        }
    }

    /// What those save that would leave: seconds of waiting per second.
    fn lost(&self, places: &[usize]) -> f64 {
        let saved = |place: &usize| match self.models[*place] {
            ModelMemory { held: MemoryState::Idle { worth }, bytes, .. } => worth * bytes as f64,
            _ => 0.0,
        };
        places.iter().map(saved).sum()
    }

    /// The better of two where a load means as much in both: more free, fewer workers, the first.
    fn compare(&self, other: &Self) -> Ordering {
        let (one, two) = ((self.workers, self.id), (other.workers, other.id));
        other.free().cmp(&self.free()).then(one.cmp(&two))
    }
}

/// The GPU of a worker, and what is to be done before it goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuChoice {
    /// Its number.
    pub id: u32,
    /// What is to be done about the load there.
    pub step: LoadStep,
}

impl GpuChoice {
    /// The GPU for a load that waits for memory; the plan's limit is that of each GPU. None where there is no GPU.
    #[must_use]
    pub fn best(plan: &MemoryPlan, gpus: &[GpuRoom]) -> Option<Self> {
        let ranked = gpus.iter().map(|gpu| {
            let step = gpu.step(plan);
            let (rank, lost) = match &step {
                LoadStep::Begin => (0, 0.0),
                LoadStep::Wait { coming: true } => (1, 0.0),
                LoadStep::Leave(places) => (2, gpu.lost(places)),
                LoadStep::Wait { coming: false } => (3, 0.0),
                LoadStep::Never { .. } => (4, 0.0),
            };
            (rank, lost, gpu, step)
        });
        let best = ranked.min_by(|one, two| {
            one.0.cmp(&two.0).then(one.1.total_cmp(&two.1)).then_with(|| one.2.compare(two.2))
        });
        best.map(|(.., gpu, step)| Self { id: gpu.id, step })
    }

    /// The GPU for a load that begins now, whether it fits or not.
    #[must_use]
    pub fn at_once(plan: &MemoryPlan, gpus: &[GpuRoom]) -> Option<u32> {
        let full = |gpu: &GpuRoom| gpu.step(plan) != LoadStep::Begin;
        let best = gpus.iter().min_by(|one, two| full(one).cmp(&full(two)).then(one.compare(two)));
        best.map(|gpu| gpu.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u64, held: MemoryState) -> ModelMemory {
        ModelMemory { bytes, own: bytes, held }
    }

    fn idle(bytes: u64, worth: f64) -> ModelMemory {
        held(bytes, MemoryState::Idle { worth })
    }

    fn gpu(id: u32, models: &[ModelMemory]) -> GpuRoom {
        GpuRoom { id, limit: Some(10), models: models.to_vec(), workers: models.len() }
    }

    fn plan(needed: u64) -> MemoryPlan {
        MemoryPlan { limit: 0, needed, measured: true, least: needed }
    }

    fn best(needed: u64, gpus: &[GpuRoom]) -> (u32, LoadStep) {
        let choice = GpuChoice::best(&plan(needed), gpus).expect("there are GPUs");
        (choice.id, choice.step)
    }

    #[test]
    fn a_worker_goes_where_most_memory_is_free() {
        let busy = |bytes| held(bytes, MemoryState::Busy);
        let gpus = [gpu(0, &[busy(4)]), gpu(1, &[busy(1)]), gpu(2, &[busy(2)])];
        assert_eq!(best(3, &gpus), (1, LoadStep::Begin));
        assert_eq!(best(9, &gpus), (1, LoadStep::Begin), "it fits exactly");
        assert_eq!(best(10, &gpus), (1, LoadStep::Wait { coming: false }));
        assert_eq!(best(11, &gpus), (1, LoadStep::Never { stay: 0 }));
        assert_eq!(GpuChoice::best(&plan(1), &[]), None);
    }

    #[test]
    fn of_equals_the_one_with_fewer_workers_and_then_the_first() {
        let gpus = [gpu(0, &[idle(0, 1.0)]), gpu(1, &[]), gpu(2, &[])];
        assert_eq!(best(1, &gpus), (1, LoadStep::Begin));
        let unknown = |id, workers| GpuRoom { limit: None, workers, ..gpu(id, &[]) };
        assert_eq!(best(99, &[unknown(0, 2), unknown(1, 1)]), (1, LoadStep::Begin));
        let known = [unknown(0, 0), gpu(1, &[idle(9, 1.0)])];
        assert_eq!(best(1, &known), (1, LoadStep::Begin), "what is known to be free goes first");
        assert_eq!(best(2, &known), (0, LoadStep::Begin));
    }

    #[test]
    fn the_models_that_are_missed_least_leave() {
        let gpus = [gpu(0, &[idle(8, 2.0)]), gpu(1, &[idle(1, 0.0), idle(9, 1.0)])];
        assert_eq!(best(5, &gpus), (1, LoadStep::Leave(vec![1])));
        let leaves = gpu(2, &[held(9, MemoryState::Leaving)]);
        let gpus = [gpus[0].clone(), gpus[1].clone(), leaves];
        assert_eq!(best(5, &gpus), (2, LoadStep::Wait { coming: true }), "nobody else leaves");
    }

    #[test]
    fn what_does_not_wait_goes_where_most_is_free_also_where_it_does_not_fit() {
        let gpus = [gpu(0, &[idle(8, 2.0)]), gpu(1, &[idle(7, 9.0)])];
        assert_eq!(GpuChoice::at_once(&plan(3), &gpus), Some(1));
        assert_eq!(GpuChoice::at_once(&plan(4), &gpus), Some(1));
        assert_eq!(GpuChoice::at_once(&plan(4), &[]), None);
    }
}
