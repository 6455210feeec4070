//! Who of a model's workers is kept to which processors. A worker keeps its share while it can, so that the memory
//! that it has written stays near; with the number of workers the shares grow and shrink.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jitney_settings::model::CPUS;
use jitney_settings::{CpuList, Values, WorkerCpus};

use super::pinning::pinning;
use super::topology::{CpuTopology, SYSTEM, usable};
use crate::process::{ProcessCpus, WorkerProcess};

/// The processors of one model's workers.
pub(crate) struct CpuAssignment {
    topology: CpuTopology,
    /// The node of each GPU, where it is known.
    gpu_nodes: Vec<Option<u32>>,
    pinned: Mutex<PinnedWorkers>,
}

#[derive(Default)]
struct PinnedWorkers {
    /// How many the model has. There may be more for a while: one that replaces another, one that leaves.
    count: usize,
    workers: BTreeMap<u32, PinnedWorker>,
}

struct PinnedWorker {
    /// Which share it has, by number: below the count, or above for one that is beside others.
    share: usize,
    home: Option<u32>,
    cpus: CpuList,
    process: Arc<ProcessCpus>,
}

impl CpuAssignment {
    /// As a model's settings say; none where its workers are kept to no processors.
    ///
    /// # Errors
    /// A sentence: the server may not use one that is named.
    pub(crate) fn of(
        settings: &Values,
        gpu_nodes: &[Option<u32>],
    ) -> Result<Option<Arc<Self>>, String> {
        let cpus = match settings.value(&CPUS) {
            WorkerCpus::Any => return Ok(None),
            WorkerCpus::Auto => usable(),
            WorkerCpus::Listed(list) => allowed(list, &usable())?,
        };
        let topology = CpuTopology::read(Path::new(SYSTEM), &cpus);
        Ok(Some(Arc::new(Self::new(topology, gpu_nodes))))
    }

    fn new(topology: CpuTopology, gpu_nodes: &[Option<u32>]) -> Self {
        Self { topology, gpu_nodes: gpu_nodes.to_vec(), pinned: Mutex::default() }
    }

    /// A worker was started, with this GPU: it is kept to its processors from now on.
    pub(crate) fn pin(&self, worker: u32, gpu: Option<u32>, process: &WorkerProcess) {
        let home = gpu.and_then(|gpu| *self.gpu_nodes.get(gpu as usize)?);
        let mut pinned = self.pinned();
        let share = pinned.workers.get(&worker).map_or_else(|| pinned.free_share(), |it| it.share);
        let (cpus, process) = (CpuList::default(), Arc::clone(&process.cpus));
        pinned.workers.insert(worker, PinnedWorker { share, home, cpus, process });
        pinned.settle(&self.topology);
    }

    /// From now on the model has so many workers.
    pub(crate) fn set_count(&self, workers: u32) {
        let mut pinned = self.pinned();
        pinned.count = workers as usize;
        pinned.settle(&self.topology);
    }

    /// The worker is gone for good.
    pub(crate) fn release(&self, worker: u32) {
        let mut pinned = self.pinned();
        pinned.workers.remove(&worker);
        pinned.settle(&self.topology);
    }

    /// The processors that a worker is kept to.
    pub(crate) fn cpus(&self, worker: u32) -> Option<CpuList> {
        self.pinned().workers.get(&worker).map(|it| it.cpus.clone())
    }

    fn pinned(&self) -> MutexGuard<'_, PinnedWorkers> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PinnedWorkers {
    fn free_share(&self) -> usize {
        let taken = |share: &usize| self.workers.values().any(|it| it.share == *share);
        (0..=self.workers.len()).find(|share| !taken(share)).unwrap_or_default()
    }

    /// Gives everybody a share, and moves those whose processors are others now.
    fn settle(&mut self, topology: &CpuTopology) {
        let count = self.count.max(1);
        let beside = self.workers.iter().filter(|(_, it)| it.share >= count);
        for id in beside.map(|(id, _)| *id).collect::<Vec<_>>() {
            let free = self.free_share();
            if let Some(worker) = self.workers.get_mut(&id).filter(|it| free < it.share) {
                worker.share = free;
            }
        }
        let mut homes = vec![None; count];
        for worker in self.workers.values().filter(|it| it.share < count) {
            homes[worker.share] = worker.home;
        }
        let sets = pinning(topology, &homes);
        for worker in self.workers.values_mut() {
            let cpus = &sets[worker.share % count];
            if worker.cpus != *cpus {
                worker.cpus.clone_from(cpus);
                worker.process.set(cpus);
            }
        }
    }
}

/// The list, if the server may use all of it.
fn allowed(list: CpuList, usable: &CpuList) -> Result<CpuList, String> {
    let missing = list.numbers().iter().copied().filter(|cpu| !usable.numbers().contains(cpu));
    let missing: CpuList = missing.collect();
    if missing.numbers().is_empty() {
        return Ok(list);
    }
    Err(format!(
        "cpus: the server may not use {missing}, only {usable}; name some of these, or auto."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_node(cpus: &str) -> CpuAssignment {
        let cpus = CpuList::parse(cpus).expect("a list");
        CpuAssignment::new(CpuTopology::read(Path::new("/nowhere"), &cpus), &[])
    }

    fn pin(assignment: &CpuAssignment, worker: u32) {
        assignment.pin(worker, None, &WorkerProcess::elsewhere().0);
    }

    fn sets<const N: usize>(assignment: &CpuAssignment, workers: [u32; N]) -> [String; N] {
        workers.map(|it| assignment.cpus(it).expect("a set").to_string())
    }

    #[test]
    fn sets_follow_the_number_of_workers() {
        let four = one_node("0-3");
        four.set_count(1);
        pin(&four, 7);
        assert_eq!(sets(&four, [7]), ["0-3"]);
        four.set_count(2);
        pin(&four, 8);
        assert_eq!(sets(&four, [7, 8]), ["0-1", "2-3"]);
        four.set_count(1);
        assert_eq!(sets(&four, [7, 8]), ["0-3", "0-3"], "the second one leaves");
        four.release(8);
        assert_eq!((sets(&four, [7]), four.cpus(8)), (["0-3".to_owned()], None));
    }

    #[test]
    fn a_worker_keeps_its_share_when_another_is_replaced() {
        let four = one_node("0-3");
        four.set_count(2);
        [1, 2].into_iter().for_each(|worker| pin(&four, worker));
        pin(&four, 3);
        assert_eq!(sets(&four, [1, 2, 3]), ["0-1", "2-3", "0-1"], "beside another");
        four.release(1);
        assert_eq!(sets(&four, [2, 3]), ["2-3", "0-1"]);
        pin(&four, 2);
        assert_eq!(sets(&four, [2, 3]), ["2-3", "0-1"], "it was started again");
    }

    #[test]
    fn processors_that_the_server_may_not_use_are_named() {
        let list = |text| CpuList::parse(text).expect("a list");
        assert_eq!(allowed(list("1-2"), &list("0-3")), Ok(list("1-2")));
        let why = allowed(list("2-5"), &list("0-3")).expect_err("too many");
        assert_eq!(why, "cpus: the server may not use 4-5, only 0-3; name some of these, or auto.");
    }
}
