//! One worker's place: starts it, hands it batches, ends it, starts it again.
//!
//! A seat is a task of its own so that a hanging worker holds up nobody. It owns the batches
//! that are under way, requests included; whatever happens, they go back to the model's task in an
//! event, or are dropped with the task, which tells every request's caller.
//!
//! ```text
//! coming --launched--> ready --died--> (pause) --> coming
//!    \--failed--> (pause) --> coming      \--retire--> ended
//!                    \--window over--> lost --retire--> ended
//! ```

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::BatchId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::backoff::Backoff;
use super::event::WorkerEvent;
use super::recovery::Recovery;
use super::riding::{Batch, Riding};
use super::worker::{Launcher, Worker, WorkerGone, WorkerMessage};
use crate::outcome::{LaunchError, WorkerExit};

/// The time limits of a seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerPlan {
    pub(crate) startup_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) retry_window: Duration,
    /// Batches a worker may hold at a time.
    pub(crate) slots: u8,
}

/// How a worker's life ended.
struct End {
    death: WorkerExit,
    /// The batch that took too long.
    overdue: Option<BatchId>,
}

impl End {
    fn of(death: WorkerExit) -> Self {
        Self { death, overdue: None }
    }
}

/// What a worker holds.
struct Hands {
    riding: Riding,
    /// A batch that came ahead of its turn and is too large to be given to a worker at work.
    held: Option<Batch>,
    /// Batches it may hold, the one ahead included.
    room: usize,
}

impl Hands {
    fn has_room(&self) -> bool {
        self.held.is_none() && self.riding.len() < self.room
    }
}

pub(crate) struct WorkerSupervisor {
    worker: u32,
    launcher: Arc<dyn Launcher>,
    plan: WorkerPlan,
    /// Resolves when the worker is asked to leave, or when the pool is gone.
    retire: oneshot::Receiver<()>,
    events: mpsc::Sender<WorkerEvent>,
    backoff: Backoff,
    recovery: Recovery,
}

impl WorkerSupervisor {
    pub(crate) fn new(
        worker: u32,
        launcher: &Arc<dyn Launcher>,
        plan: &WorkerPlan,
        retire: oneshot::Receiver<()>,
        events: &mpsc::Sender<WorkerEvent>,
    ) -> Self {
        let backoff = Backoff::new(plan.retry_window);
        let (launcher, events) = (Arc::clone(launcher), events.clone());
        let recovery = Recovery::default();
        Self { worker, launcher, plan: *plan, retire, events, backoff, recovery }
    }

    /// Lives until the worker is asked to leave.
    pub(crate) async fn run(mut self) {
        while self.one_life().await.is_continue() && self.pause().await.is_continue() {}
        self.tell(WorkerEvent::Stopped { worker: self.worker }).await;
    }

    /// From start to death. Breaks when the worker was asked to leave.
    async fn one_life(&mut self) -> ControlFlow<()> {
        let began = Instant::now();
        let worker = match self.launch().await? {
            Ok(worker) => worker,
            Err(error) => {
                self.recovery.failed(self.worker, &error);
                self.tell(WorkerEvent::LaunchFailed { worker: self.worker, error }).await;
                return ControlFlow::Continue(());
            }
        };
        self.recovery.up();
        let slots = self.plan.slots.max(worker.slots());
        let ahead = slots == 1 && worker.queues(&[]);
        let room = usize::from(slots) + usize::from(ahead);
        let (batches, mut inbox) = mpsc::channel(room);
        let pid = worker.pid();
        let took = began.elapsed();
        self.tell(WorkerEvent::Up { worker: self.worker, pid, slots, ahead, batches, took }).await;
        let hands = Hands { riding: Riding::new(ahead), held: None, room };
        self.serve(worker, hands, &mut inbox).await
    }

    async fn launch(&mut self) -> ControlFlow<(), Result<Box<dyn Worker>, LaunchError>> {
        let seconds = self.plan.startup_timeout.as_secs();
        let launch = timeout(self.plan.startup_timeout, self.launcher.launch(self.worker));
        tokio::select! {
            launched = launch => {
                ControlFlow::Continue(launched.unwrap_or(Err(LaunchError::TimedOut { seconds })))
            }
            _ = &mut self.retire => ControlFlow::Break(()),
        }
    }

    async fn serve(
        &mut self,
        mut worker: Box<dyn Worker>,
        mut hands: Hands,
        inbox: &mut mpsc::Receiver<Batch>,
    ) -> ControlFlow<()> {
        // Looked at when it fires, not moved with every word: it may fire for nothing.
        let mut alarm = std::pin::pin!(sleep(self.plan.response_timeout));
        loop {
            let turn = tokio::select! {
                biased;
                word = poll_fn(|context| worker.poll_message(context)) => {
                    self.heard(&mut *worker, &mut hands, word).await
                }
                Some(batch) = inbox.recv(), if hands.has_room() => {
                    self.take(&mut *worker, &mut hands, batch).await
                }
                () = alarm.as_mut(), if !hands.riding.is_empty() => {
                    self.look(&hands.riding, alarm.as_mut())
                }
                _ = &mut self.retire, if hands.riding.is_empty() => {
                    worker.end(false).await;
                    return ControlFlow::Break(());
                }
            };
            if let Err(end) = turn {
                return self.bury(worker, inbox, hands, end).await;
            }
        }
    }

