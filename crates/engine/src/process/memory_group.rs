//! Limits of memory by control groups (version 2), where this process may make some.
//!
//! The kernel ends a group that needs more than its limit, children included, and counts that. Elsewhere a process has
//! a limit of its own (RLIMIT_DATA), beyond which its allocations fail. A group has either processes or groups with
//! limits in it, so new ones are made beside that of the server: systemd prepares this with `Delegate=memory` and
//! `DelegateSubgroup=server`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::memory::oom_kills;

/// Where groups can be made.
#[derive(Debug)]
pub(super) struct MemoryGroups(PathBuf);

impl MemoryGroups {
    pub(super) fn find() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Self::beside(&Path::new("/sys/fs/cgroup").join(own))
    }

    fn beside(own: &Path) -> Option<Self> {
        let parent = own.parent()?;
        let handed = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        let has_limits = handed.split_ascii_whitespace().any(|controller| controller == "memory");
        has_limits.then(|| Self(parent.to_owned()))
    }

    /// Moves a process into a group that may hold so many bytes; none if that is not allowed here.
    pub(super) fn limit(&self, process: Pid, bytes: u64) -> Option<MemoryGroup> {
        let process = process.as_raw_nonzero().to_string();
        let dir = self.0.join(format!("jitney-worker-{process}"));
        fs::create_dir(&dir).ok()?;
        let group = MemoryGroup(dir);
        group.write("memory.max", &bytes.to_string())?;
        // A machine may be without swap, and an old kernel without the other.
        group.write("memory.swap.max", "0");
        group.write("memory.oom.group", "1");
        group.write("cgroup.procs", &process)?;
        Some(group)
    }
}

/// A group of one worker. It is removed with this.
#[derive(Debug)]
pub(super) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn write(&self, file: &str, text: &str) -> Option<()> {
        fs::write(self.0.join(file), text).ok()
    }

    /// Whether the kernel has ended a process of it because it needed more.
    pub(super) fn ran_out(&self) -> bool {
        oom_kills(&self.0.join("memory.events")).is_some_and(|kills| kills > 0)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Fails while a process of it ends; then it stays, empty.
        drop(fs::remove_dir(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_a_group_beside_the_servers_where_limits_are_handed_down() {
        let root = tempfile::tempdir().unwrap();
        let server = root.path().join("server");
        fs::create_dir(&server).unwrap();
        let control = root.path().join("cgroup.subtree_control");
        fs::write(&control, "cpu pids\n").unwrap();
        assert!(MemoryGroups::beside(&server).is_none(), "no limits of memory here");
        fs::write(&control, "cpu memory pids\n").unwrap();
        let groups = MemoryGroups::beside(&server).unwrap();
        let group = groups.limit(Pid::INIT, 300 << 20).unwrap();
        let dir = root.path().join("jitney-worker-1");
        let written = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
        assert_eq!(
            (written("memory.max"), written("cgroup.procs")),
            ("314572800".into(), "1".into())
        );
        fs::write(dir.join("memory.events"), "oom 0\noom_kill 0\n").unwrap();
        assert!(!group.ran_out());
        fs::write(dir.join("memory.events"), "oom 1\noom_kill 2\n").unwrap();
        assert!(group.ran_out());
        assert!(groups.limit(Pid::INIT, 1).is_none(), "somebody has a group of this name");
    }
}
