//! Starts one Python process and waits until it has loaded the model.

use std::future::ready;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jitney_settings::CpuList;
use rustix::process::Resource;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::environment::Environment;
use super::load_command::LoadCommand;
use super::placed_model::{PlacedModel, StartedProcess};
use super::preload::PARENT_VARIABLE;
use super::worker::{OutputSource, PythonWorker, WorkerStream, reaped};
use super::workers::PythonWorkers;
use crate::cpus::CpuAssignment;
use crate::frames::{
    CallingWorker, CallsToken, ExpectedWorker, FrameError, FrameKind, WorkerConnection,
    decode_control, next_frame,
};
use crate::gpu_assignment::{GpuAnswers, GpuAssignment};
use crate::observer::Observer;
use crate::outcome::{LaunchError, LoadFault};
use crate::pool::{
    BoxFuture, Launcher, LoadProgress, LoadedFields, LoadedReport, ProgressSender, Worker,
};
use crate::process::WorkerProcess;

/// How long the rest of what a process has printed is waited for once it has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The most batches that a worker with overlapping stages is given.
const OVERLAP_MAX: u8 = 8;

/// Starts the Python workers of one model version.
pub(crate) struct PythonLauncher {
    python: Arc<PythonWorkers>,
    load: LoadCommand,
    environment: Environment,
    gpus: Option<GpuAssignment>,
    /// The processors that its workers are kept to.
    cpus: Option<Arc<CpuAssignment>>,
    /// Where its workers are placed, if not on this machine.
    remote: Option<Arc<PlacedModel>>,
    /// The workers the model was last scaled to; 0 before that.
    workers: AtomicU32,
    /// Processes started so far.
    starts: AtomicU32,
    /// Receives the metrics that workers print.
    observer: Arc<dyn Observer>,
}

impl Launcher for PythonLauncher {
    fn launch(
        &self,
        worker: u32,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let (expected, calls) = match self.tokens(worker) {
            Ok(tokens) => tokens,
            Err(error) => return Box::pin(ready(Err(LaunchError::Spawn(error.to_string())))),
        };
        let (spawned, source) = self.spawn(worker, &expected, progress.clone());
        let mut message = match self.load.message() {
            Ok(message) => message,
            // Its configuration is nested too deeply.
            Err(error) => {
                return Box::pin(ready(Err(LaunchError::Load(error.to_string().into()))));
            }
        };
        let count = self.workers.load(Ordering::Relaxed);
        if let Some(workers) = message.get_mut("workers").filter(|_| count > 0) {
            *workers = count.into();
        }
        let gpus = self.remote.as_ref().map_or_else(|| self.gpus_of(worker), |it| it.gpus());
        message["gpu_id"] = gpus.first().copied().into();
        if self.cpus.is_some() {
            message["pinned"] = true.into();
        }
        let turns = self.load.gpu_turns && self.remote.is_none();
        if let Some(gpu) = gpus.first().filter(|_| turns) {
            message["gpu_turns"] = json!(self.python.turn_file(*gpu));
        }
        if gpus.len() > 1 {
            message["gpu_ids"] = gpus.into();
        }
        if let Some(calls) = &calls {
            message["calls"] = json!({ "token": calls.token.text() });
        }
        let response_bytes_max = self.python.config.response_bytes_max;
        let (mode, sequence_headers) = (self.load.mode, Arc::clone(&self.load.sequence_headers));
        let (remote, limited) = (self.remote.clone(), self.load.memory_limit.is_some());
        Box::pin(async move {
            let (mut process, paths) = spawned.await?;
            if let (Some(remote), Some(paths)) = (remote, paths) {
                remote.rewrite(&mut message, &paths);
            }
            let loaded = match connected(expected, &mut process).await {
                Ok(connection) => load(connection, &message, &mut process, &progress).await,
                Err(stop) => Err(stop),
            };
            let (connection, slots, report) = match loaded {
                Ok(loaded) => loaded,
                Err(LoadStop::Failed(error)) => return Err(error),
                Err(LoadStop::Ended) => return Err(ended(&mut process, &source).await),
            };
            let worker = PythonWorker {
                process,
                connection,
                slots,
                report,
                mode,
                sequence_headers,
                response_bytes_max,
                too_long: Vec::new(),
                calls,
                broken: None,
                output: limited.then_some(source),
            };
            Ok(Box::new(worker) as Box<dyn Worker>)
        })
    }

