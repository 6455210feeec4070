//! The GPUs of this machine: how many there are, how busy they are and what is held there, as `nvidia-smi` reports.
//!
//! Without that program the GPUs that the driver lists are counted, then AMD's, then Apple's. A broken driver can make
//! a program hang, so it has a timeout.

mod listings;

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

/// Variables by which an operator chooses devices, of NVIDIA and AMD.
const CHOSEN: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// Devices that workers may be given.
pub fn count(env: &Env) -> u32 {
    FoundDevices::find(env).count
}

/// The devices of this machine, looked for once: `nvidia-smi` takes a second where the driver sleeps.
pub struct FoundDevices {
    /// Those that workers may be given: those that a variable of the operator names, else all.
    pub count: u32,
    /// Those that the operator names.
    chosen: Option<Vec<String>>,
    /// Where nobody names any, NVIDIA's by UUID.
    listed: Vec<String>,
    smi: Option<NvidiaSmi>,
}

impl FoundDevices {
    /// Looks for them. Blocks.
    pub fn find(env: &Env) -> Self {
        let (chosen, smi) = (visible(env), NvidiaSmi::find(env));
        let listing = smi.as_ref().filter(|_| chosen.is_none());
        let listed = listing.map_or_else(Vec::new, NvidiaSmi::devices);
        let count = match &chosen {
            Some(chosen) => chosen.len() as u32,
            None if listed.is_empty() => unlisted(env),
            None => listed.len() as u32,
        };
        Self { count, chosen, listed, smi }
    }

    /// How workers are placed by the memory of so many GPUs; none where it is switched off, or nobody tells their
    /// memory, as of parts of GPUs.
    pub fn memory(&self, limit: DeviceMemory, gpus: u32) -> Option<GpuMemoryConfig> {
        let smi = self.smi.clone().filter(|_| gpus > 0 && limit != DeviceMemory::Off)?;
        let mut named = self.chosen.as_ref().unwrap_or(&self.listed).iter();
        if named.any(|name| listings::is_part(name)) {
            return None;
        }
        let numbers = || (0..gpus).map(|id| id.to_string()).collect();
        let names = self.chosen.clone().unwrap_or_else(numbers);
        let list = move || {
            let text = smi.output(&[MEMORY_QUERY, FORMAT]).unwrap_or_default();
            readings(&text, &names)
        };
        Some(GpuMemoryConfig { limit, list: Arc::new(list) })
    }

    /// The NUMA node of each, where `/sys` says it; workers count GPUs as they lie on the bus.
    pub fn nodes(&self) -> Vec<Option<u32>> {
        if self.count == 0 || self.listed.iter().any(|name| listings::is_part(name)) {
            return Vec::new();
        }
        let nodes = listings::nodes(Path::new(listings::PCI));
        let node = |number: usize| nodes.get(number).copied().flatten();
        match &self.chosen {
            Some(names) => names.iter().map(|name| node(name.parse().ok()?)).collect(),
            None => (0..self.count as usize).map(node).collect(),
        }
    }

    /// The workers' environment, in which CUDA numbers GPUs as `nvidia-smi` does, where that matters (`by_memory`), and
    /// parts of GPUs have names. What the operator has set stays.
    pub fn in_order(
        &self,
        mut worker: Vec<(OsString, OsString)>,
        by_memory: bool,
    ) -> Vec<(OsString, OsString)> {
        if by_memory && worker.iter().all(|(name, _)| name != "CUDA_DEVICE_ORDER") {
            worker.push(("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into()));
        }
        worker.extend(named_parts(&self.listed));
        worker
    }
}

/// GPUs that the driver of NVIDIA lists without its program, else AMD's or Apple's.
fn unlisted(env: &Env) -> u32 {
    let listed = std::fs::read_dir("/proc/driver/nvidia/gpus");
    let listed = listed.map_or(0, |entries| entries.count() as u32);
    if listed > 0 { listed } else { listings::rocm(Path::new(listings::ROCM)).max(apple(env)) }
}

/// Apple's GPUs, as macOS tells.
fn apple(env: &Env) -> u32 {
    let program = on_path(Path::new("system_profiler"), env);
    let text = program.and_then(|program| {
        let mut command = Command::new(program);
        command.arg("SPDisplaysDataType");
        output(command, TIMEOUT)
    });
    text.map_or(0, |text| listings::apple(&text))
}

/// The devices that the operator names. CUDA stops at the first invalid entry, too.
fn visible(env: &Env) -> Option<Vec<String>> {
    let named = CHOSEN.iter().find_map(|name| env.text(name))?;
    let named = named.split(',').map(str::trim);
    let valid = named.take_while(|one| !one.is_empty() && *one != "-1");
    Some(valid.map(str::to_owned).collect())
}

/// The variable that names devices, where one of them is a part of a GPU.
fn named_parts(devices: &[String]) -> Option<(OsString, OsString)> {
    let named = devices.iter().any(|name| listings::is_part(name));
    named.then(|| ("CUDA_VISIBLE_DEVICES".into(), devices.join(",").into()))
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

    /// The devices that CUDA can use, by UUID. Blocks.
    fn devices(&self) -> Vec<String> {
        self.output(&["-L"]).map_or_else(Vec::new, |text| listings::nvidia(&text))
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
        let env = Env::default();
        let devices = FoundDevices::find(&env);
        let ordered = devices.in_order(Vec::new(), true);
        assert_eq!(ordered, [("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into())]);
        assert_eq!(devices.in_order(ordered.clone(), true), ordered);
        assert!(devices.in_order(Vec::new(), false).is_empty());
    }

    #[test]
    fn parts_of_gpus_are_named_for_workers() {
        let names = |text: &str| named_parts(&listings::nvidia(text)).map(|(_, value)| value);
        let cut = "GPU 0: A (UUID: GPU-a)\n  MIG 1g (UUID: MIG-1)\n  MIG 1g (UUID: MIG-2)\n";
        assert_eq!(names(cut), Some("MIG-1,MIG-2".into()));
        assert_eq!(names("GPU 0: A (UUID: GPU-a)\n"), None);
    }

    #[test]
    fn visible_devices_are_counted_as_cuda_counts_them() {
        for (visible, expected) in [("0,1", 2), ("", 0), ("-1", 0), ("3,-1,2", 1), ("GPU-a", 1)] {
            let env = Env::from([("CUDA_VISIBLE_DEVICES", visible)]);
            assert_eq!(count(&env), expected, "{visible}");
        }
        assert_eq!(count(&Env::from([("HIP_VISIBLE_DEVICES", "0,2")])), 2);
    }
}
