//! Processors and name of this machine; for GPUs see [`crate::gpu`].

use std::time::Duration;

use jitney_settings::server::IO_THREADS;
use jitney_settings::{SettingSource, Values};
use rustix::time::{ClockId, clock_gettime};

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

/// The time since the machine was started, sleep included. Setting the time of day does not change it.
pub fn uptime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
