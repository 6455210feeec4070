//! What the kernel tells of memory: how much a process holds, and whether it ended one because memory ran
//! out. The count of such ends is that of this process's own control group where it can be read, else that
//! of the whole machine. It does not say whom: a process that was killed while the count grew is taken for
//! the one.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::param::page_size;
use rustix::process::{Pid, Signal};
use tokio::time::Instant;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEnd {
    pub(crate) status: ExitStatus,
    /// Whether the kernel ended it because memory ran out; none where that is not known.
    pub(crate) out_of_memory: Option<bool>,
    /// The bytes that it held when it was last looked at.
    pub(crate) memory: Option<u64>,
    /// Whether it needed more than its own limit.
    pub(crate) beyond_limit: bool,
    /// Whether its machine was lost, or the connection to it: how it ended is not known then.
    pub(crate) lost: bool,
}

/// How often the memory of a process is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An end that the kernel counted this long ago explains nothing any more.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// Ends by the kernel for want of memory, as they are counted.
#[derive(Debug, Default)]
pub(super) struct OomCounter {
    /// Where the count is read; none where the kernel does not tell.
    file: Option<PathBuf>,
    /// The count a while ago: what came since may explain an end.
    before: u64,
    /// The count that takes its place, and since when it is known.
    latest: Option<(u64, Instant)>,
}

impl OomCounter {
    /// Finds the count.
    pub(super) fn find() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let files = candidates(&groups).into_iter();
        Self::of(files.into_iter().find(|file| oom_kills(file).is_some()))
    }

    fn of(file: Option<PathBuf>) -> Self {
        let before = file.as_deref().and_then(oom_kills).unwrap_or_default();
        Self { file, before, latest: None }
    }

    /// Forgets what happened more than a while ago. A process that was ended is noticed well before.
    pub(super) fn age(&mut self, now: Instant) {
        if self.latest.is_some_and(|(_, at)| now.duration_since(at) < FORGET_AFTER) {
            return;
        }
        if let Some(count) = self.file.as_deref().and_then(oom_kills) {
            self.before = self.latest.map_or(self.before, |(count, _)| count);
            self.latest = Some((count, now));
        }
    }

    /// Whether a process that was killed just now was ended for want of memory; none where that is not
    /// known. Each end that the kernel counts explains one.
    fn explains(&mut self) -> Option<bool> {
        let count = oom_kills(self.file.as_deref()?)?;
        let explained = count > self.before;
        if explained {
            self.before += 1;
            self.latest = self.latest.map(|(latest, at)| (latest.max(self.before), at));
        }
        Some(explained)
    }

    /// How a process ended that had so much memory when it was last looked at.
    pub(super) fn judge(
        &mut self,
        status: std::process::ExitStatus,
        memory: Option<u64>,
    ) -> ProcessEnd {
        use std::os::unix::process::ExitStatusExt as _;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        let out_of_memory = if killed { self.explains() } else { Some(false) };
        ProcessEnd { status, out_of_memory, memory, beyond_limit: false, lost: false }
    }
}

/// Files that may have the count, the nearest first: the control group of this process by the second and by
/// the first version of the interface, both also as containers see them, then the machine.
fn candidates(groups: &str) -> Vec<PathBuf> {
    let named = |controller: &str| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|it| it == controller).then(|| path.trim_start_matches('/'))
        })
    };
    let unified = named("").unwrap_or_default();
    let memory = named("memory").unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    vec![
        root.join(unified).join("memory.events"),
        root.join("memory").join(memory).join("memory.oom_control"),
        root.join("memory.events"),
        root.join("memory/memory.oom_control"),
        PathBuf::from("/proc/vmstat"),
    ]
}

/// The line `oom_kill 3` of a file.
pub(super) fn oom_kills(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The memory that a process holds, in bytes.
pub(super) fn resident(process: Pid) -> Option<u64> {
    let file = format!("/proc/{}/statm", process.as_raw_nonzero());
    let text = std::fs::read_to_string(file).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // A process that has ended and is not reaped yet holds nothing.
    (pages > 0).then(|| pages * page_size() as u64)
}

/// What a process holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeasuredMemory {
    /// What it shares with others counts by its share (PSS).
    pub(crate) share: u64,
    /// What it shares with nobody.
    pub(crate) own: u64,
    /// The most that it has held until now; what it shares counts in full.
    pub(crate) peak: u64,
    /// What it shares with others, in full: pages of files.
    pub(crate) shared: u64,
}

