//! One worker of a pool: what is known of it, and what others see of that.

use std::sync::Arc;
use std::time::SystemTime;

use jitney_settings::CpuList;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::batches::WorkerBatch;
use super::worker::{CollectorPauses, GraphMemory, Launcher, LoadProgress, WorkerCapacity};

/// A worker as others see it.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Its id, never used again after it has gone.
    pub id: u32,
    /// When it was asked for.
    pub started: SystemTime,
    /// Whether it has loaded the model.
    pub ready: bool,
    /// The process id, for workers that are processes.
    pub pid: Option<u32>,
    /// Bytes of memory it uses; 0 when not measured.
    pub memory: u64,
    /// The GPU it was given, if any.
    pub gpu: Option<u32>,
    /// The processors that it is kept to, if any.
    pub cpus: Option<CpuList>,
    /// How far it is with loading and warming up, if it says so.
    pub progress: Option<LoadProgress>,
    /// The graphs that it captured.
    pub graphs: Option<GraphMemory>,
    /// Bytes that it holds on its GPU, as it said last.
    pub gpu_memory: Option<u64>,
    /// What its garbage collector has done, as it said last.
    pub pauses: Option<CollectorPauses>,
    /// Times that it was started again.
    pub restarts: u32,
}

/// A worker as its pool knows it.
pub(super) struct PoolWorker {
    /// Taken when the worker is asked to stop.
    pub(super) retire: Option<oneshot::Sender<()>>,
    /// The way to the worker since it was last started.
    pub(super) batches: Option<mpsc::Sender<WorkerBatch>>,
    /// Tells its supervisor that a caller went away.
    pub(super) left: Arc<Notify>,
    pub(super) task: JoinHandle<()>,
    /// The thread of its supervisor.
    pub(super) thread: usize,
    pub(super) started: SystemTime,
    /// When its load began, or begins after a pause.
    pub(super) loads_from: Instant,
    pub(super) state: PoolWorkerState,
    pub(super) pid: Option<u32>,
    /// Since it was last started.
    pub(super) capacity: WorkerCapacity,
    pub(super) progress: Option<LoadProgress>,
    pub(super) graphs: Option<GraphMemory>,
    pub(super) gpu_memory: Option<u64>,
    pub(super) pauses: Option<CollectorPauses>,
    pub(super) restarts: u32,
    /// The worker that is to stop once this one serves.
    pub(super) replaces: Option<u32>,
}

/// How far a worker is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolWorkerState {
    /// Starting, or between two starts.
    Starting,
    /// It has loaded the model and is being warmed up.
    WarmingUp,
    /// It serves.
    Ready,
    /// Starting again was given up.
    GivenUp,
    /// Asked to stop once its batch is done.
    Stopping,
}

impl PoolWorkerState {
    /// Whether it has loaded the model.
    pub(super) fn serves(self) -> bool {
        matches!(self, Self::WarmingUp | Self::Ready)
    }
}

impl PoolWorker {
    /// As others see it.
    pub(super) fn view(&self, id: u32, launcher: &dyn Launcher) -> WorkerView {
        WorkerView {
            id,
            started: self.started,
            ready: self.state == PoolWorkerState::Ready,
            pid: self.pid,
            memory: 0,
            gpu: launcher.gpu(id),
            cpus: launcher.cpus(id),
            progress: self.progress.clone(),
            graphs: self.graphs,
            gpu_memory: self.gpu_memory,
            pauses: self.pauses,
            restarts: self.restarts,
        }
    }
}
