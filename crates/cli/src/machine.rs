//! Processors and name of this machine; for GPUs see [`crate::gpu`].

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
