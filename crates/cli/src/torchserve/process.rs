//! A server in the background. The launcher starts this very program again, notes its pid and ends; the
//! server keeps the launcher's output, so that whoever reads it sees the start succeed or fail.
//! `--stop` finds the server by its pid file. The file lies in the temporary directory, so servers with
//! different ones do not see each other.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::console;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::key_file::KEY_FILE;

/// The file, which may or may not exist.
#[derive(Clone, Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// The file of this environment.
    pub fn of(env: &Env) -> Self {
        Self(env.temp_dir().join(".model_server.pid"))
    }

    /// The recorded process, whether or not it still runs; nothing if there is no file.
    pub fn recorded(&self) -> Option<Recorded> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        Some(Recorded(
            text.lines().next().and_then(|line| line.trim().parse().ok()).and_then(Pid::from_raw),
        ))
    }

    /// Records a process.
    pub fn write(&self, pid: u32) -> io::Result<()> {
        std::fs::write(&self.0, pid.to_string())
    }

    /// Removes the file; one that is already gone is fine.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
    }

    /// Removes the file if it still names this process. Where the process was to replace another one that still
    /// runs, the file names that one again.
    pub fn remove_own(&self, before: Option<Recorded>) {
        let own = rustix::process::getpid();
        if self.recorded().is_some_and(|recorded| recorded.0 == Some(own)) {
            self.remove();
            if let Some(Recorded(Some(pid))) =
                before.filter(|before| before.0 != Some(own) && before.runs())
            {
                let _ = self.write(pid.as_raw_nonzero().get().unsigned_abs());
            }
        }
    }
}

/// What the file says; no number if it is damaged.
#[derive(Clone, Copy, Debug)]
pub struct Recorded(Option<Pid>);

impl Recorded {
    /// Whether the process runs and is a server of ours: numbers are reused, and no
    /// other process may be stopped.
    pub fn runs(self) -> bool {
        self.0.is_some_and(|pid| test_kill_process(pid).is_ok() && is_ours(pid))
    }

    /// Asks the process to end.
    pub fn terminate(self) -> bool {
        self.0.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
    }

    /// Waits until the process is gone; false if it outlives `patience`.
    #[expect(clippy::disallowed_methods, reason = "a process that is no child can only be polled")]
    pub fn wait(self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.runs() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// Compares program names where /proc shows them, and the programs where one was called by a link of another name. A
/// process that only waits to be reaped is gone.
fn is_ours(pid: Pid) -> bool {
    let Some((ours, _)) = name_and_state("self") else { return true };
    let pid = pid.as_raw_nonzero().to_string();
    let program = |pid: &str| {
        let file = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some((file.dev(), file.ino()))
    };
    name_and_state(&pid).is_some_and(|(name, state)| {
        let same = name == ours || program(&pid).is_some_and(|file| program("self") == Some(file));
        same && !matches!(state, 'Z' | 'X')
    })
}

/// Reads `pid (name) state …`; the name may hold brackets and spaces.
fn name_and_state(pid: &str) -> Option<(String, char)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once(" (")?;
    Some((name.to_owned(), tail.chars().next()?))
}

/// The class that the Java virtual machine of TorchServe runs.
const JAVA_CLASS: &str = "org.pytorch.serve.ModelServer";

/// Starts the server and returns at once.
pub fn in_background(args: &[OsString], pid_file: Option<&PidFile>) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(cannot("start the server"))?;
    // The hidden flags go before the others: `--models` would swallow a word after it. AWS's toolkit finds the server
    // by the name of TorchServe's class among its arguments.
    let child = Command::new(program)
        .args(args.get(1))
        .args(["--detached", "--marker", JAVA_CLASS])
        .args(args.iter().skip(2))
        .stdin(Stdio::null())
        .spawn()
        .map_err(cannot("start the server"))?;
    pid_file.map_or(Ok(()), |file| file.write(child.id())).map_err(cannot("write the pid file"))
}

/// The server becomes the leader of a session of its own, so that closing the terminal does not end
/// it. It already is one if that fails.
pub fn detach_terminal() {
    let _ = rustix::process::setsid();
}

/// How long `--stop --foreground` waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the recorded server. Nothing to stop is no error.
pub fn stop(pid_file: &PidFile, wait: bool) {
    let Some(recorded) = pid_file.recorded() else {
        return console::out("TorchServe is not currently running.");
    };
    if !recorded.runs() {
        console::out("Removing orphan pid file.");
        console::out("TorchServe is not currently running.");
        return pid_file.remove();
    }
    if !recorded.terminate() {
        console::out("TorchServe already stopped.");
    } else if !wait {
        console::out("TorchServe has stopped.");
    } else if !recorded.wait(PATIENCE) {
        console::out("Stopping TorchServe took too long.");
    }
    pid_file.remove();
    let _ = std::fs::remove_file(KEY_FILE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, PidFile) {
        let dir = tempfile::tempdir().expect("directory");
        let env = Env::from([("TMPDIR", dir.path().to_str().expect("text"))]);
        let file = PidFile::of(&env);
        (dir, file)
    }

    #[test]
    fn a_file_without_a_living_server_does_not_count_as_running() {
        let (_dir, file) = file();
        assert!(file.recorded().is_none());
        file.write(1).expect("writes");
        assert!(file.recorded().is_some_and(|recorded| !recorded.runs()));
        std::fs::write(&file.0, "not a number").expect("writes");
        assert!(file.recorded().is_some_and(|recorded| !recorded.runs()));
    }

    #[test]
    fn only_the_own_file_is_removed_at_exit() {
        let (_dir, file) = file();
        file.write(1).expect("writes");
        file.remove_own(None);
        assert!(file.recorded().is_some());
        file.write(std::process::id()).expect("writes");
        assert!(file.recorded().is_some_and(Recorded::runs));
        file.remove_own(None);
        assert!(file.recorded().is_none());
    }
}
