//! The supervisor of one worker: starts it, hands it batches, ends it, starts it again.
//!
//! It is a task of its own, so that a hanging worker holds up nothing else. It owns the batches that
//! are under way, requests included; whatever happens, they go back to the model's task in an event,
//! or are dropped with the supervisor, which tells every request's caller.
//!
//! ```text
//! starting --launched--> ready --exited--> (pause) --> starting
//!      \--failed--> (pause) --> starting      \--retire--> stopped
//!                      \--window over--> given up --retire--> stopped
//! ```

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jitney_batcher::{BatchId, RequestId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::batches::{BatchRun, HeldBatches, LeftRequests, SentBatches, WorkerBatch};
use super::recovery::Recovery;
use super::wear::{ReplaceReason, Wear};
use super::worker::{
    BatchOrder, BatchTimes, Launcher, LoadProgress, LoadedReport, ProgressSender, Worker,
    WorkerCapacity, WorkerGone, WorkerMessage, WorkerPlan,
};
use crate::error::CallError;
use crate::outcome::{BatchOutcome, LaunchError, WorkerExit};

/// What a supervisor tells the model's task. Events of one worker come in the order in which things
/// happened to it, and every batch that it was handed comes back in exactly one of them.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// A step of its loading is over.
    Progress {
        worker: u32,
        step: LoadProgress,
    },
    /// Loaded, and ready for batches through `batches` until it exits. The channel belongs to this
    /// start of the worker: a batch sent too late is given back to the sender or comes with `Exited`.
    Up {
        worker: u32,
        pid: Option<u32>,
        capacity: WorkerCapacity,
        batches: mpsc::Sender<WorkerBatch>,
        /// How long it took to load.
        took: Duration,
        /// What it found then.
        report: LoadedReport,
    },
    /// A batch goes on beside others, and the worker takes the next one. It comes back once more.
    Beside {
        batch: BatchId,
        requests: Vec<RequestId>,
        /// How long it kept the worker from the next one.
        exec: Duration,
    },
    Finished {
        batch: WorkerBatch,
        outcome: Result<BatchOutcome, CallError>,
        run: BatchRun,
    },
    /// A batch is over, and the worker had better be replaced. Told once for each start.
    Worn {
        worker: u32,
        reason: ReplaceReason,
    },
    /// It says what it says now and then.
    Told {
        worker: u32,
        times: BatchTimes,
    },
    /// It exited, with every batch that was handed to it and not finished.
    Exited {
        worker: u32,
        batches: Vec<WorkerBatch>,
        exit: WorkerExit,
        /// The batch to blame: the one that took too long, or the one that it was at. The others
        /// are innocent. None if that is unknown, or if it was at none.
        blamed: Option<BatchId>,
        /// How long it takes until it is started again.
        restart: Duration,
    },
    LaunchFailed {
        worker: u32,
        error: LaunchError,
        /// How long it takes until the next start; none if there is no other.
        retry: Option<Duration>,
    },
    /// Starting it again was given up.
    GivenUp {
        worker: u32,
    },
    /// It stopped as it was asked to.
    Stopped {
        worker: u32,
    },
}

/// How a worker ended.
struct ExitReport {
    exit: WorkerExit,
    /// The batch that took too long.
    overdue: Option<BatchId>,
}

impl ExitReport {
    fn of(exit: WorkerExit) -> Self {
        Self { exit, overdue: None }
    }
}

pub(crate) struct WorkerSupervisor {
    worker: u32,
    launcher: Arc<dyn Launcher>,
    plan: WorkerPlan,
    /// Resolves when the worker is asked to stop, or when the pool is gone.
    retire: oneshot::Receiver<()>,
    /// Told when a caller went away.
    left: Arc<Notify>,
    /// How many workers serve, and what this one was told of that since it was last started.
    serving: Arc<AtomicU32>,
    told: u32,
    events: mpsc::Sender<WorkerEvent>,
    recovery: Recovery,
    /// Since it was last started, where it is replaced some time.
    wear: Option<Wear>,
}

