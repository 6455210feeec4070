//! What the machine says about itself, as the cli read it: processors, memory, disk, workers.

use std::collections::HashMap;
use std::sync::PoisonError;

use super::Meter;

const MEBI: f64 = (1u64 << 20) as f64;
const GIBI: f64 = (1u64 << 30) as f64;

/// One look at the machine. What could not be read is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemSample {
    /// Percent of all processors' time since the last look.
    pub cpu_percent: Option<f64>,
    /// Bytes of memory: all, and what could still be had.
    pub memory: Option<(u64, u64)>,
    /// Bytes of the root file system: used, and free for this user.
    pub disk: Option<(u64, u64)>,
    /// Bytes of memory by worker process.
    pub workers: HashMap<u32, u64>,
}

impl Meter {
    /// Records a look at the machine.
    pub fn system(&self, sample: SystemSample) {
        for (name, value) in values(&sample) {
            let metric = self.server.iter().position(|known| known.declaration.name == name);
            self.host(metric, value);
        }
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = sample.workers;
    }
}

/// The metrics in TorchServe's units.
fn values(sample: &SystemSample) -> Vec<(&'static str, f64)> {
    let mut values = Vec::new();
    values.extend(sample.cpu_percent.map(|percent| ("CPUUtilization", tenth(percent))));
    if let Some((total, available)) = sample.memory {
        let used = total.saturating_sub(available) as f64;
        values.push(("MemoryUsed", used / MEBI));
        values.push(("MemoryAvailable", available as f64 / MEBI));
        values.push(("MemoryUtilization", tenth(100.0 * used / (total as f64).max(1.0))));
    }
    if let Some((used, free)) = sample.disk {
        let (used, free) = (used as f64, free as f64);
        values.push(("DiskUsage", used / GIBI));
        values.push(("DiskAvailable", free / GIBI));
        values.push(("DiskUtilization", tenth(100.0 * used / (used + free).max(1.0))));
    }
    values
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
            workers: HashMap::new(),
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
        assert_eq!(values(&sample), expected);
        assert!(values(&SystemSample::default()).is_empty());
    }
}
