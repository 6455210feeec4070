//! The GPUs of this machine: how many there are and how busy they are, as `nvidia-smi` reports.
//!
//! Without that program the GPUs that the driver lists are counted. A broken driver can make the
//! program hang, so it has a timeout.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jitney_telemetry::metrics::GpuSample;

use crate::env::Env;
use crate::python::on_path;
use crate::subprocess::output;

const TIMEOUT: Duration = Duration::from_secs(10);

const QUERY: &str = "--query-gpu=index,utilization.gpu,utilization.memory,memory.used,memory.total";
const FORMAT: &str = "--format=csv,noheader,nounits";

/// GPUs that workers may be given: those that `CUDA_VISIBLE_DEVICES` names if it is set, else all.
pub fn count(env: &Env) -> u32 {
    if let Some(visible) = env.text("CUDA_VISIBLE_DEVICES") {
        // CUDA stops at the first invalid entry, too.
        let named = visible.split(',').map(str::trim);
        return named.take_while(|one| !one.is_empty() && *one != "-1").count() as u32;
    }
    match NvidiaSmi::find(env).and_then(|smi| smi.output(&["--query-gpu=index", FORMAT])) {
        Some(text) => text.lines().filter(|line| line.trim().parse::<u32>().is_ok()).count() as u32,
        None => {
            let listed = std::fs::read_dir("/proc/driver/nvidia/gpus");
            listed.map_or(0, |entries| entries.count() as u32)
        }
    }
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
    fn visible_devices_are_counted_as_cuda_counts_them() {
        for (visible, expected) in [("0,1", 2), ("", 0), ("-1", 0), ("3,-1,2", 1), ("GPU-a", 1)] {
            let env = Env::from([("CUDA_VISIBLE_DEVICES", visible)]);
            assert_eq!(count(&env), expected, "{visible}");
        }
    }
}
