//! What the engine reports to an observer: typed facts, one call each, from where they arise.
//!
//! An observer is passed in and is called on the threads of the data plane and of the workers'
//! output, so it must not block. Running totals need no observer: they stand on a model's
//! [`Status`](crate::Status) and [`Measures`](crate::Measures) and are read on request.

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::DispatchReason;
use tokio::time::Instant;

use crate::call::RequestMark;
use crate::pending::PendingRequest;
use crate::pool::BatchTimes;

/// A model version's name in metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct ModelTag {
    /// The model.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether its handler is Python code.
    pub python: bool,
}

/// A batch that a worker has answered.
#[derive(Clone, Copy, Debug)]
pub struct BatchFinished<'a> {
    /// Its model.
    pub model: &'a Arc<ModelTag>,
    /// How long the worker took.
    pub compute: Duration,
    /// How long the batch was under way between the model's task and its worker.
    pub handling: Duration,
    pub(crate) requests: &'a [PendingRequest],
}

impl BatchFinished<'_> {
    /// The ids of its requests, where the worker was given them.
    pub fn request_ids(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().filter_map(|request| Some(request.payload.raw()?.id.as_str()))
    }
}

/// A batch that is over, answered or not, with at least one marked request.
#[derive(Clone, Copy, Debug)]
pub struct BatchEnded<'a> {
    /// Its model.
    pub model: &'a Arc<ModelTag>,
    /// The worker that it was sent to.
    pub worker: u32,
    /// Its number among those of the model.
    pub batch: u64,
    /// Its items.
    pub items: u32,
    /// The most items that a batch of the model may have.
    pub items_max: u32,
    /// Why it was dispatched when it was.
    pub reason: DispatchReason,
    /// 1 for the first try.
    pub attempt: u8,
    /// When it was dispatched.
    pub dispatched: Instant,
    /// How long it was expected to run, if that was known.
    pub predicted: Option<Duration>,
    /// How long the worker took; none if the worker exited meanwhile.
    pub compute: Option<Duration>,
    /// What the worker measured.
    pub times: BatchTimes,
    /// Why it failed as a whole, if it did.
    pub error: Option<&'a str>,
    pub(crate) requests: &'a [PendingRequest],
}

impl<'a> BatchEnded<'a> {
    /// How many requests it had.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The marks of its requests, of those that have one.
    pub fn marks(&self) -> impl Iterator<Item = &'a RequestMark> {
        self.requests.iter().filter_map(|request| request.mark.as_ref())
    }
}

/// The process that printed a metric of its own.
#[derive(Clone, Copy, Debug)]
pub struct PrintedBy<'a> {
    /// The model that it serves.
    pub model: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The worker.
    pub worker: u32,
    /// How many processes of this model were started before it: a worker whose process ended gets another one.
    pub start: u32,
}

/// Is told what happens; ignores everything by default.
pub trait Observer: Send + Sync + 'static {
    /// A worker has loaded its model and took so long for it.
    fn worker_loaded(&self, _model: &Arc<ModelTag>, _worker: u32, _took: Duration) {}

    /// A batch was answered.
    fn batch_finished(&self, _batch: &BatchFinished<'_>) {}

    /// Whether it wants to be told of the end of batches with marked requests. It is asked once for each
    /// model version.
    fn wants_marks(&self) -> bool {
        false
    }

    /// A batch is over that had a marked request. Those of its requests that are answered get their
    /// answers after this.
    fn batch_ended(&self, _batch: &BatchEnded<'_>) {}

    /// The metrics that handlers can have by name, as workers are told at their start: lists of
    /// `{name, unit, dimensions}` by type, or nothing.
    fn model_metrics(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Whether metrics that handlers report are wanted with the ids of their requests, which costs
    /// a worker something for every request.
    fn wants_metric_ids(&self) -> bool {
        false
    }

    /// A worker printed what one of its own metrics has changed by, as JSON.
    fn own_metric_printed(&self, _by: PrintedBy<'_>, _line: &str) {}

    /// A process of a worker has ended; all that it printed was read before.
    fn printing_ended(&self, _by: PrintedBy<'_>) {}

    /// A worker printed a metric: a line of its stdout, without the `[METRICS]` at its beginning.
    fn metric_printed(&self, _line: &str) {}
}

/// Ignores everything.
impl Observer for () {}