    /// The worker said something, or is lost.
    async fn heard(
        &mut self,
        worker: &mut dyn Worker,
        hands: &mut Hands,
        word: Result<WorkerMessage, WorkerGone>,
    ) -> Result<(), End> {
        let riding = &mut hands.riding;
        let known = match word {
            Err(WorkerGone) => return Err(End::of(worker.exit().await)),
            Ok(WorkerMessage::Pieces { batch, pieces }) => {
                let known = riding.pieces(batch, pieces);
                if riding.deserted(batch) {
                    self.cancel(worker, batch).await?;
                }
                known
            }
            Ok(WorkerMessage::Finished { batch, outcome }) => match riding.over(batch) {
                None => false,
                Some((batch, exec)) => {
                    self.backoff.served();
                    self.recovery.served();
                    self.tell(WorkerEvent::Finished { batch, outcome, exec }).await;
                    true
                }
            },
        };
        if !known {
            return Err(End::of(WorkerExit::Garbled));
        }
        match hands.held.take_if(|_| hands.riding.is_empty()) {
            Some(batch) => self.give(worker, &mut hands.riding, batch).await,
            None => Ok(()),
        }
    }

    /// A batch came. One that a worker at work had better not be given waits here: the worker may be
    /// writing a large answer, which nobody reads while a large batch is written to it.
    async fn take(
        &mut self,
        worker: &mut dyn Worker,
        hands: &mut Hands,
        batch: Batch,
    ) -> Result<(), End> {
        let ahead = hands.riding.current().is_some();
        if ahead && !worker.queues(&batch.requests) {
            hands.held = Some(batch);
            return Ok(());
        }
        self.give(worker, &mut hands.riding, batch).await
    }

    /// Nobody waits for this batch any more.
    async fn cancel(&self, worker: &mut dyn Worker, batch: u64) -> Result<(), End> {
        match timeout(self.plan.response_timeout, worker.cancel(batch)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(WorkerGone)) => Err(End::of(worker.exit().await)),
            Err(_) => Err(End { death: WorkerExit::TimedOut, overdue: Some(BatchId(batch)) }),
        }
    }

    async fn give(
        &mut self,
        worker: &mut dyn Worker,
        riding: &mut Riding,
        batch: Batch,
    ) -> Result<(), End> {
        let batch = riding.board(batch);
        let given = worker.send_batch(batch.id.0, &batch.requests);
        match timeout(self.plan.response_timeout, given).await {
            Ok(Ok(())) => {
                riding.handed();
                Ok(())
            }
            Ok(Err(WorkerGone)) => Err(End::of(worker.exit().await)),
            Err(_) => Err(End { death: WorkerExit::TimedOut, overdue: Some(batch.id) }),
        }
    }

    /// The alarm rang: is any batch overdue?
    fn look(&self, riding: &Riding, alarm: Pin<&mut Sleep>) -> Result<(), End> {
        let Some((batch, heard)) = riding.quietest() else { return Ok(()) };
        let due = heard + self.plan.response_timeout;
        if due <= Instant::now() {
            return Err(End { death: WorkerExit::TimedOut, overdue: Some(batch) });
        }
        alarm.reset(due);
        Ok(())
    }

    /// Closes this life's channel before telling, so that no batch can fall between two lives.
    async fn bury(
        &mut self,
        worker: Box<dyn Worker>,
        inbox: &mut mpsc::Receiver<Batch>,
        hands: Hands,
        end: End,
    ) -> ControlFlow<()> {
        inbox.close();
        let unheard = std::iter::from_fn(|| inbox.try_recv().ok());
        let End { death, overdue } = end;
        let blamed = overdue.or(hands.riding.current());
        let batches = hands.riding.into_batches().chain(hands.held).chain(unheard);
        let batches: Vec<Batch> = batches.collect();
        self.recovery.died(self.worker, !batches.is_empty());
        self.tell(WorkerEvent::Exited { worker: self.worker, batches, death, blamed }).await;
        worker.end(true).await;
        ControlFlow::Continue(())
    }

    /// Waits before the next start, or for ever once that is given up.
    async fn pause(&mut self) -> ControlFlow<()> {
        let Some(pause) = self.backoff.next(Instant::now()) else {
            self.tell(WorkerEvent::GivenUp { worker: self.worker }).await;
            // An error means that the pool is gone, which is as good as being asked to leave.
            drop((&mut self.retire).await);
            return ControlFlow::Break(());
        };
        self.recovery.retry(self.worker, pause);
        tokio::select! {
            () = sleep(pause) => ControlFlow::Continue(()),
            _ = &mut self.retire => ControlFlow::Break(()),
        }
    }

    async fn tell(&self, event: WorkerEvent) {
        // A closed channel means that the model's task has gone, and the pool with it: the seat
        // finds itself retired next.
        drop(self.events.send(event).await);
    }
}
