//! Processors, memory and name of this machine; for GPUs see [`crate::gpu`].

use jitney_settings::server::IO_THREADS;
use jitney_settings::{SettingSource, Values};

/// The number of processors that this process may use.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Data-plane threads by default: a quarter of the processors, since one thread feeds many workers.
pub fn threads() -> Values {
    let threads = u64::from(cpus() / 4).max(1);
    Values::default().with(&IO_THREADS, threads, SettingSource::Default)
}

/// The host name, for metrics.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Bytes of memory that this process may use: the machine's, or its control group's where that is less.
pub fn memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| total_memory(&text)).unwrap_or(u64::MAX);
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = group_files(&groups).into_iter().filter_map(|path| read(&path));
    // `max` stands for no limit, and version 1 has a number that no machine reaches.
    limits.filter_map(|text| text.trim().parse().ok()).fold(machine, u64::min)
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The files that may limit the memory of this process: those of its own control group and of all above.
fn group_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{file}"));
            let Some((above, _)) = path.rsplit_once('/') else { break };
            path = above;
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_looked_for_in_every_group_above() {
        let files = group_files("12:cpu,cpuacct:/a\n4:memory:/a\n0::/b/c\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/b/c/memory.max",
            "/sys/fs/cgroup/b/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected);
        assert_eq!(group_files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(total_memory("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
    }
}
