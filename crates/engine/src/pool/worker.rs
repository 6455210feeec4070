//! What the pool asks of a worker, whatever it is: a Python process, an ONNX session, a script of the test kit;
//! and what a worker says about loading its model. The pool supervises; a worker only takes batches, sends
//! messages, and can be ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use jitney_settings::CpuList;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::wear::WearLimits;
use crate::error::CallError;
use crate::gpu_assignment::GpuAnswers;
use crate::outcome::{BatchOutcome, LaunchError, Output, WorkerExit};
use crate::pending::PendingRequest;

/// A boxed future that may cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The limits of the workers of one model version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerPlan {
    pub(crate) startup_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) retry_window: Duration,
    /// Batches a worker may hold at a time.
    pub(crate) slots: u8,
    /// After so long without a request the last one ends, where there may be none.
    pub(crate) idle: Duration,
    /// When one is replaced, if ever.
    pub(crate) wear: Option<WearLimits>,
}

/// Starts workers of one model version.
pub trait Launcher: Send + Sync + 'static {
    /// Starts one worker; resolves when it has loaded the model. Dropping the future ends the
    /// worker, which is how the pool enforces the start-up timeout. Every step told to `progress`
    /// starts that timeout anew.
    fn launch(
        &self,
        worker: u32,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>>;

    /// From now on the model has so many workers, which share the machine.
    fn set_worker_count(&self, _workers: u32) {}

    /// How many more workers there is memory for.
    fn room(&self) -> u32 {
        u32::MAX
    }

    /// How long the last load took, without what it waited for before it began; none where it never waits.
    fn load_time(&self) -> Option<Duration> {
        None
    }

    /// The GPUs of which a worker may be given one; none where it gets several, or none.
    fn gpu_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// A worker gets this GPU when it is launched next.
    fn give_gpu(&self, _worker: u32, _gpu: u32) {}

    /// The GPU that a worker was given, if any.
    fn gpu(&self, _worker: u32) -> Option<u32> {
        None
    }

    /// What all models have answered on that GPU.
    fn gpu_answers(&self, _worker: u32) -> Option<GpuAnswers> {
        None
    }

    /// The processors that a worker is kept to, if any.
    fn cpus(&self, _worker: u32) -> Option<CpuList> {
        None
    }

    /// The worker has left and will not be started again.
    fn forget(&self, _worker: u32) {}
}

/// What a worker sends about a batch it was given.
#[derive(Debug)]
pub enum WorkerMessage {
    /// Pieces of answers that are still being made, each with its request's place in the batch.
    Pieces {
        /// The batch.
        batch: u64,
        /// Place and piece.
        pieces: Vec<(usize, Output)>,
    },
    /// The batch is over.
    Finished {
        /// The batch.
        batch: u64,
        /// How it ended, or why a model that the worker called did not take its only request.
        outcome: Result<BatchOutcome, CallError>,
    },
    /// How long a batch took; it comes before its end.
    Times {
        /// The batch.
        batch: u64,
        /// What the worker measured.
        times: BatchTimes,
    },
}

/// What a worker measured of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTimes {
    /// From its first byte, or from when the one before it was prepared, until it was prepared.
    pub prepare: Option<Duration>,
    /// From when the model could take it until its outputs were there.
    pub model: Option<Duration>,
    /// Bytes that the worker holds on its GPU.
    pub gpu_memory: Option<u64>,
    /// How long its garbage collector has paused it until now.
    pub pauses: Option<CollectorPauses>,
    /// Whether the batch goes on beside others from now on: the worker takes the next one at once.
    pub beside: bool,
}

/// What the garbage collector of a worker has done since the model was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorPauses {
    /// How often it ran.
    pub runs: u64,
    /// How long all runs have paused the worker.
    pub total: Duration,
    /// The longest of them.
    pub longest: Duration,
}

/// The worker is gone; [`Worker::exit`] says how.
#[derive(Clone, Copy, Debug)]
pub struct WorkerGone;

