//! The machine as the cli measured it: processors, memory, disk, GPUs, workers.

use std::collections::HashMap;

const MEBI: f64 = (1u64 << 20) as f64;
const GIBI: f64 = (1u64 << 30) as f64;

/// One measurement of the machine. What could not be read is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemSample {
    /// Percent of all processors' time since the last measurement.
    pub cpu_percent: Option<f64>,
    /// How many processors those are; 0 where that could not be read.
    pub processors: u32,
    /// Bytes of memory: all, and what could still be had.
    pub memory: Option<(u64, u64)>,
    /// Bytes of the root file system: used, and free for this user.
    pub disk: Option<(u64, u64)>,
    /// Bytes of memory by worker process.
    pub workers: HashMap<u32, u64>,
    /// The GPUs.
    pub gpus: Vec<GpuSample>,
}

/// How busy a GPU is. What could not be read is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuSample {
    /// Its number.
    pub index: u32,
    /// Percent of the time in which it computed.
    pub percent: Option<f64>,
    /// Percent of the time in which its memory was read or written.
    pub memory_percent: Option<f64>,
    /// MiB of its memory: used, and all.
    pub memory_mib: Option<(f64, f64)>,
}

impl GpuSample {
    pub(super) fn values(&self) -> Vec<(&'static str, f64)> {
        let mut values = Vec::new();
        if let Some((used, total)) = self.memory_mib {
            values.push(("GPUMemoryUtilization", tenth(100.0 * used / total.max(1.0))));
            values.push(("GPUMemoryUsed", used));
        }
        values.extend(self.percent.map(|percent| ("GPUUtilization", percent)));
        values
    }

    /// The GPU in the description of a worker, in TorchServe's words.
    pub(super) fn usage(&self) -> String {
        let whole = |value: Option<f64>| value.map_or("N/A".to_owned(), |value| value.to_string());
        let (busy, memory) = (whole(self.percent), whole(self.memory_percent));
        let used = whole(self.memory_mib.map(|(used, _)| used));
        format!(
            "gpuId::{} utilization.gpu [%]::{busy} % utilization.memory [%]::{memory} % \
             memory.used [MiB]::{used} MiB",
            self.index
        )
    }
}

impl SystemSample {
    /// The metrics in TorchServe's units.
    pub(super) fn values(&self) -> Vec<(&'static str, f64)> {
        let mut values = Vec::new();
        values.extend(self.cpu_percent.map(|percent| ("CPUUtilization", tenth(percent))));
        if let Some((total, available)) = self.memory {
            let used = total.saturating_sub(available) as f64;
            values.push(("MemoryUsed", used / MEBI));
            values.push(("MemoryAvailable", available as f64 / MEBI));
            values.push(("MemoryUtilization", tenth(100.0 * used / (total as f64).max(1.0))));
        }
        if let Some((used, free)) = self.disk {
            let (used, free) = (used as f64, free as f64);
            values.push(("DiskUsage", used / GIBI));
            values.push(("DiskAvailable", free / GIBI));
            values.push(("DiskUtilization", tenth(100.0 * used / (used + free).max(1.0))));
        }
        values
    }
}

/// One digit after the point, as TorchServe's collector gives percentages.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_torchserves_units() {
        let sample = SystemSample {
            cpu_percent: Some(12.34),
            memory: Some((8 << 20, 6 << 20)),
            disk: Some((3 << 30, 1 << 30)),
            ..SystemSample::default()
        };
        let expected = [
            ("CPUUtilization", 12.3),
            ("MemoryUsed", 2.0),
            ("MemoryAvailable", 6.0),
            ("MemoryUtilization", 25.0),
            ("DiskUsage", 3.0),
            ("DiskAvailable", 1.0),
            ("DiskUtilization", 75.0),
        ];
        assert_eq!(sample.values(), expected);
        assert!(SystemSample::default().values().is_empty());
    }

    #[test]
    fn a_gpu_has_its_own_values_and_text() {
        let gpu = GpuSample {
            index: 1,
            percent: Some(37.0),
            memory_percent: Some(12.0),
            memory_mib: Some((1024.0, 4096.0)),
        };
        let expected =
            [("GPUMemoryUtilization", 25.0), ("GPUMemoryUsed", 1024.0), ("GPUUtilization", 37.0)];
        assert_eq!(gpu.values(), expected);
        let text = "gpuId::1 utilization.gpu [%]::37 % utilization.memory [%]::12 % \
                     memory.used [MiB]::1024 MiB";
        assert_eq!(gpu.usage(), text);
        assert!(GpuSample::default().values().is_empty());
    }
}
