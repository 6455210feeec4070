//! What the models that share this model's GPUs answer, as its batcher is told of it.
//!
//! Each model counts what it answers on a GPU where all can see it. What was counted there beside its own items is
//! what its neighbours have answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::gpu_assignment::GpuAnswers;

/// The GPUs of a model's workers, and how much of what was answered there it knows of.
#[derive(Debug, Default)]
pub(super) struct GpuNeighbours {
    /// The GPU of each worker that has one.
    workers: BTreeMap<u32, u32>,
    gpus: BTreeMap<u32, WatchedGpu>,
}

#[derive(Debug)]
struct WatchedGpu {
    items: Arc<AtomicU64>,
    /// So many of them are its own, or were told before.
    known: u64,
}

impl GpuNeighbours {
    /// A worker serves on a GPU.
    pub(super) fn join(&mut self, worker: u32, GpuAnswers { gpu, items }: GpuAnswers) {
        self.workers.insert(worker, gpu);
        let known = items.load(Ordering::Relaxed);
        self.gpus.entry(gpu).or_insert(WatchedGpu { items, known });
    }

    /// A worker is gone.
    pub(super) fn leave(&mut self, worker: u32) {
        self.workers.remove(&worker);
        self.gpus.retain(|gpu, _| self.workers.values().any(|used| used == gpu));
    }

    /// A worker has answered so many items.
    pub(super) fn answered(&mut self, worker: u32, items: u32) {
        if let Some(gpu) = self.workers.get(&worker)
            && let Some(WatchedGpu { items: all, known }) = self.gpus.get_mut(gpu)
        {
            all.fetch_add(items.into(), Ordering::Relaxed);
            *known += u64::from(items);
        }
    }

    /// How many items others have answered on its GPUs since this was asked last.
    pub(super) fn take(&mut self) -> u64 {
        let new = |gpu: &mut WatchedGpu| {
            let all = gpu.items.load(Ordering::Relaxed);
            all - std::mem::replace(&mut gpu.known, all)
        };
        self.gpus.values_mut().map(new).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(id: u32, items: &Arc<AtomicU64>) -> GpuAnswers {
        GpuAnswers { gpu: id, items: Arc::clone(items) }
    }

    #[test]
    fn a_model_hears_of_what_others_answer_on_its_gpus_from_when_it_serves_there() {
        let [first, second] = [Arc::new(AtomicU64::new(100)), Arc::default()];
        let (mut one, mut other) = (GpuNeighbours::default(), GpuNeighbours::default());
        one.join(1, gpu(0, &first));
        one.join(2, gpu(1, &second));
        one.join(3, gpu(1, &second));
        other.join(9, gpu(1, &second));
        for (worker, items) in [(1, 5), (2, 8), (3, 4)] {
            one.answered(worker, items);
        }
        assert_eq!((one.take(), other.take()), (0, 12));
        other.answered(9, 7);
        assert_eq!([one.take(), one.take(), other.take()], [7, 0, 0]);
        one.leave(2);
        other.answered(9, 1);
        assert_eq!(one.take(), 1, "its third worker is there still");
        one.leave(3);
        other.answered(9, 1);
        one.answered(3, 1);
        assert_eq!((one.take(), other.take()), (0, 0), "it is not there any more");
    }
}