/// A loaded worker. It is given no more batches at a time than it has slots.
pub trait Worker: Send + 'static {
    /// The process id, for workers that are processes.
    fn pid(&self) -> Option<u32>;

    /// Bytes of memory that it held when it was last looked at; 0 where nobody looks.
    fn memory(&self) -> u64 {
        0
    }

    /// Bytes that it said it holds on its GPU, until [`report`](Self::report) was told.
    fn gpu_memory(&self) -> u64 {
        0
    }

    /// How many batches it can hold at a time. One that says more than 1 prepares batches while it works on
    /// another, and answers them in the order in which it was given them.
    fn slots(&self) -> u8 {
        1
    }

    /// What it found when it loaded; told once.
    fn report(&mut self) -> LoadedReport {
        LoadedReport::default()
    }

    /// Whether it takes this batch while it works on another, keeps it for afterwards, and holds up
    /// nothing meanwhile. For a batch without requests: whether it ever does. Such a worker runs its batches one
    /// after another, in the order in which it was given them.
    fn queues(&self, _requests: &[PendingRequest]) -> bool {
        false
    }

    /// Hands a batch over. Dropping the future before it resolves leaves the worker unusable, so
    /// the pool ends it then.
    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>>;

    /// Tells the worker, before its next batch, how many workers of its model serve and share the machine.
    fn share(&mut self, _workers: u32) {}

    /// Whether it wants to know for whom it need not go on.
    fn cancels(&self) -> bool {
        false
    }

    /// Tells the worker that the callers of the requests at these places of a batch have left; without any: all
    /// of them. It still says when the batch is over, sooner if it can. Does not wait.
    fn cancel(&mut self, _batch: u64, _positions: &[u16]) -> Result<(), WorkerGone> {
        Ok(())
    }

    /// The worker's next message; an idle worker sends none until it is gone.
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>>;

    /// How the worker ended, once `give` or `poll_message` found it gone.
    fn exit(&mut self) -> BoxFuture<'_, WorkerExit>;

    /// Ends the worker: politely when it is idle, by force otherwise.
    fn end(self: Box<Self>, force: bool) -> BoxFuture<'static, ()>;
}

/// How a worker goes about the batches that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOrder {
    /// One after another: only the first one runs.
    Sequential,
    /// It prepares the next ones while the first one is in the model, and answers them in order.
    Overlapping,
    /// Side by side.
    Concurrent,
}

/// How many batches a worker can hold, and how it goes about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerCapacity {
    /// Batches it may hold at a time. One that runs them one after another may be handed one more,
    /// to be run afterwards.
    pub(crate) slots: u8,
    pub(crate) order: BatchOrder,
}

impl WorkerCapacity {
    /// Of a worker with the slots that every one of its model has.
    pub(crate) fn usual(slots: u8) -> Self {
        Self { slots, order: BatchOrder::Concurrent }
    }

    pub(super) fn of(worker: &dyn Worker, usual: u8) -> Self {
        let slots = usual.max(worker.slots());
        let order = if worker.slots() > 1 {
            BatchOrder::Overlapping
        } else if slots == 1 && worker.queues(&[]) {
            BatchOrder::Sequential
        } else {
            BatchOrder::Concurrent
        };
        Self { slots, order }
    }

    /// Whether it may be handed one more batch than it has slots.
    pub(crate) fn ahead(self) -> bool {
        self.order == BatchOrder::Sequential
    }
}

/// The most sizes, and the most measured runs, that are taken from one worker.
const ENTRIES_MAX: usize = 1024;

/// Sentences that are taken from one worker.
const NOTES_MAX: usize = 20;

/// Steps that may wait to be told.
const STEPS: usize = 16;

/// A step of loading or warming up that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LoadProgress {
    /// Steps that are over.
    #[serde(default)]
    pub done: u32,
    /// How many there are; 0 where that is unknown.
    #[serde(default)]
    pub of: u32,
    /// What was done, in words.
    #[serde(default)]
    pub what: String,
}

impl LoadProgress {
    /// Whether there is nothing more to come.
    pub(crate) fn is_last(&self) -> bool {
        self.of > 0 && self.done >= self.of
    }
}

impl fmt::Display for LoadProgress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.of, self.what.as_str()) {
            (0, "") => write!(out, "step {}", self.done),
            (of, "") => write!(out, "step {} of {of}", self.done),
            (0, what) => write!(out, "{what}"),
            (of, what) => write!(out, "{what}, {} of {of}", self.done),
        }
    }
}

/// Where a launcher tells how far a worker is. Each step starts its time to load anew.
#[derive(Clone, Debug)]
pub struct ProgressSender(mpsc::Sender<LoadProgress>);

impl ProgressSender {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<LoadProgress>) {
        let (sender, receiver) = mpsc::channel(STEPS);
        (Self(sender), receiver)
    }

    /// Tells of a step; waits while many were told and not heard yet.
    pub(crate) async fn send(&self, step: LoadProgress) {
        // Whoever started the worker has given it up.
        drop(self.0.send(step).await);
    }
}