    fn set_worker_count(&self, workers: u32) {
        self.workers.store(workers, Ordering::Relaxed);
        self.cpus.iter().for_each(|cpus| cpus.set_count(workers));
    }

    fn gpu_ids(&self) -> Vec<u32> {
        self.gpus.as_ref().map(GpuAssignment::each).unwrap_or_default()
    }

    fn give_gpu(&self, worker: u32, gpu: u32) {
        self.gpus.iter().for_each(|gpus| gpus.give(worker, gpu));
    }

    fn gpu(&self, worker: u32) -> Option<u32> {
        self.gpus.as_ref()?.first(worker)
    }

    fn gpu_answers(&self, worker: u32) -> Option<GpuAnswers> {
        self.gpus.as_ref()?.answers(worker)
    }

    fn cpus(&self, worker: u32) -> Option<CpuList> {
        self.cpus.as_ref()?.cpus(worker)
    }

    fn forget(&self, worker: u32) {
        self.gpus.iter().for_each(|gpus| gpus.release(worker));
        self.cpus.iter().for_each(|cpus| cpus.release(worker));
    }
}

impl PythonLauncher {
    /// The GPUs that a worker gets; none means the processor.
    fn gpus_of(&self, worker: u32) -> Vec<u32> {
        self.gpus.as_ref().map(|gpus| gpus.assign(worker)).unwrap_or_default()
    }

    /// Workers of one model.
    pub(crate) fn new(
        python: &Arc<PythonWorkers>,
        load: LoadCommand,
        environment: Environment,
        gpus: Option<GpuAssignment>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (workers, starts) = (AtomicU32::default(), AtomicU32::default());
        let (python, cpus, remote) = (Arc::clone(python), None, None);
        Self { python, load, environment, gpus, cpus, remote, workers, starts, observer }
    }

    /// Workers that a cluster places.
    pub(crate) fn placed(mut self, remote: Option<PlacedModel>) -> Self {
        self.remote = remote.map(Arc::new);
        self
    }

    /// Workers that are kept to processors.
    pub(crate) fn pinned(mut self, cpus: Option<Arc<CpuAssignment>>) -> Self {
        self.cpus = cpus;
        self
    }

    /// What the worker says when it connects, and where it calls models.
    fn tokens(&self, worker: u32) -> io::Result<(ExpectedWorker, Option<CallsToken>)> {
        let LoadCommand { model, version, calls, .. } = &self.load;
        let caller = || CallingWorker { model: model.clone(), version: version.clone(), worker };
        let listener = &self.python.listener;
        let calls = calls.then(|| listener.expect_calls(caller())).transpose()?;
        Ok((listener.expect()?, calls))
    }

    fn spawn(
        &self,
        worker: u32,
        expected: &ExpectedWorker,
        progress: ProgressSender,
    ) -> (StartedProcess, Arc<OutputSource>) {
        let source = Arc::new(OutputSource {
            model: self.load.model.clone(),
            version: self.load.version.clone(),
            worker,
            start: self.starts.fetch_add(1, Ordering::Relaxed),
            observer: Arc::clone(&self.observer),
            last_error: Mutex::default(),
        });
        let output = ["stdout", "stderr"].map(|stream| WorkerStream::new(&source, stream));
        let started = match self.remote.clone() {
            Some(remote) => {
                remote.start(worker, expected.token.text().to_owned(), output, progress)
            }
            None => self.spawn_here(worker, expected, output),
        };
        (started, source)
    }

