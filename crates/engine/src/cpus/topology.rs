//! The processors of this machine that the server may use: by NUMA node, and those of one core together. Read when a
//! model that wants them is registered, since a container can be given others. Where `/sys` says nothing there is one
//! node, and every processor is a core.

use std::collections::BTreeMap;
use std::path::Path;

use jitney_settings::CpuList;
use rustix::thread::{CpuSet, sched_getaffinity};

/// What the kernel tells of processors.
pub(super) const SYSTEM: &str = "/sys/devices/system";

/// Processors, in the order in which they are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuTopology {
    /// Those that have a processor.
    pub(super) nodes: Vec<CpuNode>,
}

/// The processors with one part of the memory near them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuNode {
    pub(super) id: u32,
    /// The processors of each core.
    pub(super) cores: Vec<Vec<u32>>,
}

/// The processors that this process may use.
pub(super) fn usable() -> CpuList {
    let mask = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

impl CpuTopology {
    /// How these processors lie, as `system` says.
    pub(super) fn read(system: &Path, cpus: &CpuList) -> Self {
        let node_of = nodes(&system.join("node"));
        let mut found: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for &cpu in cpus.numbers() {
            let siblings = system.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
            let core = list(&siblings).numbers().first().copied().unwrap_or(cpu);
            let node = node_of.get(&cpu).copied().unwrap_or_default();
            found.entry(node).or_default().entry(core).or_default().push(cpu);
        }
        let node = |(id, cores): (u32, BTreeMap<_, _>)| CpuNode {
            id,
            cores: cores.into_values().collect(),
        };
        Self { nodes: found.into_iter().map(node).collect() }
    }
}

/// The node of each processor.
fn nodes(folder: &Path) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        let Some(id) = id else { continue };
        found.extend(list(&entry.path().join("cpulist")).numbers().iter().map(|cpu| (*cpu, id)));
    }
    found
}

fn list(file: &Path) -> CpuList {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    CpuList::parse(text.trim()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what `/sys` says of a machine: the processors of its nodes, and of its cores.
    fn recorded(name: &str, nodes: &[&str], cores: &[&str]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("jitney-cpus-{name}-{}", std::process::id()));
        let write = |path: String, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("written");
            std::fs::write(path, format!("{text}\n")).expect("written");
        };
        write("node/possible".to_owned(), "0-1");
        for (id, cpus) in nodes.iter().enumerate() {
            write(format!("node/node{id}/cpulist"), cpus);
        }
        for core in cores {
            for cpu in CpuList::parse(core).expect("a list").numbers() {
                write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), core);
            }
        }
        root
    }

    #[test]
    fn nodes_and_cores_are_read_and_only_what_may_be_used_counts() {
        let (nodes, cores) = (["0-1,4-5", "2-3,6-7", ""], ["0,4", "1,5", "2,6", "3,7"]);
        let root = recorded("two", &nodes, &cores);
        let read = |cpus| CpuTopology::read(&root, &CpuList::parse(cpus).expect("a list"));
        let node = |id, cores: &[&[u32]]| CpuNode {
            id,
            cores: cores.iter().map(|core| core.to_vec()).collect(),
        };
        let all = [node(0, &[&[0, 4], &[1, 5]]), node(1, &[&[2, 6], &[3, 7]])];
        assert_eq!(read("0-7").nodes, all);
        assert_eq!(read("2,4,6").nodes, [node(0, &[&[4]]), node(1, &[&[2, 6]])]);
        std::fs::remove_dir_all(&root).expect("removed");
        assert_eq!(read("2,4,6").nodes, [node(0, &[&[2], &[4], &[6]])], "nothing is said");
    }

    #[test]
    fn this_process_may_use_something() {
        assert!(!usable().numbers().is_empty());
    }
}