/// What a worker found while it loaded its model and warmed it up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedReport {
    /// Batch sizes, in items, at which the model runs; empty for any.
    pub sizes: Vec<u32>,
    /// What warming up took at each size; empty where the worker measured nothing.
    pub measured: Vec<MeasuredRun>,
    /// The captured graphs, if there are any.
    pub graphs: Option<GraphMemory>,
    /// Bytes that the worker holds on its GPU.
    pub gpu_memory: Option<u64>,
    /// Sentences for the log.
    pub notes: Vec<String>,
}

/// A batch that a worker ran to warm up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredRun {
    /// How many items it had.
    pub items: u32,
    /// How long it took to prepare them.
    pub prepare: Duration,
    /// How long they were in the model.
    pub model: Duration,
    /// The length to which they were padded, where the model pads.
    pub length: Option<u64>,
}

/// Captured graphs and the memory that they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GraphMemory {
    /// How many there are.
    #[serde(default)]
    pub count: u32,
    /// Bytes of GPU memory.
    #[serde(default)]
    pub bytes: u64,
}

/// What a LOADED says beside its slots (`protocol/spec.md`).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LoadedFields {
    #[serde(default)]
    sizes: Vec<u32>,
    #[serde(default)]
    measured: Vec<Vec<f64>>,
    #[serde(default)]
    graphs: Option<GraphMemory>,
    #[serde(default)]
    gpu_memory_bytes: Option<u64>,
    #[serde(default)]
    notes: Vec<String>,
}

impl From<LoadedFields> for LoadedReport {
    fn from(fields: LoadedFields) -> Self {
        let LoadedFields { mut sizes, measured, graphs, gpu_memory_bytes, mut notes } = fields;
        sizes.retain(|size| *size > 0);
        sizes.sort_unstable();
        sizes.dedup();
        sizes.truncate(ENTRIES_MAX);
        notes.truncate(NOTES_MAX);
        Self {
            sizes,
            measured: measured.iter().take(ENTRIES_MAX).filter_map(|it| measured_run(it)).collect(),
            graphs: graphs.filter(|graphs| graphs.count > 0),
            gpu_memory: gpu_memory_bytes,
            notes,
        }
    }
}

/// `[items, prepare_us, model_us]`, with a length behind them where items are padded.
fn measured_run(entry: &[f64]) -> Option<MeasuredRun> {
    let [items, prepare, model, length @ ..] = entry else { return None };
    let run = MeasuredRun {
        items: *items as u32,
        prepare: micros(*prepare),
        model: micros(*model),
        length: length.first().map(|length| *length as u64).filter(|length| *length > 0),
    };
    (run.items > 0 && !run.model.is_zero()).then_some(run)
}

/// A time that a worker tells in microseconds; what is no time is none at all.
pub(crate) fn micros(micros: f64) -> Duration {
    Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default()
}

#[cfg(test)]
mod loading_tests {
    use super::*;
    use serde_json::json;

    fn report(loaded: serde_json::Value) -> LoadedReport {
        serde_json::from_value::<LoadedFields>(loaded).expect("readable").into()
    }

    #[test]
    fn what_a_worker_reports_is_put_in_order_and_what_makes_no_sense_is_left_out() {
        let told = report(json!({
            "seconds": 1, "sizes": [4, 1, 0, 2, 2], "graphs": {"count": 3, "bytes": 9},
            "measured": [[1, 900.5, 2650], [4, 0, 2720, 128], [8, 1], [0, 1, 1], [2, 1, -4], []],
        }));
        assert_eq!(told.sizes, [1, 2, 4]);
        assert_eq!(told.graphs, Some(GraphMemory { count: 3, bytes: 9 }));
        let runs: Vec<_> =
            told.measured.iter().map(|it| (it.items, it.model.as_micros(), it.length)).collect();
        assert_eq!(runs, [(1, 2650, None), (4, 2720, Some(128))]);
        assert_eq!(told.measured[0].prepare, Duration::from_nanos(900_500));
        assert_eq!(report(json!({"graphs": {"count": 0}})), LoadedReport::default());
    }

    #[test]
    fn progress_is_told_in_words() {
        let step = |done, of, what: &str| LoadProgress { done, of, what: what.to_owned() };
        assert_eq!(
            step(3, 11, "captured batch size 8").to_string(),
            "captured batch size 8, 3 of 11"
        );
        assert_eq!(step(1, 0, "compiled").to_string(), "compiled");
        assert_eq!(
            (step(2, 4, "").to_string(), step(2, 0, "").to_string()),
            ("step 2 of 4".to_owned(), "step 2".to_owned())
        );
        assert!(step(4, 4, "").is_last() && !step(4, 0, "").is_last());
    }
}