    fn spawn_here(
        &self,
        worker: u32,
        expected: &ExpectedWorker,
        output: [WorkerStream; 2],
    ) -> StartedProcess {
        let PythonWorkers { config, listener, packages, .. } = &*self.python;
        let (environment, dir) = (&self.environment, &self.load.dir);
        let mut command = config.command(&environment.interpreter, dir);
        command
            .args(["-u", "-m", "jitney.worker"])
            .env("PYTHONPATH", environment.python_path(packages, config, dir))
            .env("JITNEY_WORKER_SOCKET", &listener.path)
            .env("JITNEY_WORKER_TOKEN", expected.token.text())
            .env(PARENT_VARIABLE, std::process::id().to_string());
        let (open_files, memory) = (config.open_files, self.load.memory_limit);
        let (python, is_shared) =
            (Arc::clone(&self.python), *environment == Environment::shared(config));
        let interpreter = environment.interpreter.clone();
        let (cpus, gpu) = (self.cpus.clone(), self.gpus_of(worker).first().copied());
        Box::pin(async move {
            let started = match python.preload.as_ref().filter(|_| is_shared) {
                Some(preload) => preload.start_worker(command, output).await,
                None => {
                    let [stdout, stderr] = output;
                    python.processes.spawn(command, stdout, stderr).await
                }
            };
            let process = started.map_err(|error| {
                LaunchError::Spawn(format!("{}: {error}", interpreter.display()))
            })?;
            if let Some(most) = open_files {
                // As many as the server was started with: `select` fails above 1024, and some programs visit
                // every file that they could have open.
                process.limit(Resource::Nofile, most);
            }
            if let Some(bytes) = memory {
                python.processes.limit_memory(&process, bytes);
            }
            if let Some(cpus) = cpus {
                cpus.pin(worker, gpu, &process);
            }
            Ok((process, None))
        })
    }
}

/// Why a process did not load its model.
enum LoadStop {
    /// It said why, or could not be reached.
    Failed(LaunchError),
    /// It ended or hung up.
    Ended,
}

/// How a process that hung up ended, and the last that it said.
async fn ended(process: &mut WorkerProcess, source: &OutputSource) -> LaunchError {
    let exit = reaped(process).await;
    // It takes long only where a child that left its group holds the pipe.
    drop(timeout(DRAIN_TIMEOUT, process.drained()).await);
    LaunchError::Ended { exit, last_line: source.last_error() }
}

/// Connect = alive. A process that ends instead is reported at once.
async fn connected(
    mut expected: ExpectedWorker,
    process: &mut WorkerProcess,
) -> Result<WorkerConnection, LoadStop> {
    let stream = tokio::select! {
        stream = &mut expected.connection => stream.map_err(|_| LoadStop::Ended)?,
        _ = process.wait() => return Err(LoadStop::Ended),
    };
    let unusable = |error: std::io::Error| LaunchError::Spawn(error.to_string());
    WorkerConnection::new(stream).map_err(|error| LoadStop::Failed(unusable(error)))
}

#[derive(serde::Deserialize)]
struct LoadFailed {
    cause: String,
    message: String,
    #[serde(default)]
    traceback: String,
}

/// What a loaded worker reports.
#[derive(Default, serde::Deserialize)]
struct Loaded {
    /// Batches it can hold at a time, so that their stages overlap; missing means one.
    #[serde(default)]
    slots: u8,
    #[serde(flatten)]
    fields: LoadedFields,
}

/// Handshake = loaded. Returns the connection, the worker's slots and what it found. Steps are passed on.
async fn load(
    mut connection: WorkerConnection,
    message: &Value,
    process: &mut WorkerProcess,
    progress: &ProgressSender,
) -> Result<(WorkerConnection, u8, LoadedReport), LoadStop> {
    connection.send_control(FrameKind::Load, message).await.map_err(|_| LoadStop::Ended)?;
    let failed = |message: String| LoadStop::Failed(LaunchError::Load(message.into()));
    let (header, payload) = loop {
        let received = next_frame(&mut connection, process).await;
        let (header, payload) = received.map_err(|_| LoadStop::Ended)?;
        if header.kind != FrameKind::Progress {
            break (header, payload);
        }
        let step: LoadProgress = decode_control(&payload)
            .map_err(|error| failed(format!("its PROGRESS is unreadable: {error}")))?;
        progress.send(step).await;
    };
    if header.kind == FrameKind::Loaded {
        let loaded: Loaded = decode_control(&payload)
            .map_err(|error| failed(format!("its LOADED is unreadable: {error}")))?;
        let slots = loaded.slots.clamp(1, OVERLAP_MAX);
        Ok((connection, slots, loaded.fields.into()))
    } else if header.kind == FrameKind::LoadFailed {
        Err(LoadStop::Failed(load_failed(&payload)))
    } else {
        Err(failed(FrameError::Unexpected(header.kind).to_string()))
    }
}

fn load_failed(payload: &[u8]) -> LaunchError {
    match decode_control::<LoadFailed>(payload) {
        Ok(LoadFailed { cause, message, traceback }) => {
            let fault = LoadFault { message, traceback };
            if cause == "memory" { LaunchError::Memory(fault) } else { LaunchError::Load(fault) }
        }
        Err(error) => LaunchError::Load(error.to_string().into()),
    }
}
