//! Divides processors among workers. Pure.
//!
//! Nodes are kept whole: a worker gets several nodes, one, or a part of one, but no parts of two. Within a node cores are
//! kept whole while there are enough. With more workers than processors some share one.

use jitney_settings::CpuList;

use super::topology::{CpuNode, CpuTopology};

/// How finely parts of processors are compared.
const CPU_PARTS: usize = 1024;

/// The processors of each worker. A worker with a home, the node of its GPU, gets a part of that node.
pub(super) fn pinning(topology: &CpuTopology, homes: &[Option<u32>]) -> Vec<CpuList> {
    let nodes = &topology.nodes;
    if homes.len() < nodes.len() && homes.iter().all(Option::is_none) {
        let whole = |nodes: &[CpuNode]| nodes.iter().flat_map(cpus).collect();
        return cut(nodes, homes.len()).map(whole).collect();
    }
    let at = nodes_of(nodes, homes);
    let of_node = |(index, node): (usize, &CpuNode)| {
        let workers = at.iter().filter(|node| **node == index).count();
        shares(node, workers).into_iter()
    };
    let mut left: Vec<_> = nodes.iter().enumerate().map(of_node).collect();
    let mut next = |node: &usize| left.get_mut(*node).and_then(Iterator::next);
    at.iter().map(|node| next(node).unwrap_or_default()).collect()
}

/// The node of each worker: its home, or one without workers, or where it has most processors for itself.
fn nodes_of(nodes: &[CpuNode], homes: &[Option<u32>]) -> Vec<usize> {
    let mut workers = vec![0; nodes.len()];
    let home = |home: &Option<u32>| nodes.iter().position(|node| Some(node.id) == *home);
    let homes: Vec<Option<usize>> = homes.iter().map(home).collect();
    homes.iter().flatten().for_each(|node| workers[*node] += 1);
    let mut choose = |home: Option<usize>| {
        let worth = |node: &usize| {
            let (cpus, workers) = (cpus(&nodes[*node]).count(), workers[*node]);
            (workers == 0, cpus * CPU_PARTS / (workers + 1))
        };
        // Of equal ones the first.
        let best = (0..nodes.len()).rev().max_by_key(worth).unwrap_or_default();
        if home.is_none() && best < nodes.len() {
            workers[best] += 1;
        }
        home.unwrap_or(best)
    };
    homes.into_iter().map(&mut choose).collect()
}

/// A node divided among so many workers.
fn shares(node: &CpuNode, workers: usize) -> Vec<CpuList> {
    let all: Vec<u32> = cpus(node).collect();
    if workers <= node.cores.len() {
        cut(&node.cores, workers).map(|cores| cores.iter().flatten().copied().collect()).collect()
    } else if workers <= all.len() {
        cut(&all, workers).map(|cpus| cpus.iter().copied().collect()).collect()
    } else {
        all.iter().cycle().take(workers).map(|cpu| CpuList::from_iter([*cpu])).collect()
    }
}

fn cpus(node: &CpuNode) -> impl Iterator<Item = u32> {
    node.cores.iter().flatten().copied()
}

/// So many parts, of which the first ones are larger by one where it does not come out even.
fn cut<T>(all: &[T], parts: usize) -> impl Iterator<Item = &[T]> {
    let start = move |part: usize| part * (all.len() / parts) + part.min(all.len() % parts);
    (0..parts).map(move |part| &all[start(part)..start(part + 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine by the cores of its nodes, such as `0,4 1,5`.
    fn machine(nodes: &[&str]) -> CpuTopology {
        let cores = |text: &str| {
            let lists = text.split(' ').map(|core| CpuList::parse(core).expect("a list"));
            lists.map(|core| core.numbers().to_vec()).collect()
        };
        let node = |(id, text): (usize, &&str)| CpuNode { id: id as u32, cores: cores(text) };
        CpuTopology { nodes: nodes.iter().enumerate().map(node).collect() }
    }

    fn sets(machine: &CpuTopology, homes: &[Option<u32>]) -> String {
        let sets = pinning(machine, homes).into_iter().map(|set| set.to_string());
        sets.collect::<Vec<_>>().join(" ")
    }

    fn check(nodes: &[&str], workers: usize, expected: &str) {
        assert_eq!(sets(&machine(nodes), &vec![None; workers]), expected, "{nodes:?} {workers}");
    }

    const EIGHT: &str = "0 1 2 3 4 5 6 7";
    const NEXT_EIGHT: &str = "8 9 10 11 12 13 14 15";
    const SIBLINGS: &str = "0,4 1,5 2,6 3,7";

    #[test]
    fn one_node_is_divided_evenly() {
        check(&[EIGHT], 1, "0-7");
        check(&[EIGHT], 2, "0-3 4-7");
        check(&[EIGHT], 3, "0-2 3-5 6-7");
        check(&[EIGHT], 8, "0 1 2 3 4 5 6 7");
        check(&[EIGHT], 0, "");
    }

    #[test]
    fn nodes_are_kept_whole() {
        check(&[EIGHT, NEXT_EIGHT], 1, "0-15");
        check(&[EIGHT, NEXT_EIGHT], 2, "0-7 8-15");
        check(&[EIGHT, NEXT_EIGHT], 3, "0-3 8-15 4-7");
        check(&[EIGHT, NEXT_EIGHT], 4, "0-3 8-11 4-7 12-15");
        check(&["0 1", "2 3", "4 5"], 2, "0-3 4-5");
        check(&["0 1 2 3 4 5", "6 7"], 3, "0-2 6-7 3-5");
    }

    #[test]
    fn the_processors_of_a_core_stay_together_while_there_are_enough() {
        check(&[SIBLINGS], 2, "0-1,4-5 2-3,6-7");
        check(&[SIBLINGS], 3, "0-1,4-5 2,6 3,7");
        check(&[SIBLINGS], 5, "0,4 1,5 2,6 3 7");
    }

    #[test]
    fn a_container_with_three_processors_shares_them_among_more_workers() {
        check(&["1 2 5"], 2, "1-2 5");
        check(&["1 2 5"], 5, "1 2 5 1 2");
    }

    #[test]
    fn workers_are_near_their_gpus() {
        let two = machine(&[EIGHT, NEXT_EIGHT]);
        assert_eq!(sets(&two, &[Some(1), Some(0)]), "8-15 0-7");
        assert_eq!(sets(&two, &[Some(1), Some(1), None]), "8-11 12-15 0-7");
        assert_eq!(sets(&two, &[Some(1)]), "8-15");
        assert_eq!(sets(&two, &[Some(9), None]), "0-7 8-15", "no such node");
    }

    #[test]
    fn every_worker_has_a_processor_and_none_is_left_over() {
        for workers in 1..40 {
            for nodes in [&[SIBLINGS][..], &[EIGHT, NEXT_EIGHT], &["0", "1 2 3", "4,5"]] {
                let found = pinning(&machine(nodes), &vec![None; workers]);
                assert!(found.iter().all(|set| !set.numbers().is_empty()), "{nodes:?} {workers}");
                let mut used: Vec<u32> = found.iter().flat_map(CpuList::numbers).copied().collect();
                let count = machine(nodes).nodes.iter().flat_map(cpus).count();
                used.sort_unstable();
                let with_twice = used.len();
                used.dedup();
                assert_eq!(used.len(), count, "{nodes:?} {workers}");
                assert!(with_twice == used.len() || workers > count, "{nodes:?} {workers}");
            }
        }
    }
}
