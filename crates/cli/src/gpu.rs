//! The GPUs of this machine, as `nvidia-smi` tells of them: how many there are, and how busy.
//!
//! Where there is no such program there are no GPUs, unless the driver itself lists some. The program
//! may hang where a driver is broken, so it is never waited for without end.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use jitney_server::metrics::GpuSample;

use crate::env::Env;

const PATIENCE: Duration = Duration::from_secs(10);

const QUERY: &str = "--query-gpu=index,utilization.gpu,utilization.memory,memory.used,memory.total";
const FORMAT: &str = "--format=csv,noheader,nounits";

/// GPUs that workers may be given: those that `CUDA_VISIBLE_DEVICES` names if it is set, else all.
pub fn count(env: &Env) -> u32 {
    if let Some(visible) = env.text("CUDA_VISIBLE_DEVICES") {
        // CUDA itself stops at the first entry that is none.
        let named = visible.split(',').map(str::trim);
        return named.take_while(|one| !one.is_empty() && *one != "-1").count() as u32;
    }
    match Smi::find(env).and_then(|smi| smi.said(&["--query-gpu=index", FORMAT])) {
        Some(text) => text.lines().filter(|line| line.trim().parse::<u32>().is_ok()).count() as u32,
        None => {
            let listed = std::fs::read_dir("/proc/driver/nvidia/gpus");
            listed.map_or(0, |entries| entries.count() as u32)
        }
    }
}

/// The program.
#[derive(Clone, Debug)]
pub struct Smi(PathBuf);

impl Smi {
    /// Finds it on the path.
    pub fn find(env: &Env) -> Option<Self> {
        let path = env.path("PATH")?;
        let mut places = std::env::split_paths(&path).map(|dir| dir.join("nvidia-smi"));
        places.find(|file| file.is_file()).map(Self)
    }

    /// How busy every GPU is. Blocks.
    pub fn look(&self) -> Vec<GpuSample> {
        let text = self.said(&[QUERY, FORMAT]).unwrap_or_default();
        text.lines().filter_map(sample).collect()
    }

    fn said(&self, arguments: &[&str]) -> Option<String> {
        said(&self.0, arguments, PATIENCE)
    }
}

/// `0, 37, 12, 1024, 81559`; what a device does not tell is `[N/A]`.
fn sample(line: &str) -> Option<GpuSample> {
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

/// What a program prints if it ends well in time.
fn said(program: &Path, arguments: &[&str], patience: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (told, text) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text).map(|_| text);
        // Nobody listens any more if it took too long.
        let _ = told.send(read);
    });
    let Ok(text) = text.recv_timeout(patience) else {
        // Fails only when it has ended meanwhile.
        let _ = child.kill().and_then(|()| child.wait());
        tracing::warn!(program = %program.display(), "it does not answer");
        return None;
    };
    child.wait().ok()?.success().then_some(text.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_gaps_in_it_are_left_out() {
        let full = GpuSample {
            index: 1,
            percent: Some(37.0),
            memory_percent: Some(12.0),
            memory_mib: Some((1024.0, 4096.0)),
        };
        assert_eq!(sample("1, 37, 12, 1024, 4096"), Some(full));
        let gaps = sample("0, [N/A], [N/A], 5, [N/A]").expect("a device");
        assert_eq!((gaps.percent, gaps.memory_mib), (None, None));
        assert_eq!(sample("No devices were found"), None);
    }

    #[test]
    fn visible_devices_are_counted_as_cuda_counts_them() {
        for (visible, expected) in [("0,1", 2), ("", 0), ("-1", 0), ("3,-1,2", 1), ("GPU-a", 1)] {
            let env = Env::from([("CUDA_VISIBLE_DEVICES", visible)]);
            assert_eq!(count(&env), expected, "{visible}");
        }
    }

    #[test]
    fn a_program_that_hangs_or_fails_says_nothing() {
        let shell = |script, patience| said(Path::new("/bin/sh"), &["-c", script], patience);
        assert_eq!(shell("echo 0", PATIENCE).as_deref(), Some("0\n"));
        assert_eq!(shell("echo 0; exit 9", PATIENCE), None);
        assert_eq!(shell("while true; do :; done", Duration::ZERO), None);
    }
}
