//! Samples the machine at intervals, for the system metrics and for whoever looks at the overview.
//!
//! The values come from `/proc` and the root file system, which takes a few dozen microseconds on the
//! admin plane. `nvidia-smi` takes longer and runs on a blocking thread, more often only while somebody
//! looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::Engine;
use jitney_telemetry::Meter;
use jitney_telemetry::metrics::{GpuSample, SystemSample};
use tokio::time::{Instant, MissedTickBehavior};

use crate::gpu::NvidiaSmi;

/// How old the figures of the overview may be.
const FRESH_EVERY: Duration = Duration::from_secs(2);
/// The same for GPUs, while somebody looks.
const FRESH_GPUS_EVERY: Duration = Duration::from_secs(5);

/// Samples for the metrics now and then at every interval, if they are on, and for the overview more often;
/// without end.
pub async fn watch(
    every: Option<Duration>,
    meter: Arc<Meter>,
    engine: Arc<Engine>,
    mut cpu: CpuUsage,
    smi: Option<NvidiaSmi>,
) {
    let mut ticks = tokio::time::interval(every.unwrap_or(FRESH_EVERY).min(FRESH_EVERY));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut recent_cpu, mut gpu_samples) = (CpuUsage::new(), Vec::new());
    let mut gpus_at: Option<Instant> = None;
    let mut record_at = every.map(|_| Instant::now());
    loop {
        let now = ticks.tick().await;
        let records = record_at.is_some_and(|at| at <= now);
        let old = gpus_at.is_none_or(|at| now - at >= FRESH_GPUS_EVERY);
        if records || (old && meter.is_followed()) {
            gpu_samples = gpus(smi.clone()).await;
            gpus_at = Some(now);
        }
        let gpus = gpu_samples.clone();
        if let (true, Some(every)) = (records, every) {
            record_at = record_at.map(|at| (at + every).max(now));
            let workers = workers(&engine);
            meter.system(SystemSample { gpus, workers, ..sample(&mut cpu) });
        } else {
            meter.refresh(SystemSample { gpus, ..sample(&mut recent_cpu) });
        }
    }
}

async fn gpus(smi: Option<NvidiaSmi>) -> Vec<GpuSample> {
    match smi {
        Some(smi) => tokio::task::spawn_blocking(move || smi.sample()).await.unwrap_or_default(),
        None => Vec::new(),
    }
}

fn sample(cpu: &mut CpuUsage) -> SystemSample {
    SystemSample {
        cpu_percent: cpu.percent(),
        processors: cpu.last.map_or(0, |last| last.processors),
        memory: machine_memory(),
        disk: disk(),
        ..SystemSample::default()
    }
}

/// The processor usage between two samples.
pub struct CpuUsage {
    last: Option<CpuTicks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTicks {
    busy: u64,
    all: u64,
    processors: u32,
}

impl CpuUsage {
    /// Takes the first sample.
    pub fn new() -> Self {
        Self { last: CpuTicks::now() }
    }

    fn percent(&mut self) -> Option<f64> {
        let now = CpuTicks::now()?;
        let last = self.last.replace(now)?;
        let (all, busy) = (now.all.checked_sub(last.all)?, now.busy.saturating_sub(last.busy));
        // Two samples within one tick of the kernel show no difference.
        let percent = if all == 0 { 0.0 } else { 100.0 * busy as f64 / all as f64 };
        Some((percent * 10.0).round() / 10.0)
    }
}

impl CpuTicks {
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// `cpu user nice system idle iowait irq softirq steal …`; guests are part of user.
    fn parse(stat: &str) -> Option<Self> {
        let mut lines = stat.lines();
        let fields = lines.next()?.strip_prefix("cpu ")?.split_whitespace();
        let processors = lines.take_while(|line| line.starts_with("cpu")).count() as u32;
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or(0);
        Some(Self { busy: all - idle, all, processors })
    }
}

fn machine_memory() -> Option<(u64, u64)> {
    std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text))
}

/// The bytes of memory that a new process could have.
pub fn available_memory() -> Option<u64> {
    machine_memory().map(|(_, available)| available)
}

/// All and available bytes.
fn memory(meminfo: &str) -> Option<(u64, u64)> {
    Some((kibibytes(meminfo, "MemTotal:")?, kibibytes(meminfo, "MemAvailable:")?))
}

/// The bytes of a line such as `VmRSS:   1234 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// Used and free bytes of the root file system.
fn disk() -> Option<(u64, u64)> {
    let root = rustix::fs::statvfs("/").ok()?;
    let used = root.f_blocks.saturating_sub(root.f_bfree);
    Some((used * root.f_frsize, root.f_bavail * root.f_frsize))
}

/// Resident bytes of every worker that is a process.
fn workers(engine: &Engine) -> HashMap<u32, u64> {
    worker_bytes(engine, "status", "VmRSS:").collect()
}

/// The bytes of all workers together; what they share counts once.
pub fn shared_memory(engine: &Engine) -> u64 {
    worker_bytes(engine, "smaps_rollup", "Pss:").map(|(_, bytes)| bytes).sum()
}

/// A line of a file of `/proc` of every worker that is a process.
fn worker_bytes(
    engine: &Engine,
    file: &'static str,
    line: &'static str,
) -> impl Iterator<Item = (u32, u64)> {
    let versions = engine
        .models()
        .into_iter()
        .flat_map(|model| engine.versions(model.name()).unwrap_or_default());
    let pids = versions.flat_map(|model| model.status().workers).filter_map(|worker| worker.pid);
    pids.filter_map(move |pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        Some((pid, kibibytes(&text, line)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_parsed() {
        let stat = "cpu  10 1 5 80 4 0 0 0 3 0\ncpu0 10 1 5 80 4 0 0 0 3 0\n";
        assert_eq!(CpuTicks::parse(stat), Some(CpuTicks { busy: 16, all: 100, processors: 1 }));
        assert_eq!(CpuTicks::parse("intr 1"), None);
        assert_eq!(CpuTicks::parse("cpu  1 2"), None);
        let meminfo = "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(memory(meminfo), Some((2 << 20, 1 << 20)));
        assert_eq!(memory("MemTotal: x kB"), None);
    }

    #[test]
    fn this_machine_can_be_sampled() {
        let (used, free) = disk().expect("a root file system");
        assert!(used > 0 && free > 0);
        assert!(CpuTicks::now().is_some_and(|ticks| ticks.all > ticks.busy));
    }
}
