//! The worker of a model that wires others, as the pool sees it: no process and no thread. It runs each request as a
//! task, and drops it when its client has gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::{AbortHandle, JoinSet};

use super::{WiredModel, run};
use crate::call::{Call, Claim, Origin, OriginKind};
use crate::error::CallError;
use crate::outcome::{BatchOutcome, LaunchError, ModelFailure, Output, WorkerExit};
use crate::pending::PendingRequest;
use crate::pool::{BoxFuture, Launcher, ProgressSender, Worker, WorkerGone, WorkerMessage};

/// Makes the workers of one model.
pub(crate) struct WiredLauncher(pub(crate) Arc<WiredModel>);

impl Launcher for WiredLauncher {
    fn launch(
        &self,
        _worker: u32,
        _progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let model = Arc::clone(&self.0);
        Box::pin(async move {
            model.check()?;
            let (runs, batches) = (JoinSet::new(), BTreeMap::new());
            Ok(Box::new(WiredWorker { model, runs, batches }) as Box<dyn Worker>)
        })
    }
}

/// The requests of one worker that are under way; they end with it.
struct WiredWorker {
    model: Arc<WiredModel>,
    runs: JoinSet<(u64, WorkerMessage)>,
    batches: BTreeMap<u64, AbortHandle>,
}

impl Worker for WiredWorker {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>> {
        let (model, call) = (Arc::clone(&self.model), call_of(requests));
        let running = self.runs.spawn(async move {
            let answered = match call {
                Some(call) => run::run(&model, call).await,
                None => Err(CallError::Gone),
            };
            (batch, message_of(batch, answered))
        });
        self.batches.insert(batch, running);
        Box::pin(std::future::ready(Ok(())))
    }

    fn cancels(&self) -> bool {
        true
    }

    /// A batch has one request.
    fn cancel(&mut self, batch: u64, _positions: &[u16]) -> Result<(), WorkerGone> {
        self.batches.get(&batch).inspect(|running| running.abort());
        Ok(())
    }

    /// Without a request there is nothing to wait for: the pool asks again once it has handed one over.
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>> {
        let Poll::Ready(Some(ended)) = self.runs.poll_join_next(context) else {
            return Poll::Pending;
        };
        Poll::Ready(match ended {
            Ok((batch, message)) => {
                self.batches.remove(&batch);
                Ok(message)
            }
            Err(error) => self.dropped(&error),
        })
    }

    fn exit(&mut self) -> BoxFuture<'_, WorkerExit> {
        Box::pin(std::future::ready(WorkerExit::Ended { status: None, signal: None }))
    }

    fn end(self: Box<Self>, _force: bool) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl WiredWorker {
    /// A request that nobody waits for any more, or whose task panicked.
    fn dropped(&mut self, error: &tokio::task::JoinError) -> Result<WorkerMessage, WorkerGone> {
        let found = self.batches.iter().find(|(_, running)| running.id() == error.id());
        let batch = *found.ok_or(WorkerGone)?.0;
        self.batches.remove(&batch);
        let outcome = if error.is_cancelled() {
            BatchOutcome::Items(vec![Ok(Output::default())])
        } else {
            BatchOutcome::Failed(ModelFailure::raised("the wiring of the model failed"))
        };
        Ok(WorkerMessage::Finished { batch, outcome: Ok(outcome) })
    }
}

/// The request of a batch, for the parts: they are called as a driver in Python would call them.
fn call_of(requests: &[PendingRequest]) -> Option<Call> {
    let [request] = requests else { return None };
    let input = Box::new(request.payload.raw()?.clone());
    Some(Call {
        input,
        deadline: request.deadline,
        origin: Origin { kind: OriginKind::Python, ..request.facts.origin },
        priority: request.facts.priority,
        claim: Claim { tenant: request.tenant.clone(), ..Claim::default() },
        quota: None,
        mark: request.mark.clone(),
    })
}

fn message_of(batch: u64, answered: Result<Output, CallError>) -> WorkerMessage {
    let outcome = match answered {
        Ok(output) => Ok(BatchOutcome::Items(vec![Ok(output)])),
        Err(CallError::Model(failure)) => Ok(BatchOutcome::Items(vec![Err(failure)])),
        Err(error) => Err(error),
    };
    WorkerMessage::Finished { batch, outcome }
}