/// Made only where it is awaited.
async fn notified(left: &Notify) {
    left.notified().await;
}

impl WorkerSupervisor {
    pub(crate) fn new(
        worker: u32,
        launcher: &Arc<dyn Launcher>,
        plan: &WorkerPlan,
        retire: oneshot::Receiver<()>,
        (left, serving): (&Arc<Notify>, &Arc<AtomicU32>),
        events: &mpsc::Sender<WorkerEvent>,
    ) -> Self {
        let (launcher, events) = (Arc::clone(launcher), events.clone());
        let recovery = Recovery::new(plan.retry_window);
        let (left, serving) = (Arc::clone(left), Arc::clone(serving));
        Self {
            worker,
            launcher,
            plan: *plan,
            retire,
            left,
            serving,
            told: 0,
            events,
            recovery,
            wear: None,
        }
    }

    /// Runs until the worker is asked to stop.
    pub(crate) async fn run(mut self) {
        while self.one_life().await.is_continue() && self.pause().await.is_continue() {}
        self.tell(WorkerEvent::Stopped { worker: self.worker }).await;
    }

    /// From start to exit. Breaks when the worker was asked to stop.
    async fn one_life(&mut self) -> ControlFlow<()> {
        let began = Instant::now();
        let mut worker = match self.launch().await? {
            Ok(worker) => worker,
            Err(error) => {
                self.recovery.failed(self.worker, &error);
                let (worker, retry) = (self.worker, self.recovery.next_load());
                self.tell(WorkerEvent::LaunchFailed { worker, error, retry }).await;
                return ControlFlow::Continue(());
            }
        };
        self.recovery.up();
        (self.wear, self.told) = (self.plan.wear.map(Wear::new), 0);
        let capacity = WorkerCapacity::of(&*worker, self.plan.slots);
        let room = usize::from(capacity.slots) + usize::from(capacity.ahead());
        let (batches, mut inbox) = mpsc::channel(room);
        let (pid, report, id) = (worker.pid(), worker.report(), self.worker);
        let took = self.launcher.load_time().unwrap_or_else(|| began.elapsed());
        self.tell(WorkerEvent::Up { worker: id, pid, capacity, batches, took, report }).await;
        let beside = SentBatches::new(BatchOrder::Concurrent);
        let running = SentBatches::new(capacity.order);
        let held = HeldBatches { running, beside, next: None, room };
        self.serve(worker, held, &mut inbox).await
    }

    async fn launch(&mut self) -> ControlFlow<(), Result<Box<dyn Worker>, LaunchError>> {
        let limit = self.plan.startup_timeout;
        let (progress, mut steps) = ProgressSender::channel();
        let mut launch = self.launcher.launch(self.worker, progress);
        let mut alarm = std::pin::pin!(sleep(limit));
        loop {
            tokio::select! {
                biased;
                launched = &mut launch => return ControlFlow::Continue(launched),
                Some(step) = steps.recv() => {
                    alarm.as_mut().reset(Instant::now() + limit);
                    self.tell(WorkerEvent::Progress { worker: self.worker, step }).await;
                }
                _ = &mut self.retire => return ControlFlow::Break(()),
                () = alarm.as_mut() => {
                    let seconds = limit.as_secs();
                    return ControlFlow::Continue(Err(LaunchError::TimedOut { seconds }));
                }
            }
        }
    }