impl MeasuredMemory {
    fn of(process: u32) -> Option<Self> {
        let read = |file| std::fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        Self::parse(&read("smaps_rollup")?, &read("status")?)
    }

    fn parse(smaps: &str, status: &str) -> Option<Self> {
        let line = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        Some(Self {
            share: line(smaps, "Pss:")?,
            own: line(smaps, "Private_Clean:")? + line(smaps, "Private_Dirty:")?,
            peak: line(status, "VmHWM:")?,
            shared: line(smaps, "Shared_Clean:")?,
        })
    }

    /// The larger of both, each by itself.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            share: self.share.max(other.share),
            own: self.own.max(other.own),
            peak: self.peak.max(other.peak),
            shared: self.shared.max(other.shared),
        }
    }
}

/// What processes hold; one that has ended is left out, for what it shared may be counted with others already or not.
/// The kernel looks at every page for that, so it is done where nobody waits for it.
pub(crate) async fn measured_memory(pids: Vec<u32>) -> Vec<(u32, MeasuredMemory)> {
    if pids.is_empty() {
        return Vec::new();
    }
    let measure = |pid| Some((pid, MeasuredMemory::of(pid)?));
    let all = tokio::task::spawn_blocking(move || pids.into_iter().filter_map(measure).collect());
    all.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_the_own_group_goes_before_that_of_the_machine() {
        let shown = |groups| candidates(groups).into_iter().map(|it| it.display().to_string());
        let second: Vec<_> = shown("0::/kubepods/pod1\n").collect();
        assert_eq!(second[0], "/sys/fs/cgroup/kubepods/pod1/memory.events");
        assert_eq!(second[4], "/proc/vmstat");
        let first: Vec<_> = shown("4:memory:/docker/1\n3:cpu,cpuacct:/\n0::/\n").collect();
        assert_eq!(first[1], "/sys/fs/cgroup/memory/docker/1/memory.oom_control");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_explained_by_a_count_that_grew_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        let count = |kills: u64| {
            std::fs::write(&file, format!("low 0\noom {kills}\noom_kill {kills}\n")).unwrap();
        };
        count(2);
        let mut counter = OomCounter::of(Some(file.clone()));
        assert_eq!(counter.explains(), Some(false), "killed by somebody");
        count(3);
        assert_eq!([counter.explains(), counter.explains()], [Some(true), Some(false)]);
        // Another process was ended for want of memory; a while later that explains nothing any more.
        count(4);
        for _ in 0..2 {
            counter.age(Instant::now());
            tokio::time::advance(FORGET_AFTER).await;
        }
        counter.age(Instant::now());
        assert_eq!(counter.explains(), Some(false));
        // One that was ended just before the count is looked at is still explained.
        count(5);
        tokio::time::advance(FORGET_AFTER).await;
        counter.age(Instant::now());
        assert_eq!(counter.explains(), Some(true));
        assert_eq!(OomCounter::of(None).explains(), None);
    }

    #[test]
    fn a_process_knows_its_memory() {
        let own = resident(rustix::process::getpid()).unwrap();
        let measured = MeasuredMemory::of(std::process::id()).unwrap();
        assert!(own > 1 << 20 && measured.share > 1 << 20, "{own} {measured:?}");
        assert!(measured.own <= measured.share && measured.share <= measured.peak, "{measured:?}");
        let smaps =
            "Rss: 9 kB\nPss: 5 kB\nShared_Clean: 6 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\n";
        let parsed = MeasuredMemory::parse(smaps, "VmPeak: 99 kB\nVmHWM: 12 kB\n");
        let (share, own, peak, shared) = (5 << 10, 3 << 10, 12 << 10, 6 << 10);
        assert_eq!(parsed, Some(MeasuredMemory { share, own, peak, shared }));
    }
}
