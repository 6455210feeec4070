//! Processors and name of this machine; for GPUs see [`crate::gpu`].

use jitney_settings::model::WORKERS;
use jitney_settings::server::{IO_THREADS, MAX_WORKERS_PER_MODEL};
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
