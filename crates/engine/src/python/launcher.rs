//! Starts one Python process and waits until it has loaded the model.

use std::future::ready;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jitney_settings::CpuList;
use jitney_settings::model::{GPU_MEMORY_FRACTION, GPU_TURNS, MEMORY_LIMIT};
use rustix::process::Resource;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::environment::Environment;
use super::placed_model::{PlacedModel, StartedProcess};
use super::preload::PARENT_VARIABLE;
use super::worker::{OutputSource, PythonWorker, WorkerStream, reaped};
use super::workers::{PythonConfig, PythonWorkers};
use crate::call::SequenceHeaders;
use crate::cpus::CpuAssignment;
use crate::frames::{
    CallingWorker, CallsToken, ExpectedWorker, FrameError, FrameKind, WorkerConnection,
    decode_control, next_frame,
};
use crate::gpu_assignment::GpuAssignment;
use crate::model::ModelIdentity;
use crate::observer::Observer;
use crate::outcome::{LaunchError, LoadFault};
use crate::pool::{
    BoxFuture, Launcher, LoadProgress, LoadedFields, LoadedReport, ProgressSender, Worker,
};
use crate::process::WorkerProcess;
use crate::settings::{ModelSettings, WorkerMode};
use crate::store::Package;

/// How long the rest of what a process has printed is waited for once it has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The most batches that a worker with overlapping stages is given.
const OVERLAP_MAX: u8 = 8;

/// The command that makes a worker load a model (`protocol/spec.md`). Made once for a model version and
/// sent to each of its workers, which add only what differs between them: their GPUs, and how many
/// they are.
#[derive(Clone, Debug)]
pub(crate) struct LoadCommand {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) dir: PathBuf,
    /// The `Load` message of `protocol/spec.md`.
    pub(crate) message: Value,
    pub(crate) mode: WorkerMode,
    /// Bytes that one of its workers may use.
    pub(crate) memory_limit: Option<u64>,
    /// Whether its workers take turns with those of other models on their GPU.
    pub(crate) gpu_turns: bool,
    /// Whether its workers may call models.
    pub(crate) calls: bool,
    /// The headers in which its handler reads about sequences.
    pub(crate) sequence_headers: Arc<SequenceHeaders>,
}

impl LoadCommand {
    /// What the workers of an archive load.
    pub(crate) fn of(
        identity: &ModelIdentity,
        package: &Package,
        settings: &ModelSettings,
        python: &PythonConfig,
        model_metrics: Value,
        compile_cache: Option<PathBuf>,
    ) -> Self {
        let (ModelIdentity { name, version, .. }, mode) = (identity, settings.worker_mode());
        let mut message = json!({
            "model_name": name,
            "model_version": version,
            "model_dir": package.dir.path(),
            "handler": settings.handler,
            "batch_size": settings.batch_size,
            "gpu_id": null,
            "envelope": package.manifest.envelope.as_ref().or(python.envelope.as_ref()),
            "limit_max_image_pixels": python.limit_max_image_pixels,
            "max_image_pixels": python.image_pixels_max,
            "image_formats": python.image_formats,
            "max_expanded_size": python.expanded_bytes_max,
            "debug_errors": python.debug_errors,
            "strict_json": python.strict_json,
            "garbage_collection": python.garbage_collection.as_str(),
            "decode_input": python.decode_input,
            "manifest": package.manifest_json,
            "model_yaml_config": package.yaml_json,
            "server_version": "0.12.0",
            "workers": settings.workers_max.max(1),
            "mode": mode.as_str(),
            "model_metrics": model_metrics,
        });
        let values = &settings.values;
        let share: Option<f64> = values.read(&GPU_MEMORY_FRACTION);
        let list = |list: &[u32]| (!list.is_empty()).then(|| json!(list));
        // There only where they say something.
        for (key, value) in [
            ("sizes", list(&settings.sizes)),
            ("lengths", list(&settings.lengths)),
            ("compile_cache", compile_cache.map(|path| json!(path))),
            ("gpu_memory_fraction", share.map(|share| json!(share))),
        ] {
            if let Some(value) = value {
                message[key] = value;
            }
        }
        let (gpu_turns, memory_limit) = (values.flag(&GPU_TURNS), values.read(&MEMORY_LIMIT));
        let dir = package.dir.path().to_owned();
        let sequence_headers = Arc::clone(&settings.sequence_headers);
        let (model, version) = (name.clone(), version.clone());
        let calls = package.api.is_some();
        Self {
            model,
            version,
            dir,
            message,
            mode,
            memory_limit,
            gpu_turns,
            calls,
            sequence_headers,
        }
    }

    /// The model with this load command on a cluster, if there is one.
    pub(crate) fn placed(
        &self,
        python: &PythonWorkers,
        settings: &ModelSettings,
    ) -> Option<PlacedModel> {
        let placement = Arc::clone(python.placement.as_ref()?);
        let name = format!("{} {}", self.model, self.version);
        let load = (&*self.dir, &self.message);
        Some(PlacedModel::of((placement, &python.packages), name, load, &settings.values))
    }

    /// Says whether handlers' metrics are wanted with the ids of their requests.
    pub(crate) fn with_metric_ids(mut self, wanted: bool) -> Self {
        self.message["metric_ids"] = wanted.into();
        self
    }
}

/// Starts the Python workers of one model version.
pub(crate) struct PythonLauncher {
    python: Arc<PythonWorkers>,
    load: LoadCommand,
    environment: Environment,
    gpus: GpuAssignment,
    /// The processors that its workers are kept to.
    cpus: Option<Arc<CpuAssignment>>,
    /// Where its workers are placed, if not on this machine.
    remote: Option<Arc<PlacedModel>>,
    /// The workers the model was last scaled to; 0 before that.
    workers: AtomicU32,
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
        let mut message = self.load.message.clone();
        let count = self.workers.load(Ordering::Relaxed);
        if let Some(workers) = message.get_mut("workers").filter(|_| count > 0) {
            *workers = count.into();
        }
        let gpus = self.remote.as_ref().map_or_else(|| self.gpus.assign(worker), |it| it.gpus());
        message["gpu_id"] = gpus.first().copied().into();
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
        self.gpus.each()
    }

    fn give_gpu(&self, worker: u32, gpu: u32) {
        self.gpus.give(worker, gpu);
    }

    fn gpu(&self, worker: u32) -> Option<u32> {
        self.gpus.first(worker)
    }

    fn cpus(&self, worker: u32) -> Option<CpuList> {
        self.cpus.as_ref()?.cpus(worker)
    }

    fn forget(&self, worker: u32) {
        self.gpus.release(worker);
        self.cpus.iter().for_each(|cpus| cpus.release(worker));
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
        Self { python, load, environment, gpus, cpus: None, remote: None, workers, observer }
    }

    /// Workers that a cluster places.
    pub(crate) fn placed(mut self, remote: Option<PlacedModel>) -> Self {
        self.remote = remote.map(Arc::new);
        self
    }

    /// Workers that are kept to processors.
    pub(crate) fn pinned(mut self, cpus: Option<Arc<CpuAssignment>>) -> Self {
        if cpus.is_some() {
            self.load.message["pinned"] = true.into();
        }
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
        let (cpus, gpu) = (self.cpus.clone(), self.gpus.assign(worker).first().copied());
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
