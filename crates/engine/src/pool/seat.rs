//! One worker's place: starts it, hands it one batch at a time, ends it, starts it again.
//!
//! A seat is a task of its own so that a hanging worker holds up nobody. It owns the batch that is
//! under way, riders included; whatever happens, the batch goes back to the model's task in an
//! event, or is dropped with the task, which tells every rider's caller.
//!
//! ```text
//! coming --launched--> ready --died--> (pause) --> coming
//!    \--failed--> (pause) --> coming      \--retire--> ended
//!                    \--window over--> lost --retire--> ended
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{BatchId, Departure, RequestId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::worker::{Launcher, Worker};
use crate::call::Rider;
use crate::outcome::{BatchOutcome, Death, LaunchError};

/// The time limits of a seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatPlan {
    pub(crate) startup_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) retry_window: Duration,
}

/// A departed batch with everybody in it.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: BatchId,
    pub(crate) ids: Vec<RequestId>,
    pub(crate) riders: Vec<Rider>,
    pub(crate) items: u32,
    pub(crate) attempt: u8,
    pub(crate) reason: Departure,
    pub(crate) departed: Instant,
}

/// What a seat tells the model's task.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// Loaded, and ready for batches through `batches` until it dies. The channel belongs to this
    /// life of the worker: a batch sent too late is given back to the sender or comes with `Died`.
    Up {
        worker: u32,
        pid: Option<u32>,
        batches: mpsc::Sender<Batch>,
        /// How long it took to load.
        took: Duration,
    },
    Finished {
        batch: Batch,
        outcome: BatchOutcome,
        exec: Duration,
    },
    /// Dead, with every batch that was handed to it and not finished.
    Died {
        worker: u32,
        batches: Vec<Batch>,
        death: Death,
    },
    LaunchFailed {
        worker: u32,
        error: LaunchError,
    },
    /// Starting it again was given up.
    Lost {
        worker: u32,
    },
    /// It left as it was asked to.
    Ended {
        worker: u32,
    },
}

pub(crate) struct Seat {
    worker: u32,
    launcher: Arc<dyn Launcher>,
    plan: SeatPlan,
    /// Resolves when the worker is asked to leave, or when the pool is gone.
    retire: oneshot::Receiver<()>,
    events: mpsc::Sender<WorkerEvent>,
    backoff: Backoff,
}

impl Seat {
    pub(crate) fn new(
        worker: u32,
        launcher: &Arc<dyn Launcher>,
        plan: &SeatPlan,
        retire: oneshot::Receiver<()>,
        events: &mpsc::Sender<WorkerEvent>,
    ) -> Self {
        let backoff = Backoff::new(plan.retry_window);
        let (launcher, events) = (Arc::clone(launcher), events.clone());
        Self { worker, launcher, plan: *plan, retire, events, backoff }
    }

    /// Lives until the worker is asked to leave.
    pub(crate) async fn run(mut self) {
        while self.one_life().await.is_continue() && self.pause().await.is_continue() {}
        self.tell(WorkerEvent::Ended { worker: self.worker }).await;
    }

    /// From start to death. Breaks when the worker was asked to leave.
    async fn one_life(&mut self) -> ControlFlow<()> {
        let began = Instant::now();
        let worker = match self.launch().await? {
            Ok(worker) => worker,
            Err(error) => {
                self.tell(WorkerEvent::LaunchFailed { worker: self.worker, error }).await;
                return ControlFlow::Continue(());
            }
        };
        let (batches, mut inbox) = mpsc::channel(1);
        let pid = worker.pid();
        let took = began.elapsed();
        self.tell(WorkerEvent::Up { worker: self.worker, pid, batches, took }).await;
        self.serve(worker, &mut inbox).await
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
        inbox: &mut mpsc::Receiver<Batch>,
    ) -> ControlFlow<()> {
        loop {
            let batch = tokio::select! {
                biased;
                Some(batch) = inbox.recv() => batch,
                death = worker.died() => return self.bury(worker, inbox, None, death).await,
                _ = &mut self.retire => {
                    worker.end(false).await;
                    return ControlFlow::Break(());
                }
            };
            match self.ride(&mut *worker, batch).await {
                Ok(finished) => self.tell(finished).await,
                Err((batch, death)) => {
                    return self.bury(worker, inbox, Some(batch), death).await;
                }
            }
        }
    }

    /// One batch, there and back.
    async fn ride(
        &mut self,
        worker: &mut dyn Worker,
        batch: Batch,
    ) -> Result<WorkerEvent, (Batch, Death)> {
        let departed = Instant::now();
        let ran = timeout(self.plan.response_timeout, worker.run(batch.id.0, &batch.riders)).await;
        match ran.unwrap_or(Err(Death::TimedOut)) {
            Ok(outcome) => {
                self.backoff.served();
                let exec = departed.elapsed();
                Ok(WorkerEvent::Finished { batch, outcome, exec })
            }
            Err(death) => Err((batch, death)),
        }
    }

    /// Closes this life's channel before telling, so that no batch can fall between two lives.
    async fn bury(
        &mut self,
        worker: Box<dyn Worker>,
        inbox: &mut mpsc::Receiver<Batch>,
        running: Option<Batch>,
        death: Death,
    ) -> ControlFlow<()> {
        inbox.close();
        let batches = running.into_iter().chain(inbox.try_recv()).collect();
        self.tell(WorkerEvent::Died { worker: self.worker, batches, death }).await;
        worker.end(true).await;
        ControlFlow::Continue(())
    }

    /// Waits before the next start, or for ever once that is given up.
    async fn pause(&mut self) -> ControlFlow<()> {
        let Some(pause) = self.backoff.next(Instant::now()) else {
            self.tell(WorkerEvent::Lost { worker: self.worker }).await;
            // An error means that the pool is gone, which is as good as being asked to leave.
            drop((&mut self.retire).await);
            return ControlFlow::Break(());
        };
        tracing::info!("Retry worker: {} in {} seconds.", self.worker, pause.as_secs());
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
