//! `--stop`: finds the server by its pid file, asks it to end, cleans up after it.

use std::time::Duration;

use super::pid::PidFile;
use crate::console;
use crate::key_file::KEY_FILE;

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