    async fn serve(
        &mut self,
        mut worker: Box<dyn Worker>,
        mut held: HeldBatches,
        inbox: &mut mpsc::Receiver<WorkerBatch>,
    ) -> ControlFlow<()> {
        let cancels = worker.cancels();
        // Looked at when it fires, not moved with every message: it may fire for nothing.
        let mut alarm = std::pin::pin!(sleep(self.plan.response_timeout));
        loop {
            let turn = tokio::select! {
                biased;
                message = poll_fn(|context| worker.poll_message(context)) => {
                    self.on_message(&mut *worker, &mut held, message).await
                }
                Some(batch) = inbox.recv(), if held.has_room() => {
                    self.take(&mut *worker, &mut held, batch).await
                }
                () = notified(&self.left), if cancels && !held.is_empty() => {
                    self.tell_left(&mut *worker, &mut held).await
                }
                () = alarm.as_mut(), if !held.is_empty() => {
                    self.look(&held, alarm.as_mut())
                }
                _ = &mut self.retire, if held.is_empty() => {
                    worker.end(false).await;
                    return ControlFlow::Break(());
                }
            };
            if let Err(report) = turn {
                return self.hand_back(worker, inbox, held, report).await;
            }
        }
    }

    /// The worker sent a message, or is gone.
    async fn on_message(
        &mut self,
        worker: &mut dyn Worker,
        held: &mut HeldBatches,
        message: Result<WorkerMessage, WorkerGone>,
    ) -> Result<(), ExitReport> {
        let known = match message {
            Err(WorkerGone) => return Err(ExitReport::of(worker.exit().await)),
            Ok(WorkerMessage::Pieces { batch, pieces }) => {
                let all_there = held.holding(batch).pieces(batch, pieces, &self.left);
                if all_there == Some(false) {
                    self.tell_left(worker, held).await?;
                }
                all_there.is_some()
            }
            Ok(WorkerMessage::Times { batch, times }) => {
                if times.gpu_memory.is_some() || times.pauses.is_some() {
                    self.tell(WorkerEvent::Told { worker: self.worker, times }).await;
                }
                match times.beside {
                    true => self.set_beside(held, batch).await,
                    false => held.holding(batch).times(batch, times),
                }
            }
            Ok(WorkerMessage::Finished { batch, outcome }) => {
                match held.holding(batch).finish(batch) {
                    None => false,
                    Some((batch, run)) => {
                        self.recovery.served();
                        let count = batch.requests.len() as u32;
                        self.tell(WorkerEvent::Finished { batch, outcome, run }).await;
                        let worn = self.wear.as_mut().and_then(|it| it.add(count, worker.memory()));
                        if let Some(reason) = worn {
                            self.tell(WorkerEvent::Worn { worker: self.worker, reason }).await;
                        }
                        true
                    }
                }
            }
        };
        if !known {
            return Err(ExitReport::of(WorkerExit::BrokeProtocol));
        }
        match held.next.take_if(|_| held.running.is_empty()) {
            Some(batch) => self.give(worker, &mut held.running, batch).await,
            None => Ok(()),
        }
    }

    /// A batch goes on beside others; false if the worker was never given it.
    async fn set_beside(&self, held: &mut HeldBatches, batch: u64) -> bool {
        let Some((mut batch, run)) = held.running.finish(batch) else { return false };
        batch.beside = true;
        let (id, exec) = (batch.id, run.exec);
        let requests = batch.requests.iter().map(|request| request.facts.id).collect();
        held.beside.add(batch);
        self.tell(WorkerEvent::Beside { batch: id, requests, exec }).await;
        true
    }

    /// A batch came. One that a worker at work had better not be given waits here: the worker may be
    /// writing a large answer, which is not read while a large batch is written to it.
    async fn take(
        &mut self,
        worker: &mut dyn Worker,
        held: &mut HeldBatches,
        batch: WorkerBatch,
    ) -> Result<(), ExitReport> {
        let ahead = held.running.current().is_some();
        if ahead && !worker.queues(&batch.requests) {
            held.next = Some(batch);
            return Ok(());
        }
        self.give(worker, &mut held.running, batch).await
    }

