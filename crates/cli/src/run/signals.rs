//! SIGTERM and SIGINT: the first starts the drain, the second ends the process at once. On request the
//! end of standard input counts as the first signal.

use std::io;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The exit code after a second signal, as of a shell.
const INTERRUPTED: i32 = 130;

/// The signals that end a server.
pub struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
    /// Resolves at the end of standard input; `None` if it is not watched.
    input: Option<oneshot::Receiver<()>>,
    scratch: PathBuf,
}

impl ShutdownSignals {
    /// Listens for the signals; a second one removes `scratch` before it ends the process.
    pub fn listen(scratch: &Path) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            input: None,
            scratch: scratch.to_owned(),
        })
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
        let Self { terminate, interrupt, input, .. } = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stdin_ended(input) => {}
        }
        if let Ok(mut second) = Self::listen(&self.scratch) {
            tokio::spawn(async move {
                second.next().await;
                let _ = std::fs::remove_dir_all(&second.scratch);
                std::process::exit(INTERRUPTED);
            });
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
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
