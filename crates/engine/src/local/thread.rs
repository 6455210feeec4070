//! A worker that is a thread: it takes whole batches over a channel and answers each over the channel
//! that came with it. A panic ends this worker and its batch, never the server. A thread cannot be
//! killed: one that is ended by force finishes its batch, and the outcome is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{mpsc, oneshot};

use super::{Batches, LocalSession, ThreadBatch};
use crate::call::DecodedInput;
use crate::outcome::{BatchOutcome, LaunchError, ModelFailure, WorkerExit};
use crate::pending::{Payload, PendingRequest};
use crate::pool::{BoxFuture, Launcher, ProgressSender, Worker, WorkerGone, WorkerMessage};

/// Starts threads of one model. They share its weights, so a further one costs only its thread.
pub(crate) struct ThreadLauncher {
    pub(crate) session: Arc<dyn LocalSession>,
    /// The runtime's name.
    pub(crate) runtime: &'static str,
    /// The name by which answers call the model.
    pub(crate) name: String,
    /// The version by which answers call the model.
    pub(crate) version: String,
}

impl Launcher for ThreadLauncher {
    fn launch(
        &self,
        worker: u32,
        _progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let (session, name, version) =
            (Arc::clone(&self.session), self.name.clone(), self.version.clone());
        let thread = format!("{}-{name}-{worker}", self.runtime);
        let started = ThreadWorker::start(thread, move |batches| {
            session.run_batches(&name, &version, batches);
        });
        Box::pin(std::future::ready(started.map(|worker| Box::new(worker) as Box<dyn Worker>)))
    }
}

/// The server's end of a thread. Dropping it ends the thread after its batch.
#[derive(Debug)]
pub(crate) struct ThreadWorker {
    batches: mpsc::Sender<ThreadBatch>,
    /// The batch that the thread has.
    running: Option<(u64, oneshot::Receiver<BatchOutcome>)>,
    /// Resolves when the thread is gone.
    gone: oneshot::Receiver<()>,
}

impl ThreadWorker {
    /// Starts the thread.
    pub(crate) fn start(
        name: String,
        work: impl FnOnce(Batches) + Send + 'static,
    ) -> Result<Self, LaunchError> {
        let (batches, received) = mpsc::channel(1);
        let (alive, gone) = oneshot::channel::<()>();
        let thread = move || {
            let _alive = alive;
            work(Batches(received));
        };
        std::thread::Builder::new()
            .name(name)
            .spawn(thread)
            .map_err(|error| LaunchError::Spawn(error.to_string()))?;
        Ok(Self { batches, running: None, gone })
    }

    /// Gives the thread a batch; an error when the thread is gone.
    async fn run(
        &mut self,
        batch: u64,
        inputs: Vec<Arc<dyn DecodedInput>>,
    ) -> Result<(), WorkerGone> {
        let (outcome, running) = oneshot::channel();
        self.batches.send(ThreadBatch { inputs, outcome }).await.map_err(|_| WorkerGone)?;
        self.running = Some((batch, running));
        Ok(())
    }

    /// Answers a batch that the thread cannot take.
    fn fail(&mut self, batch: u64) {
        let (outcome, running) = oneshot::channel();
        let failure = ModelFailure::raised("the request was not decoded for this model");
        drop(outcome.send(BatchOutcome::Failed(failure)));
        self.running = Some((batch, running));
    }
}

/// The requests' inputs; `None` when one was never decoded, which the intake does not let happen.
fn inputs(requests: &[PendingRequest]) -> Option<Vec<Arc<dyn DecodedInput>>> {
    let input = |request: &PendingRequest| match &request.payload {
        Payload::Decoded(input, ..) => Some(Arc::clone(input)),
        Payload::Raw(_) => None,
    };
    requests.iter().map(input).collect()
}

impl Worker for ThreadWorker {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>> {
        Box::pin(async move {
            match inputs(requests) {
                Some(inputs) => self.run(batch, inputs).await,
                None => {
                    self.fail(batch);
                    Ok(())
                }
            }
        })
    }

    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>> {
        let Some((batch, running)) = &mut self.running else {
            return Pin::new(&mut self.gone).poll(context).map(|_| Err(WorkerGone));
        };
        let batch = *batch;
        let outcome = ready!(Pin::new(running).poll(context));
        self.running = None;
        Poll::Ready(
            outcome
                .map(|outcome| WorkerMessage::Finished { batch, outcome: Ok(outcome) })
                .map_err(|_| WorkerGone),
        )
    }

