//! Limits of this machine and of the process: processors, memory, open files, shared memory.

use super::finding::Finding;
use crate::machine;
use crate::remote::words::bytes;

const AREA: &str = "Limits";

/// Fewer open files than this are too few for a busy server.
const OPEN_FILES_GOOD: u64 = 4096;

/// Less memory than this is too little for a model.
const MEMORY_GOOD: u64 = 1 << 30;

/// Containers have this much shared memory unless they are given more.
const SHARED_MEMORY_GOOD: u64 = 256 << 20;

/// Looks at every limit.
pub fn check() -> Vec<Finding> {
    let mut findings = vec![Finding::ok(AREA, format!("{} processors", machine::cpus()))];
    findings.extend(machine::memory_here().map(memory));
    findings.push(open_files(machine::open_files()));
    findings.extend(free("/dev/shm").map(shared_memory));
    findings
}

fn memory(size: u64) -> Finding {
    let text = format!("{} of memory, or of its control group", bytes(size as f64));
    if size >= MEMORY_GOOD {
        return Finding::ok(AREA, text);
    }
    Finding::note(
        AREA,
        text,
        "a Python worker with torch needs about 1 GiB; give the container more",
    )
}

/// A server raises the soft limit to the hard one by itself.
fn open_files((soft, hard): (Option<u64>, Option<u64>)) -> Finding {
    let shown =
        |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let text = format!("{} open files, up to {}", shown(soft), shown(hard));
    if hard.is_none_or(|hard| hard >= OPEN_FILES_GOOD) {
        return Finding::ok(AREA, text);
    }
    Finding::note(
        AREA,
        text,
        "every connection takes one: raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd)",
    )
}

fn shared_memory(size: u64) -> Finding {
    let text = format!("{} free in /dev/shm", bytes(size as f64));
    if size >= SHARED_MEMORY_GOOD {
        return Finding::ok(AREA, text);
    }
    Finding::note(
        AREA,
        text,
        "models that share tensors between processes need more: docker run --shm-size 1g",
    )
}

/// Free bytes of a file system.
pub fn free(path: impl AsRef<std::path::Path>) -> Option<u64> {
    let system = rustix::fs::statvfs(path.as_ref()).ok()?;
    Some(system.f_bavail * system.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;

    #[test]
    fn small_limits_are_noted_with_what_to_do() {
        for (finding, level) in [
            (open_files((Some(1024), Some(1 << 20))), FindingLevel::Ok),
            (open_files((Some(1024), Some(1024))), FindingLevel::Note),
            (open_files((None, None)), FindingLevel::Ok),
            (memory(1 << 28), FindingLevel::Note),
            (memory(1 << 33), FindingLevel::Ok),
            (shared_memory(64 << 20), FindingLevel::Note),
        ] {
            assert_eq!(finding.level, level, "{}", finding.text);
            assert_eq!(finding.advice.is_some(), level != FindingLevel::Ok);
        }
    }
}
