//! What processes use, the server's own and its workers', at the moment when somebody asks.
//!
//! The server reads no file: the cli brings a reader. Reading one process takes a few microseconds, so
//! nothing is sampled and nothing gets old.

use std::fmt::Debug;
use std::time::Duration;

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Bytes of memory that are resident.
    pub memory: u64,
    /// Time of processors that it has used so far.
    pub cpu: Duration,
}

/// What is known of the server's own process beside that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnProcess {
    /// Files and sockets that it has open.
    pub open_files: Option<u64>,
    /// The most that it may have.
    pub open_files_max: Option<u64>,
    /// When it was started, in seconds of Unix time.
    pub started: Option<f64>,
    /// Lines of the log that were dropped because the disk or the console was too slow.
    pub log_dropped: u64,
}

/// Reads what processes use.
pub trait ProcessReader: Debug + Send + Sync + 'static {
    /// What a process uses; none if it has gone. Without a number: this one.
    fn usage(&self, pid: Option<u32>) -> Option<ProcessUsage>;

    /// How long its threads were ready to run while others had the processors; none where the system does
    /// not tell.
    fn waited(&self, pid: u32) -> Option<Duration>;

    /// What else is known of this one.
    fn own(&self) -> OwnProcess;
}

/// Knows nothing.
#[derive(Debug)]
pub(super) struct NoProcesses;

impl ProcessReader for NoProcesses {
    fn usage(&self, _pid: Option<u32>) -> Option<ProcessUsage> {
        None
    }

    fn waited(&self, _pid: u32) -> Option<Duration> {
        None
    }

    fn own(&self) -> OwnProcess {
        OwnProcess::default()
    }
}
