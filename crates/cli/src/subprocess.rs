//! Other programs that are asked for a text. A broken one may hang, so each has a timeout.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The output of a program that succeeds before the timeout.
pub fn output(mut command: Command, timeout: Duration) -> Option<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
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
        let program = command.get_program().to_string_lossy();
        tracing::warn!(%program, "the program did not end in time");
        return None;
    };
    child.wait().ok()?.success().then_some(text.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_program_that_hangs_or_fails_has_no_output() {
        let shell = |script, timeout| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            output(command, timeout)
        };
        assert_eq!(shell("echo 0", PATIENCE).as_deref(), Some("0\n"));
        assert_eq!(shell("echo 0; exit 9", PATIENCE), None);
        assert_eq!(shell("while true; do :; done", Duration::ZERO), None);
    }
}
