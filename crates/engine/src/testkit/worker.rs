//! Workers that follow a script, and the launcher that starts them.
//!
//! To the pool they are workers like any other: they keep the contract of [`Worker`] in everything
//! but what they are told to play.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::script::{Act, LaunchScript, Script, ScriptedBatch, ScriptedLoading, Stage};
use crate::gpu_assignment::GpuAnswers;
use crate::outcome::{BatchOutcome, LaunchError, Output, WorkerExit};
use crate::pending::{Payload, PendingRequest};
use crate::pool::{
    BoxFuture, Launcher, LoadedReport, ProgressSender, Worker, WorkerGone, WorkerMessage,
};

#[derive(Clone)]
pub(super) struct ScriptedLauncher {
    pub(super) script: Script,
    pub(super) launch: LaunchScript,
    pub(super) lives: Arc<AtomicU32>,
    pub(super) batches: Arc<Mutex<Vec<ScriptedBatch>>>,
    pub(super) kind: Kind,
    pub(super) loading: ScriptedLoading,
}

/// What a worker that overlaps its batches takes to prepare one.
pub const PREPARE: Duration = Duration::from_millis(4);

/// How scripted workers take their batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As many at a time as they have slots.
    Plain,
    /// One after another, and the next one may lie before them while they work, if it has no body
    /// `large`.
    Queueing,
    /// So many, as they say themselves: they prepare one, which takes [`PREPARE`], while another runs, and
    /// measure both.
    Overlapping(u8),
    /// It drops batches that nobody waits for, and is told at once.
    Cancelling,
}

impl Launcher for ScriptedLauncher {
    fn launch(
        &self,
        worker: u32,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let (pause, outcome) = (self.launch)(life);
        let (script, batches, kind) =
            (Arc::clone(&self.script), Arc::clone(&self.batches), self.kind);
        let ScriptedLoading { steps, report, .. } = self.loading.clone();
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            outcome?;
            for (pause, step) in steps {
                tokio::time::sleep(pause).await;
                progress.send(step).await;
            }
            let (says, words) = mpsc::channel(1);
            Ok(Box::new(ScriptedWorker {
                worker,
                life,
                script,
                batches,
                kind,
                report,
                preparing: Arc::default(),
                turn: Arc::default(),
                stages: JoinSet::new(),
                plays: Vec::new(),
                says,
                words,
                exit: None,
            }) as Box<dyn Worker>)
        })
    }

    fn gpu_answers(&self, _worker: u32) -> Option<GpuAnswers> {
        let items = Arc::clone(self.loading.gpu_answers.as_ref()?);
        Some(GpuAnswers { gpu: 0, items })
    }
}

struct ScriptedWorker {
    worker: u32,
    life: u32,
    script: Script,
    batches: Arc<Mutex<Vec<ScriptedBatch>>>,
    kind: Kind,
    report: LoadedReport,
    /// Whose turn it is to be prepared.
    preparing: Arc<tokio::sync::Mutex<()>>,
    /// Whose turn it is, where they run one after another.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// One play per batch; they end with the worker.
    stages: JoinSet<()>,
    /// How the play of a batch is ended when no caller waits for it.
    plays: Vec<(u64, tokio::task::AbortHandle)>,
    says: mpsc::Sender<Result<WorkerMessage, WorkerExit>>,
    words: mpsc::Receiver<Result<WorkerMessage, WorkerExit>>,
    /// How it died.
    exit: Option<WorkerExit>,
}

impl Worker for ScriptedWorker {
    fn pid(&self) -> Option<u32> {
        Some(self.life)
    }

    /// The first one has eaten much.
    fn memory(&self) -> u64 {
        if self.life == 0 { 1 << 30 } else { 0 }
    }

    fn slots(&self) -> u8 {
        if let Kind::Overlapping(slots) = self.kind { slots } else { 1 }
    }

    fn report(&mut self) -> LoadedReport {
        std::mem::take(&mut self.report)
    }

    fn queues(&self, requests: &[PendingRequest]) -> bool {
        self.kind == Kind::Queueing && requests.iter().all(|request| body(request) != "large")
    }

    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>> {
        let bodies: Vec<String> = requests.iter().map(body).collect();
        let given =
            ScriptedBatch { worker: self.worker, life: self.life, bodies, at: Instant::now() };
        let act = (self.script)(&given);
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(given.clone());
        let (bodies, says) = (given.bodies, self.says.clone());
        let mut stage = Stage { batch, bodies, says, prepare: None };
        let (kind, turn) = (self.kind, Arc::clone(&self.turn));
        let preparing = Arc::clone(&self.preparing);
        let play = async move {
            // They stand in line in the order in which they were given.
            let _turn = match kind {
                Kind::Plain | Kind::Cancelling => None,
                Kind::Queueing => Some(turn.lock().await),
                Kind::Overlapping(_) => {
                    {
                        let _preparing = preparing.lock().await;
                        tokio::time::sleep(PREPARE).await;
                    }
                    stage.prepare = Some(PREPARE);
                    // One that exits does so while it prepares.
                    if matches!(act, Act::Die) { None } else { Some(turn.lock().await) }
                }
            };
            stage.perform(act).await;
        };
        self.plays.push((batch, self.stages.spawn(play)));
        Box::pin(std::future::ready(Ok(())))
    }

    fn cancels(&self) -> bool {
        self.kind == Kind::Cancelling
    }

    /// Drops the play and says an empty answer, as continuous workers do.
    fn cancel(&mut self, batch: u64, positions: &[u16]) -> Result<(), WorkerGone> {
        if !positions.is_empty() {
            return Ok(()); // Others wait for theirs.
        }
        let play = self.plays.iter().find(|(id, _)| *id == batch);
        play.inspect(|(_, play)| play.abort());
        let says = self.says.clone();
        let outcome = Ok(BatchOutcome::Items(vec![Ok(Output::default())]));
        self.stages.spawn(async move {
            drop(says.send(Ok(WorkerMessage::Finished { batch, outcome })).await);
        });
        Ok(())
    }

    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>> {
        // The worker holds a sender itself, so the channel stays open.
        let word = ready!(self.words.poll_recv(context)).unwrap_or(Err(WorkerExit::BrokeProtocol));
        Poll::Ready(word.map_err(|exit| {
            self.exit = Some(exit);
            WorkerGone
        }))
    }

    fn exit(&mut self) -> BoxFuture<'_, WorkerExit> {
        Box::pin(std::future::ready(self.exit.unwrap_or(WorkerExit::BrokeProtocol)))
    }

    fn end(self: Box<Self>, _force: bool) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn body(request: &PendingRequest) -> String {
    match &request.payload {
        Payload::Raw(input) => String::from_utf8_lossy(&input.parameters[0].value).into_owned(),
        Payload::Decoded(input, ..) => format!("{input:?}"),
    }
}
