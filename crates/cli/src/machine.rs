//! Processors, memory, open files and name of this machine; for GPUs see [`crate::gpu`].

use std::path::Path;
use std::time::Duration;

use jitney_settings::model::WORKERS;
use jitney_settings::server::{IO_THREADS, MAX_REQUEST_MEMORY, MAX_WORKERS_PER_MODEL, MEMORY};
use jitney_settings::{AUTO, SettingSource, Values};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// More open files than this no server needs, and some systems forbid.
const OPEN_FILES_MAX: u64 = 1 << 20;

/// Data-plane threads by default at most.
const THREADS_MAX: u64 = 16;

/// The number of processors that this process may use.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// What the machine decides where nobody else does. Data-plane threads: all processors less two, which are left for
/// models and for the rest; one that has nothing to do costs nothing. On ten processors with eight workers two, four
/// and eight threads gave 91, 154 and 213 thousand requests/s. A model's task is full then, and more than
/// [`THREADS_MAX`] bring nothing. Memory for requests: half of what there is.
pub fn defaults() -> Values {
    let threads = u64::from(cpus()).saturating_sub(2).clamp(1, THREADS_MAX);
    let memory = memory(Path::new("/")).unwrap_or(MEMORY_UNKNOWN);
    let of_requests = (memory / 2).max(REQUEST_MEMORY_MIN);
    Values::default()
        .with(&IO_THREADS, threads, SettingSource::Default)
        .with(&MAX_REQUEST_MEMORY, of_requests, SettingSource::Default)
        .with(&MEMORY, of_models(memory), SettingSource::Default)
}

/// Memory for models: the rest is for the server itself, its requests, and what else runs here.
fn of_models(memory: u64) -> u64 {
    memory / 5 * 4
}

/// Sets what `memory: auto` means here, and says it.
pub fn settle_memory(values: &mut Values, remarks: &mut Vec<String>) {
    if values.show(&MEMORY).as_deref() == Some(AUTO) {
        let all = memory_here().unwrap_or(MEMORY_UNKNOWN);
        values.set(&MEMORY, of_models(all), values.source(&MEMORY));
        let (models, all) = (of_models(all) >> 20, all >> 20);
        remarks.push(format!(
            "memory=auto: {models} MiB for all models, four fifths of the {all} MiB of this machine or its cgroup"
        ));
    }
}

/// Where the system does not tell how much memory there is.
const MEMORY_UNKNOWN: u64 = 2 << 30;
/// Requests may have this much, however small the machine is.
const REQUEST_MEMORY_MIN: u64 = 64 << 20;

/// Bytes of memory that this process may use.
pub fn memory_here() -> Option<u64> {
    memory(Path::new("/"))
}

/// Bytes of memory that this process may use: the machine's, or its control group's where that is less.
fn memory(root: &Path) -> Option<u64> {
    let machine = read_below(root, "/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    });
    let groups = memory_groups(root);
    let group = groups.iter().filter_map(|group| number_below(root, &group.limit));
    machine.into_iter().chain(group).min()
}

/// Bytes that the control group of this process still has before its limit, if it has one. What the kernel keeps of
/// files that nobody reads any more counts as free.
pub fn memory_left() -> Option<u64> {
    let root = Path::new("/");
    let left = memory_groups(root).into_iter().filter_map(|group| {
        let limit = number_below(root, &group.limit)?;
        let used = number_below(root, &group.used)?;
        let about = read_below(root, &group.about).unwrap_or_default();
        let cached = about.lines().find_map(|line| line.strip_prefix("inactive_file "));
        let cached: u64 = cached.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    });
    left.min()
}

/// The files of a control group that tell of memory.
struct GroupMemoryFiles {
    limit: String,
    used: String,
    about: String,
}

/// The control groups that this process is in. A group has no more than those above it; inside a container the path
/// may not be there.
fn memory_groups(root: &Path) -> Vec<GroupMemoryFiles> {
    let groups = read_below(root, "/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (top, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => return None,
        };
        Some(Path::new(path).ancestors().map(move |path| {
            let file = |name: &str| format!("{top}{}/{name}", path.display());
            GroupMemoryFiles { limit: file(limit), used: file(used), about: file("memory.stat") }
        }))
    });
    own.flatten().collect()
}

