//! SIGTERM and SIGINT: the first starts the drain, the second ends the process at once. On request the
//! end of standard input counts as the first signal.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// The exit code after a second signal, as of a shell.
const INTERRUPTED: i32 = 130;

/// Resolves at the next SIGTERM or SIGINT.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The signals that end a server.
pub struct ShutdownSignals {
    first: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Resolves at the end of standard input; `None` if it is not watched.
    input: Option<oneshot::Receiver<()>>,
    scratch: PathBuf,
}

impl ShutdownSignals {
    /// Listens for the signals; a second one removes `scratch` before it ends the process.
    pub fn listen(scratch: &Path) -> io::Result<Self> {
        Ok(Self { first: Box::pin(stop_signal()?), input: None, scratch: scratch.to_owned() })
    }

    /// Treats the end of standard input as a signal: a parent process that holds the other end of the
    /// pipe never leaves this process running, however it ends.
    pub fn watch_stdin(&mut self) -> io::Result<()> {
        let (ended, input) = oneshot::channel();
        // A thread of its own: a read cannot be cancelled, and the runtime waits for its own threads.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
            drop(ended);
        })?;
        self.input = Some(input);
        Ok(())
    }

    /// Waits for the first signal. From then on the next one ends the process.
    #[expect(clippy::disallowed_methods, reason = "a second signal ends the process at once")]
    pub async fn first(&mut self) {
        tokio::select! {
            () = &mut self.first => {}
            () = stdin_ended(&mut self.input) => {}
        }
        if let Ok(second) = stop_signal() {
            let scratch = self.scratch.clone();
            tokio::spawn(async move {
                second.await;
                let _ = std::fs::remove_dir_all(&scratch);
                std::process::exit(INTERRUPTED);
            });
        }
    }
}

/// Resolves at the end of standard input; never if it is not watched.
async fn stdin_ended(input: &mut Option<oneshot::Receiver<()>>) {
    match input {
        // The sender sends nothing; it is dropped.
        Some(input) => drop(input.await),
        None => std::future::pending().await,
    }
}
