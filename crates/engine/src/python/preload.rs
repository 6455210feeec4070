//! Modules that one process imports, from which workers are forked: an import that takes seconds is done once, and what
//! it writes into memory is shared.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use tokio::process::Command;
use tokio::sync::Mutex;

use crate::process::{ForkError, ForkOrder, ForkServer, OutputSink, ProcessThread, WorkerProcess};

/// By which a process finds out that the server has ended before it could ask the kernel to be told.
pub(super) const PARENT_VARIABLE: &str = "JITNEY_WORKER_PARENT";

/// The process from which workers are forked, and how to start it.
pub(crate) struct Preload {
    processes: Arc<ProcessThread>,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    server: Mutex<Forks>,
}

/// Who forks.
#[derive(Default)]
enum Forks {
    /// Nobody yet, or nobody any more.
    #[default]
    Nobody,
    /// Dropping the process ends it.
    Server { server: Arc<ForkServer>, _process: WorkerProcess },
    /// The modules are not fit for it.
    Never,
}

impl Preload {
    pub(super) fn new(
        processes: &Arc<ProcessThread>,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        let processes = Arc::clone(processes);
        Self { processes, command: Box::new(command), server: Mutex::default() }
    }

    /// Forks a worker that gets what the command would give it; where that does not work it is started by itself.
    pub(super) async fn start_worker<S: OutputSink>(
        &self,
        command: Command,
        mut output: [S; 2],
    ) -> io::Result<WorkerProcess> {
        if let Some(server) = self.server().await {
            match self.processes.fork(Arc::clone(&server), order(&command), output).await {
                Ok(process) => return Ok(process),
                Err(None) => return Err(io::Error::other("the server is ending")),
                Err(Some((error, sinks))) => {
                    output = sinks;
                    self.tell(error, &server).await;
                }
            }
        }
        let [stdout, stderr] = output;
        self.processes.spawn(command, stdout, stderr).await
    }

    /// The process that has imported the modules; started now if there is none.
    async fn server(&self) -> Option<Arc<ForkServer>> {
        let mut server = self.server.lock().await;
        if matches!(*server, Forks::Nobody) {
            let mut command = (self.command)();
            command.env(PARENT_VARIABLE, std::process::id().to_string());
            let output = [(); 2].map(|()| PreloadOutput);
            match self.processes.start_fork_server(command, output).await {
                Ok((it, process)) => *server = Forks::Server { server: it, _process: process },
                Err(error) => {
                    tracing::warn!(%error, "modules cannot be imported once for all workers")
                }
            }
        }
        match &*server {
            Forks::Server { server, .. } => Some(Arc::clone(server)),
            Forks::Nobody | Forks::Never => None,
        }
    }

    /// Says why a worker is started by itself. A fork server that is of no more use is left to end.
    async fn tell(&self, error: ForkError, server: &Arc<ForkServer>) {
        let next = match error {
            ForkError::Unfit(why) => {
                return tracing::info!("a worker imports its modules by itself: {why}");
            }
            ForkError::Never(why) => {
                tracing::warn!("all workers import their modules by themselves: {why}");
                Forks::Never
            }
            ForkError::Gone(error) => {
                tracing::warn!(%error, "the process that imports modules once is gone; a worker is started by itself");
                Forks::Nobody
            }
        };
        let mut now = self.server.lock().await;
        if matches!(&*now, Forks::Server { server: it, .. } if Arc::ptr_eq(it, server)) {
            *now = next;
        }
    }
}

/// What a command would give its process. A forked one has another parent.
fn order(command: &Command) -> ForkOrder {
    let command = command.as_std();
    let given = command.get_envs().filter(|(name, _)| *name != PARENT_VARIABLE);
    let given = given.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let dir = command.get_current_dir().map(ToOwned::to_owned).unwrap_or_default();
    ForkOrder { dir, env: given.collect::<Vec<(OsString, OsString)>>() }
}

/// Logs what the process prints before it forks.
struct PreloadOutput;

impl OutputSink for PreloadOutput {
    fn take(&mut self, piece: &[u8], _begins: bool) {
        let line = String::from_utf8_lossy(piece);
        if !line.trim().is_empty() {
            tracing::info!("preload: {}", line.trim_end());
        }
    }
}
