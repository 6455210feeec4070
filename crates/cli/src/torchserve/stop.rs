//! `--stop`: finds the server by its pid file, asks it to end, cleans up after it.

use std::time::Duration;

use super::pid::PidFile;
use crate::key_file::KEY_FILE;
use crate::talk;

/// How long `--stop --foreground` waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the recorded server. Nothing to stop is no error.
pub fn stop(pid_file: &PidFile, wait: bool) {
    let Some(recorded) = pid_file.recorded() else {
        return talk::out("TorchServe is not currently running.");
    };
    if !recorded.runs() {
        talk::out("Removing orphan pid file.");
        talk::out("TorchServe is not currently running.");
        return pid_file.remove();
    }
    if !recorded.terminate() {
        talk::out("TorchServe already stopped.");
    } else if !wait {
        talk::out("TorchServe has stopped.");
    } else if !recorded.wait(PATIENCE) {
        talk::out("Stopping TorchServe took too long.");
    }
    pid_file.remove();
    let _ = std::fs::remove_file(KEY_FILE);
}
