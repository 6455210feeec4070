//! SIGTERM and SIGINT: the first asks the server to drain, the second ends it on the spot. The end of
//! standard input counts as the first one where a parent process asked for that.

use std::io;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// What an impatient second signal exits with, as shells report an interrupt.
const IMPATIENT: i32 = 130;

/// The signals that end a server.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Resolves when standard input has ended; `None` where nobody asked.
    input: Option<oneshot::Receiver<()>>,
    scratch: PathBuf,
}

impl Signals {
    /// Takes the signals over from the system; `scratch` is cleared away if the end is sudden.
    pub fn listen(scratch: &Path) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            input: None,
            scratch: scratch.to_owned(),
        })
    }

    /// Takes the end of standard input for a signal: a parent that holds the other end of the pipe
    /// cannot leave this process behind, however it ends.
    pub fn heed_input(&mut self) -> io::Result<()> {
        let (ended, input) = oneshot::channel();
        // A thread of its own: a read cannot be given up, and the runtime waits for its own threads.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
            drop(ended);
        })?;
        self.input = Some(input);
        Ok(())
    }

    /// Waits for the first signal. From then on the next one ends the process.
    #[expect(clippy::disallowed_methods, reason = "a second signal asks for exactly that")]
    pub async fn first(&mut self) {
        let Self { terminate, interrupt, input, .. } = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = ended(input) => {}
        }
        if let Ok(mut second) = Self::listen(&self.scratch) {
            tokio::spawn(async move {
                second.next().await;
                let _ = std::fs::remove_dir_all(&second.scratch);
                std::process::exit(IMPATIENT);
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

/// Waits for the end of standard input; for ever where nobody asked.
async fn ended(input: &mut Option<oneshot::Receiver<()>>) {
    match input {
        // The sender sends nothing, it only goes away.
        Some(input) => drop(input.await),
        None => std::future::pending().await,
    }
}