    fn exit(&mut self) -> BoxFuture<'_, WorkerExit> {
        Box::pin(std::future::ready(WorkerExit::UNEXPLAINED))
    }

    fn end(self: Box<Self>, _force: bool) -> BoxFuture<'static, ()> {
        // An idle thread ends at once, a busy one after its batch. There is nothing to wait for.
        Box::pin(async move { drop(self) })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;
    use crate::local::LocalModel;
    use crate::testkit::RowsModel;

    fn worker() -> ThreadWorker {
        let model = RowsModel::default();
        ThreadWorker::start("test".to_owned(), move |batches| {
            model.run_batches("rows", "1.0", batches);
        })
        .expect("a thread")
    }

    fn decoded(rows: &str) -> Arc<dyn DecodedInput> {
        RowsModel::default().decode(*crate::testkit::call(rows).input).expect("rows").input
    }

    async fn next(worker: &mut dyn Worker) -> Result<BatchOutcome, WorkerGone> {
        match poll_fn(|context| worker.poll_message(context)).await? {
            WorkerMessage::Finished { outcome, .. } => Ok(outcome.expect("an outcome")),
            other @ (WorkerMessage::Pieces { .. } | WorkerMessage::Times { .. }) => {
                panic!("a thread only answers: {other:?}")
            }
        }
    }

    async fn outcome(
        worker: &mut ThreadWorker,
        inputs: Vec<Arc<dyn DecodedInput>>,
    ) -> Result<BatchOutcome, WorkerGone> {
        worker.run(1, inputs).await?;
        next(worker).await
    }

    #[tokio::test]
    async fn a_thread_answers_batch_after_batch() {
        let mut worker = worker();
        for requests in 1..4 {
            let inputs: Vec<_> = (0..requests).map(|_| decoded("[1, 2]")).collect();
            let outcome = outcome(&mut worker, inputs).await.expect("alive");
            let BatchOutcome::Items(answers) = outcome else { panic!("the batch failed") };
            assert_eq!(answers.len(), requests);
        }
    }

    #[tokio::test]
    async fn a_failed_batch_leaves_the_thread_alive() {
        let fail = |inputs: &[Arc<dyn DecodedInput>]| match inputs {
            [_] => BatchOutcome::Items(vec![Ok(Default::default())]),
            _ => BatchOutcome::Failed(ModelFailure::raised("")),
        };
        let work = move |batches: Batches| batches.run(fail);
        let mut worker = ThreadWorker::start("test".to_owned(), work).expect("a thread");
        let two = vec![decoded("[1]"), decoded("[1]")];
        assert!(matches!(outcome(&mut worker, two).await, Ok(BatchOutcome::Failed(_))));
        let one = vec![decoded("[1]")];
        assert!(matches!(outcome(&mut worker, one).await, Ok(BatchOutcome::Items(_))));
    }

    #[tokio::test]
    async fn a_panic_ends_the_thread_and_its_batch_but_nothing_else() {
        let work = |batches: Batches| batches.run(|_| panic!("the model is confused"));
        let mut worker = ThreadWorker::start("test".to_owned(), work).expect("a thread");
        assert!(outcome(&mut worker, vec![decoded("[1]")]).await.is_err());
        assert!(next(&mut worker).await.is_err(), "idle or not, it is seen to be gone");
        assert_eq!(worker.exit().await, WorkerExit::UNEXPLAINED);
        assert!(outcome(&mut worker, vec![decoded("[1]")]).await.is_err());
    }

    #[tokio::test]
    async fn an_idle_thread_lives_until_it_is_ended() {
        let mut worker = worker();
        let wait = tokio::time::timeout(Duration::from_millis(20), next(&mut worker));
        assert!(wait.await.is_err(), "it is alive");
        assert_eq!(worker.pid(), None);
        Box::new(worker).end(false).await;
    }

    #[tokio::test]
    async fn threads_of_one_launcher_run_at_the_same_time() {
        let (name, version) = ("rows".to_owned(), "1.0".to_owned());
        let launcher = ThreadLauncher {
            session: Arc::new(RowsModel::default()),
            runtime: "rows",
            name,
            version,
        };
        let launch = |worker| launcher.launch(worker, ProgressSender::channel().0);
        let (first, second) = tokio::join!(launch(0), launch(1));
        for worker in [first, second] {
            let mut worker = worker.expect("a thread");
            worker.send_batch(1, &[]).await.expect("alive");
            assert!(next(&mut *worker).await.is_ok(), "an empty batch does not end it");
            worker.end(true).await;
        }
    }
}