    /// Some callers went away: the worker is told for whom it need not go on.
    async fn tell_left(
        &self,
        worker: &mut dyn Worker,
        held: &mut HeldBatches,
    ) -> Result<(), ExitReport> {
        for LeftRequests { batch, positions } in held.newly_left() {
            if worker.cancel(batch.0, &positions).is_err() {
                return Err(ExitReport::of(worker.exit().await));
            }
        }
        Ok(())
    }

    async fn give(
        &mut self,
        worker: &mut dyn Worker,
        running: &mut SentBatches,
        batch: WorkerBatch,
    ) -> Result<(), ExitReport> {
        let before = std::mem::replace(&mut self.told, self.serving.load(Ordering::Relaxed));
        if before != self.told {
            worker.share(self.told);
        }
        let batch = running.add(batch);
        let given = worker.send_batch(batch.id.0, &batch.requests);
        let (id, sent) = (batch.id, timeout(self.plan.response_timeout, given).await);
        self.check_sent(sent, worker, id).await?;
        running.handed();
        Ok(())
    }

    /// The alarm rang: is any batch overdue?
    fn look(&self, held: &HeldBatches, alarm: Pin<&mut Sleep>) -> Result<(), ExitReport> {
        let quietest = held.running.quietest().into_iter().chain(held.beside.quietest());
        let Some((batch, last_message)) = quietest.min_by_key(|(_, at)| *at) else { return Ok(()) };
        let due = last_message + self.plan.response_timeout;
        if due <= Instant::now() {
            return Err(self.overdue(batch));
        }
        alarm.reset(due);
        Ok(())
    }

    /// Gives all batches back. Closes the channel first, so that no batch can be lost between two
    /// starts.
    async fn hand_back(
        &mut self,
        worker: Box<dyn Worker>,
        inbox: &mut mpsc::Receiver<WorkerBatch>,
        held: HeldBatches,
        report: ExitReport,
    ) -> ControlFlow<()> {
        inbox.close();
        let unsent = std::iter::from_fn(|| inbox.try_recv().ok());
        let ExitReport { exit, overdue } = report;
        let blamed = overdue.or(held.running.current());
        let beside = held.beside.into_batches();
        let batches = held.running.into_batches().chain(held.next).chain(unsent).chain(beside);
        let batches: Vec<WorkerBatch> = batches.collect();
        self.recovery.exited(self.worker, !batches.is_empty());
        let (worker_id, restart) = (self.worker, self.recovery.next_restart());
        let exited = WorkerEvent::Exited { worker: worker_id, batches, exit, blamed, restart };
        self.tell(exited).await;
        worker.end(true).await;
        ControlFlow::Continue(())
    }

    /// Waits before the next start, or for ever once that is given up.
    async fn pause(&mut self) -> ControlFlow<()> {
        let Some(pause) = self.recovery.next(self.worker) else {
            self.tell(WorkerEvent::GivenUp { worker: self.worker }).await;
            // An error means that the pool is gone, which is as good as being asked to stop.
            drop((&mut self.retire).await);
            return ControlFlow::Break(());
        };
        tokio::select! {
            () = sleep(pause) => ControlFlow::Continue(()),
            _ = &mut self.retire => ControlFlow::Break(()),
        }
    }

    async fn tell(&self, event: WorkerEvent) {
        // A closed channel means that the model's task has gone, and the pool with it: the supervisor
        // is asked to stop next.
        drop(self.events.send(event).await);
    }

    /// Whether something about this batch was sent in time, to a worker that is there.
    async fn check_sent(
        &self,
        sent: Result<Result<(), WorkerGone>, Elapsed>,
        worker: &mut dyn Worker,
        batch: BatchId,
    ) -> Result<(), ExitReport> {
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(WorkerGone)) => Err(ExitReport::of(worker.exit().await)),
            Err(_) => Err(self.overdue(batch)),
        }
    }

    fn overdue(&self, batch: BatchId) -> ExitReport {
        let exit = WorkerExit::TimedOut { limit: self.plan.response_timeout };
        ExitReport { exit, overdue: Some(batch) }
    }
}
