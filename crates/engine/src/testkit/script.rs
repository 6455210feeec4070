//! What a scripted worker is to do with a batch, and the doing of it.
//!
//! A script is a function from the batch to an act, so that a test says in one line who dies when. It
//! knows nothing of pools: it gets bodies and sends messages.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::call::Output;
use crate::outcome::{BatchOutcome, LaunchError, ModelFailure, WorkerExit};
use crate::pool::{BatchTimes, CollectorPauses, LoadProgress, LoadedReport, WorkerMessage};

/// A batch as a scripted worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedBatch {
    /// Which worker.
    pub worker: u32,
    /// Which start of any worker of this kit, from 0.
    pub life: u32,
    /// The bodies, in order; of tensors the rows, such as `0..4`.
    pub bodies: Vec<String>,
    /// When it was given.
    pub at: Instant,
}

/// What a scripted worker does with a batch.
#[derive(Clone, Debug)]
pub enum Act {
    /// Answers every request with its own body.
    Echo,
    /// Does the second act after a while.
    After(Duration, Box<Act>),
    /// Lets the worker take the next batch at once; does the other act beside it.
    Beside(Box<Act>),
    /// Answers one row too few.
    Short,
    /// Fails on the batch as a whole.
    Raise,
    /// Fails the items whose body is this, answers the others.
    FailItem(&'static str),
    /// Exits without an answer.
    Die,
    /// Exits because it gets no more memory.
    Starve,
    /// Never answers.
    Silence,
    /// Sends every request `0 `, `1 ` and so on, with a pause after each; then the other act.
    Stream(usize, Duration, Box<Act>),
}

/// Decides what happens to a batch.
pub type Script = Arc<dyn Fn(&ScriptedBatch) -> Act + Send + Sync>;

/// Decides whether a start succeeds, and how long it takes.
pub type LaunchScript = Arc<dyn Fn(u32) -> (Duration, Result<(), LaunchError>) + Send + Sync>;

/// What workers say while they load, each step after a while, and what they found.
#[derive(Clone, Debug, Default)]
pub struct ScriptedLoading {
    /// The steps.
    pub steps: Vec<(Duration, LoadProgress)>,
    /// The report.
    pub report: LoadedReport,
    /// What is answered on GPU 0, which all of them are on.
    pub gpu_answers: Option<Arc<AtomicU64>>,
}

/// Where the act for one batch is performed.
pub(super) struct Stage {
    pub(super) batch: u64,
    pub(super) bodies: Vec<String>,
    pub(super) says: mpsc::Sender<Result<WorkerMessage, WorkerExit>>,
    /// How long it took to be prepared, where that is measured.
    pub(super) prepare: Option<Duration>,
}

impl Stage {
    pub(super) async fn perform(self, mut act: Act) {
        while let Act::Stream(count, pause, then) = act {
            for number in 0..count {
                self.stream(number).await;
                tokio::time::sleep(pause).await;
            }
            act = *then;
        }
        let (batch, began) = (self.batch, Instant::now());
        if let Act::Beside(then) = act {
            let times = BatchTimes { beside: true, ..BatchTimes::default() };
            drop(self.says.send(Ok(WorkerMessage::Times { batch, times })).await);
            act = *then;
        }
        let played = play(act, self.bodies).await;
        if let Some(prepare) = self.prepare {
            let (prepare, model) = (Some(prepare), Some(began.elapsed()));
            let gpu_memory = Some(1 << 30);
            let pauses = Some(CollectorPauses { runs: 3, ..CollectorPauses::default() });
            let times = BatchTimes { prepare, model, gpu_memory, pauses, beside: false };
            drop(self.says.send(Ok(WorkerMessage::Times { batch, times })).await);
        }
        // The channel is closed when the worker was ended.
        drop(
            self.says
                .send(played.map(|it| WorkerMessage::Finished { batch, outcome: Ok(it) }))
                .await,
        );
    }

    async fn stream(&self, number: usize) {
        let piece = |position| (position, echo(format!("{number} ")));
        let pieces = (0..self.bodies.len()).map(piece).collect();
        drop(self.says.send(Ok(WorkerMessage::Pieces { batch: self.batch, pieces })).await);
    }
}

async fn play(act: Act, bodies: Vec<String>) -> Result<BatchOutcome, WorkerExit> {
    match act {
        Act::Echo => {
            Ok(BatchOutcome::Items(bodies.into_iter().map(|body| Ok(echo(body))).collect()))
        }
        Act::Short => {
            let items = bodies.into_iter().skip(1).map(|body| Ok(echo(body))).collect();
            Ok(BatchOutcome::Items(items))
        }
        Act::Raise => Ok(BatchOutcome::Failed(failure())),
        Act::FailItem(bad) => {
            let item = |body| if body == bad { Err(failure()) } else { Ok(echo(body)) };
            Ok(BatchOutcome::Items(bodies.into_iter().map(item).collect()))
        }
        Act::Die => Err(WorkerExit::UNEXPLAINED),
        Act::Starve => Err(WorkerExit::OutOfMemory { bytes: Some(1 << 40) }),
        Act::Silence | Act::Beside(_) | Act::Stream(..) => std::future::pending().await,
        Act::After(pause, then) => {
            tokio::time::sleep(pause).await;
            Box::pin(play(*then, bodies)).await
        }
    }
}

fn echo(body: String) -> Output {
    Output { body: Bytes::from(body), ..Output::default() }
}

fn failure() -> ModelFailure {
    ModelFailure::raised("Prediction failed")
}
