//! SIGTERM and SIGINT: the first asks the server to drain, the second ends it on the spot.

use std::io;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What an impatient second signal exits with, as shells report an interrupt.
const IMPATIENT: i32 = 130;

/// The signals that end a server.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    scratch: PathBuf,
}

impl Signals {
    /// Takes the signals over from the system; `scratch` is cleared away if the end is sudden.
    pub fn listen(scratch: &Path) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            scratch: scratch.to_owned(),
        })
    }

    /// Waits for the first signal. From then on the next one ends the process.
    #[expect(clippy::disallowed_methods, reason = "a second signal asks for exactly that")]
    pub async fn first(&mut self) {
        self.next().await;
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
