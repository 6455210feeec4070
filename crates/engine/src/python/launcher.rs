//! Starts one Python process and waits until it has loaded the model.

use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::connection::{ConnectionError, WorkerConnection};
use super::environment::{Environment, python_path};
use super::frame::{FrameError, FrameKind, decode_control};
use super::gpus::GpuAssignment;
use super::listener::ExpectedWorker;
use super::load_command::LoadCommand;
use super::output::{OutputSource, log_output};
use super::worker::PythonWorker;
use super::workers::PythonWorkers;
use crate::observer::Observer;
use crate::outcome::LaunchError;
use crate::pool::{BoxFuture, Launcher, Worker};
use crate::settings::WorkerMode;

/// The most batches that a worker with overlapping stages is given.
const OVERLAP_MAX: u8 = 8;

/// Starts the Python workers of one model version.
pub(crate) struct PythonLauncher {
    python: Arc<PythonWorkers>,
    load: LoadCommand,
    environment: Environment,
    gpus: GpuAssignment,
    /// The workers the model was last scaled to; 0 before that.
    workers: AtomicU32,
    /// Receives the metrics that workers print.
    observer: Arc<dyn Observer>,
}

impl Launcher for PythonLauncher {
    fn launch(&self, worker: u32) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let expected = self.python.listener.expect();
        let spawned = self.spawn(worker, &expected);
        let mut message = self.load.message.clone();
        let count = self.workers.load(Ordering::Relaxed);
        if let Some(workers) = message.get_mut("workers").filter(|_| count > 0) {
            *workers = count.into();
        }
        let gpus = self.gpus.assign(worker);
        message["gpu_id"] = gpus.first().copied().into();
        if gpus.len() > 1 {
            message["gpu_ids"] = gpus.into();
        }
        let response_bytes_max = self.python.config.response_bytes_max;
        let sequence_headers = Arc::clone(&self.load.sequence_headers);
        Box::pin(async move {
            let mut child = spawned.map_err(|error| LaunchError::Spawn(error.to_string()))?;
            let stream = connected(expected, &mut child).await?;
            let (connection, slots) = load(stream, &message, &mut child).await?;
            let mode = mode_of(&message);
            let worker = PythonWorker::new(
                child,
                connection,
                slots,
                mode,
                sequence_headers,
                response_bytes_max,
            );
            Ok(Box::new(worker) as Box<dyn Worker>)
        })
    }

    fn set_worker_count(&self, workers: u32) {
        self.workers.store(workers, Ordering::Relaxed);
    }

    fn gpu(&self, worker: u32) -> Option<u32> {
        self.gpus.first(worker)
    }

    fn forget(&self, worker: u32) {
        self.gpus.release(worker);
    }
}

impl PythonLauncher {
    /// Workers of one model.
    pub(crate) fn new(
        python: &Arc<PythonWorkers>,
        load: LoadCommand,
        environment: Environment,
        gpus: GpuAssignment,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (python, workers) = (Arc::clone(python), AtomicU32::default());
        Self { python, load, environment, gpus, workers, observer }
    }

    fn spawn(&self, worker: u32, expected: &ExpectedWorker) -> std::io::Result<Child> {
        let mut command = self.command(expected);
        let mut child = command.spawn().map_err(|error| {
            let interpreter = self.environment.interpreter.display();
            std::io::Error::new(error.kind(), format!("{interpreter}: {error}"))
        })?;
        let source = Arc::new(OutputSource {
            model: self.load.model.clone(),
            version: self.load.version.clone(),
            worker,
            observer: Arc::clone(&self.observer),
        });
        if let Some(stdout) = child.stdout.take() {
            let pipe = std::fs::File::from(stdout.into_owned_fd()?);
            log_output(pipe, Arc::clone(&source), "stdout")?;
        }
        if let Some(stderr) = child.stderr.take() {
            log_output(std::fs::File::from(stderr.into_owned_fd()?), source, "stderr")?;
        }
        Ok(child)
    }

    /// A process group of its own keeps the worker out of a terminal's Ctrl-C, so that a drain can
    /// still answer what it was given.
    fn command(&self, expected: &ExpectedWorker) -> Command {
        let mut command = Command::new(&self.environment.interpreter);
        command
            .args(["-u", "-m", "jitney.worker"])
            .env_clear()
            .envs(self.python.config.env.iter().map(|(name, value)| (name, value)))
            .env("PYTHONPATH", self.python_path())
            .env("JITNEY_WORKER_SOCKET", self.python.listener.path())
            .env("JITNEY_WORKER_TOKEN", &expected.token)
            .current_dir(&self.load.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    fn python_path(&self) -> std::ffi::OsString {
        let given = self.python.config.env.iter().find(|(name, _)| name == "PYTHONPATH");
        let (given, packages) = (given.map(|(_, path)| path), self.environment.packages.as_deref());
        python_path(
            self.python.packages(),
            given.map(|path| path.as_os_str()),
            &self.load.dir,
            packages,
        )
    }
}

/// Connect = alive. A process that ends instead is reported at once.
async fn connected(
    mut expected: ExpectedWorker,
    child: &mut Child,
) -> Result<UnixStream, LaunchError> {
    let stream: StdStream = tokio::select! {
        stream = &mut expected.connection => stream.map_err(|_| LaunchError::Ended)?,
        _ = child.wait() => return Err(LaunchError::Ended),
    };
    UnixStream::from_std(stream).map_err(|error| LaunchError::Spawn(error.to_string()))
}

/// How the worker takes its batches.
fn mode_of(message: &serde_json::Value) -> WorkerMode {
    let is_mode = |mode: &WorkerMode| message["mode"] == mode.as_str();
    [WorkerMode::Single, WorkerMode::Continuous]
        .into_iter()
        .find(is_mode)
        .unwrap_or(WorkerMode::Concurrent)
}

#[derive(serde::Deserialize)]
struct LoadFailed {
    cause: String,
    message: String,
}

/// What a loaded worker reports.
#[derive(Default, serde::Deserialize)]
struct Loaded {
    /// Batches it can hold at a time, so that their stages overlap; missing means one.
    #[serde(default)]
    slots: u8,
}

/// Handshake = loaded. Returns the connection and the worker's slots.
async fn load(
    stream: UnixStream,
    message: &serde_json::Value,
    child: &mut Child,
) -> Result<(WorkerConnection, u8), LaunchError> {
    let mut connection = WorkerConnection::new(stream);
    connection.send_control(FrameKind::Load, message).await.map_err(|_| LaunchError::Ended)?;
    let received = tokio::select! {
        biased;
        received = connection.receive() => received,
        _ = child.wait() => Err(ConnectionError::Closed),
    };
    let (header, payload) = received.map_err(|_| LaunchError::Ended)?;
    if header.kind == FrameKind::Loaded {
        let loaded: Loaded = decode_control(&payload)
            .map_err(|error| LaunchError::Load(format!("its LOADED is unreadable: {error}")))?;
        Ok((connection, loaded.slots.clamp(1, OVERLAP_MAX)))
    } else if header.kind == FrameKind::LoadFailed {
        Err(load_failed(&payload))
    } else {
        Err(LaunchError::Load(FrameError::Unexpected(header.kind).to_string()))
    }
}

fn load_failed(payload: &[u8]) -> LaunchError {
    match decode_control::<LoadFailed>(payload) {
        Ok(failed) if failed.cause == "memory" => LaunchError::Memory(failed.message),
        Ok(failed) => LaunchError::Load(failed.message),
        Err(error) => LaunchError::Load(error.to_string()),
    }
}
