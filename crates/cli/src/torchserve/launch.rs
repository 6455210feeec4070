//! Leaving the server behind: the launcher starts this very program again, notes its pid and ends.
//! The server keeps the launcher's output, so that whoever reads it sees the start succeed or fail.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use super::pid::PidFile;
use crate::failure::Failure;

/// Starts the server and returns at once.
pub fn in_background(args: &[OsString], pid_file: &PidFile) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| cannot_start(&error))?;
    // The hidden flag goes before the others: `--models` would swallow a word after it.
    let child = Command::new(program)
        .args(args.get(1))
        .arg("--detached")
        .args(args.iter().skip(2))
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| cannot_start(&error))?;
    pid_file
        .write(child.id())
        .map_err(|error| Failure::failed(format!("cannot write the pid file: {error}")))
}

/// The server becomes the leader of a session of its own, so that closing the terminal does not end
/// it. It already is one if that fails.
pub fn detach_terminal() {
    let _ = rustix::process::setsid();
}

fn cannot_start(error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot start the server: {error}"))
}
