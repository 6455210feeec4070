//! Processors, open files and name of this machine; for GPUs see [`crate::gpu`].

use jitney_settings::server::IO_THREADS;
use jitney_settings::{SettingSource, Values};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More open files than this no server needs, and some systems forbid.
const OPEN_FILES_MAX: u64 = 1 << 20;

/// The number of processors that this process may use.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Data-plane threads by default: a quarter of the processors, since one thread feeds many workers.
pub fn threads() -> Values {
    let threads = u64::from(cpus() / 4).max(1);
    Values::default().with(&IO_THREADS, threads, SettingSource::Default)
}

/// How many files and sockets this process may have open.
pub struct OpenFiles {
    /// As it was started; its children get this back.
    pub inherited: Option<u64>,
    /// From now on.
    pub now: Option<u64>,
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

/// The host name, for metrics.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
