//! The GPUs of this machine: how many there are, how busy they are and what is held there, as `nvidia-smi` reports.
//!
//! Without that program the GPUs that the driver lists are counted. A broken driver can make the
//! program hang, so it has a timeout.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::{GpuMemoryConfig, GpuReading};
use jitney_settings::DeviceMemory;
use jitney_telemetry::metrics::GpuSample;

use crate::env::Env;
use crate::python::on_path;
use crate::subprocess::output;

const TIMEOUT: Duration = Duration::from_secs(10);

const QUERY: &str = "--query-gpu=index,utilization.gpu,utilization.memory,memory.used,memory.total";
const MEMORY_QUERY: &str = "--query-gpu=index,uuid,memory.used,memory.total";
const FORMAT: &str = "--format=csv,noheader,nounits";

/// GPUs that workers may be given: those that `CUDA_VISIBLE_DEVICES` names if it is set, else all.
pub fn count(env: &Env) -> u32 {
    if let Some(visible) = visible(env) {
        return visible.len() as u32;
    }
    match NvidiaSmi::find(env).and_then(|smi| smi.output(&["--query-gpu=index", FORMAT])) {
        Some(text) => text.lines().filter(|line| line.trim().parse::<u32>().is_ok()).count() as u32,
        None => {
            let listed = std::fs::read_dir("/proc/driver/nvidia/gpus");
            listed.map_or(0, |entries| entries.count() as u32)
        }
    }
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` names, if it is set. CUDA stops at the first invalid entry, too.
fn visible(env: &Env) -> Option<Vec<String>> {
    let named = env.text("CUDA_VISIBLE_DEVICES")?;
    let named = named.split(',').map(str::trim);
    let valid = named.take_while(|one| !one.is_empty() && *one != "-1");
    Some(valid.map(str::to_owned).collect())
}

/// How workers are placed by the memory of so many GPUs; none where it is switched off, or nobody tells their memory.
pub fn memory(limit: DeviceMemory, gpus: u32, env: &Env) -> Option<GpuMemoryConfig> {
    let smi = NvidiaSmi::find(env).filter(|_| gpus > 0 && limit != DeviceMemory::Off)?;
    let names = visible(env).unwrap_or_else(|| (0..gpus).map(|id| id.to_string()).collect());
    let list = move || {
        let text = smi.output(&[MEMORY_QUERY, FORMAT]).unwrap_or_default();
        readings(&text, &names)
    };
    Some(GpuMemoryConfig { limit, list: Arc::new(list) })
}

/// The workers' environment, in which CUDA numbers GPUs as `nvidia-smi` does, where that matters. What the operator
/// has set stays.
pub fn in_order(mut env: Vec<(OsString, OsString)>, matters: bool) -> Vec<(OsString, OsString)> {
    if matters && env.iter().all(|(name, _)| name != "CUDA_DEVICE_ORDER") {
        env.push(("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into()));
    }
    env
}

/// Parses lines like `0, GPU-8f3a, 1024, 81559`, in MiB: those of these GPUs, which are named by their number or by the
/// beginning of their UUID, and are counted in this order.
fn readings(text: &str, names: &[String]) -> Vec<GpuReading> {
    let reading = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let [index, uuid, used, total] = fields[..] else { return None };
        let is = |name: &String| match name.parse::<u32>() {
            Ok(_) => name == index,
            Err(_) => uuid.starts_with(name.as_str()),
        };
        let bytes = |mebibytes: &str| Some(mebibytes.parse::<u64>().ok()? << 20);
        let id = names.iter().position(is)? as u32;
        Some(GpuReading { id, used: bytes(used).unwrap_or(0), total: bytes(total) })
    };
    text.lines().filter_map(reading).collect()
}

/// The program `nvidia-smi`.
#[derive(Clone, Debug)]
pub struct NvidiaSmi(PathBuf);

impl NvidiaSmi {
    /// Finds it on the path.
    pub fn find(env: &Env) -> Option<Self> {
        on_path(Path::new("nvidia-smi"), env).map(Self)
    }

    /// How busy every GPU is. Blocks.
    pub fn sample(&self) -> Vec<GpuSample> {
        let text = self.output(&[QUERY, FORMAT]).unwrap_or_default();
        text.lines().filter_map(parse).collect()
    }

    /// The name, the driver and the memory of every GPU, each as one text. Blocks.
    pub fn describe(&self) -> Option<Vec<String>> {
        let text = self
            .output(&["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])?;
        Some(text.lines().map(|line| line.trim().to_owned()).collect())
    }

    fn output(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(&self.0);
        command.args(arguments);
        output(command, TIMEOUT)
    }
}

/// Parses a line like `0, 37, 12, 1024, 81559`; unknown values are `[N/A]`.
fn parse(line: &str) -> Option<GpuSample> {
    let mut fields = line.split(',').map(|field| field.trim().parse::<f64>().ok());
    let index = fields.next()??;
    let [busy, memory_busy, used, total] = [(); 4].map(|()| fields.next().flatten());
    Some(GpuSample {
        index: index as u32,
        percent: busy,
        memory_percent: memory_busy,
        memory_mib: used.zip(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_and_unknown_values_are_left_out() {
        let full = GpuSample {
            index: 1,
            percent: Some(37.0),
            memory_percent: Some(12.0),
            memory_mib: Some((1024.0, 4096.0)),
        };
        assert_eq!(parse("1, 37, 12, 1024, 4096"), Some(full));
        let gaps = parse("0, [N/A], [N/A], 5, [N/A]").expect("a device");
        assert_eq!((gaps.percent, gaps.memory_mib), (None, None));
        assert_eq!(parse("No devices were found"), None);
    }

    #[test]
    fn the_memory_of_visible_gpus_is_read_as_workers_count_them() {
        let text = "0, GPU-aa, 1024, 4096\n1, GPU-bb, 5, [N/A]\nbroken\n2, GPU-bc, [N/A], 2\n";
        let read = |names: &str| {
            let names: Vec<_> = names.split(',').map(str::to_owned).collect();
            let read = readings(text, &names).into_iter();
            read.map(|it| (it.id, it.used >> 20, it.total.map(|it| it >> 20))).collect::<Vec<_>>()
        };
        assert_eq!(read("0,1"), [(0, 1024, Some(4096)), (1, 5, None)]);
        assert_eq!(read("2,0"), [(1, 1024, Some(4096)), (0, 0, Some(2))]);
        assert_eq!(read("GPU-bc,GPU-a"), [(1, 1024, Some(4096)), (0, 0, Some(2))]);
        assert_eq!(read("MIG-x,7"), []);
    }

    #[test]
    fn the_operators_order_of_gpus_stays() {
        let ordered = in_order(Vec::new(), true);
        assert_eq!(ordered, [("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into())]);
        assert_eq!(in_order(ordered.clone(), true), ordered);
        assert!(in_order(Vec::new(), false).is_empty());
    }

    #[test]
    fn visible_devices_are_counted_as_cuda_counts_them() {
        for (visible, expected) in [("0,1", 2), ("", 0), ("-1", 0), ("3,-1,2", 1), ("GPU-a", 1)] {
            let env = Env::from([("CUDA_VISIBLE_DEVICES", visible)]);
            assert_eq!(count(&env), expected, "{visible}");
        }
    }
}
