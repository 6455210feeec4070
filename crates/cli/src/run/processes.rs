//! What processes use, read from `/proc` when somebody asks.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitney_telemetry::metrics::{OwnProcess, ProcessReader, ProcessUsage};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Reads `/proc`.
#[derive(Debug)]
pub struct ProcReader {
    started: SystemTime,
    dropped: Arc<AtomicU64>,
}

impl ProcReader {
    /// Begins now, for a server whose log counts the lines that it drops.
    pub fn new(dropped: Arc<AtomicU64>) -> Self {
        Self { started: SystemTime::now(), dropped }
    }
}

impl ProcessReader for ProcReader {
    fn usage(&self, pid: Option<u32>) -> Option<ProcessUsage> {
        let path = match pid {
            Some(pid) => format!("/proc/{pid}/stat"),
            None => "/proc/self/stat".to_owned(),
        };
        parse(&fs::read_to_string(path).ok()?)
    }

    fn waited(&self, pid: u32) -> Option<Duration> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let waited = threads.filter_map(|thread| {
            waited(&fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?)
        });
        waited.reduce(|one, other| one + other)
    }

    fn own(&self) -> OwnProcess {
        let since = self.started.duration_since(UNIX_EPOCH);
        OwnProcess {
            open_files: open_files(),
            open_files_max: getrlimit(Resource::Nofile).current,
            started: since.ok().map(|since| since.as_secs_f64()),
            log_dropped: self.dropped.load(Relaxed),
        }
    }
}

/// Kernels since 6.2 tell the number as the size of the directory.
fn open_files() -> Option<u64> {
    let directory = "/proc/self/fd";
    let told = fs::metadata(directory).ok()?.len();
    if told > 0 { Some(told) } else { Some(fs::read_dir(directory).ok()?.count() as u64) }
}

/// `ran waited turns`, both in nanoseconds.
fn waited(schedstat: &str) -> Option<Duration> {
    let nanos = schedstat.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// `pid (name) state …`: the times are fields 14 and 15, the resident pages 24. A name may hold
/// anything, so fields are counted behind its end.
fn parse(stat: &str) -> Option<ProcessUsage> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)?;
    let cpu = Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second().max(1) as f64);
    Some(ProcessUsage { memory: number(24)? * page_size() as u64, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_counted_behind_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 99 1000 25 18";
        let usage = parse(stat).expect("usage");
        let cpu = Duration::from_secs_f64(200.0 / clock_ticks_per_second() as f64);
        assert_eq!(usage, ProcessUsage { memory: 25 * page_size() as u64, cpu });
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(waited("900 1500 3\n"), Some(Duration::from_nanos(1500)));
        assert_eq!(waited("900"), None);
    }

    #[test]
    fn this_process_uses_memory_and_files_and_one_that_is_not_there_nothing() {
        let reader = ProcReader::new(Arc::default());
        assert!(reader.usage(None).is_some_and(|usage| usage.memory > 0));
        assert_eq!(reader.usage(Some(u32::MAX)), None);
        let own = reader.own();
        assert!(own.open_files > Some(2) && own.open_files_max > own.open_files);
    }
}