fn read_below(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()
}

fn number_below(root: &Path, path: &str) -> Option<u64> {
    read_below(root, path)?.trim().parse().ok()
}

/// Bytes of memory that a worker process may use where no setting says it: half of what there is.
pub fn worker_memory() -> u64 {
    memory(Path::new("/")).unwrap_or(MEMORY_UNKNOWN) / 2
}

/// How many files and sockets this process may have open.
pub struct OpenFiles {
    /// As it was started; its children get this back.
    pub inherited: Option<u64>,
    /// From now on.
    pub now: Option<u64>,
}

/// The soft and the hard limit of open files; none means without limit.
pub fn open_files() -> (Option<u64>, Option<u64>) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    (current, maximum)
}

/// Raises the soft limit of open files to the hard one.
pub fn raise_open_files() -> OpenFiles {
    let Rlimit { current: inherited, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    if inherited.is_none_or(|inherited| inherited >= wanted) {
        return OpenFiles { inherited, now: inherited };
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => OpenFiles { inherited, now: Some(wanted) },
        Err(error) => {
            tracing::warn!(%error, "the limit of open files was not raised");
            OpenFiles { inherited, now: inherited }
        }
    }
}

/// The least that any model may have in workers by default.
const WORKERS_LIMIT: u32 = 64;

/// The most workers of a model by default: enough for any machine and too few to bring one down, unless
/// the operator gives every model more.
pub fn workers_limit(values: &Values) -> Values {
    let configured: u32 = values.read(&WORKERS).unwrap_or(0);
    let limit = cpus().saturating_mul(4).max(WORKERS_LIMIT).max(configured);
    Values::default().with(&MAX_WORKERS_PER_MODEL, limit, SettingSource::Default)
}

/// The host name, for metrics.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// The time since the machine was started, sleep included. Setting the time of day does not change it.
pub fn uptime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory_of(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("directory");
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            std::fs::write(path, text).expect("file");
        }
        memory(root.path())
    }

    #[test]
    fn what_auto_means_is_told() {
        let mut remarks = Vec::new();
        let mut values = Values::default().with(&MEMORY, AUTO, SettingSource::Registration);
        settle_memory(&mut values, &mut remarks);
        assert_eq!(values.source(&MEMORY), SettingSource::Registration);
        let bytes: u64 = values.value(&MEMORY);
        assert!(remarks[0].contains(&format!("memory=auto: {} MiB", bytes >> 20)), "{remarks:?}");
        let mut values = Values::default().with(&MEMORY, 7_u64, SettingSource::Default);
        settle_memory(&mut values, &mut remarks);
        assert_eq!((values.value::<u64>(&MEMORY), remarks.len()), (7, 1), "as it was said");
    }

    #[test]
    fn memory_is_the_least_of_the_machine_and_its_groups() {
        let machine = ("proc/meminfo", "MemTotal:    2048 kB\nMemFree: 1 kB\n");
        assert_eq!(memory_of(&[]), None);
        assert_eq!(memory_of(&[machine]), Some(2 << 20));
        let group = ("proc/self/cgroup", "0::/a/b\n");
        let free = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        let parent = ("sys/fs/cgroup/a/memory.max", "1048576\n");
        assert_eq!(memory_of(&[machine, group, free]), Some(2 << 20));
        assert_eq!(memory_of(&[machine, group, free, parent]), Some(1 << 20));
        let inside = ("sys/fs/cgroup/memory.max", "4096\n");
        assert_eq!(memory_of(&[machine, group, inside]), Some(4096));
        let old = ("proc/self/cgroup", "3:cpu:/a\n2:memory:/a\n");
        let limit = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8192\n");
        assert_eq!(memory_of(&[machine, old, limit]), Some(8192));
    }
}
