//! The GPUs of this machine: how many there are and how busy they are, as `nvidia-smi` reports.
//!
//! Without that program the GPUs that the driver lists are counted. A broken driver can make the
//! program hang, so it has a timeout.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use jitney_server::metrics::GpuSample;

use crate::env::Env;
use crate::python::on_path;

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

    fn output(&self, arguments: &[&str]) -> Option<String> {
        output(&self.0, arguments, TIMEOUT)
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

/// The output of a program that succeeds before the timeout.
fn output(program: &Path, arguments: &[&str], timeout: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (sender, text) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text).map(|_| text);
        // The receiver is gone after the timeout.
        let _ = sender.send(read);
    });
    let Ok(text) = text.recv_timeout(timeout) else {
        // Fails only if the program has ended meanwhile.
        let _ = child.kill().and_then(|()| child.wait());
        tracing::warn!(program = %program.display(), "the program did not end in time");
        return None;
    };
    child.wait().ok()?.success().then_some(text.ok()?)
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

    #[test]
    fn a_program_that_hangs_or_fails_has_no_output() {
        let shell = |script, timeout| output(Path::new("/bin/sh"), &["-c", script], timeout);
        assert_eq!(shell("echo 0", TIMEOUT).as_deref(), Some("0\n"));
        assert_eq!(shell("echo 0; exit 9", TIMEOUT), None);
        assert_eq!(shell("while true; do :; done", Duration::ZERO), None);
    }
}
