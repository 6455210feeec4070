//! A worker that is a thread: it owns nothing but its end of a channel, takes whole batches, and
//! answers each over the channel that came with it. A panic inside the engine ends this worker and
//! its batch, never the server. A thread cannot be killed, so a session that is ended by force
//! finishes its batch unheard; it never answers a batch that nobody waits for any more.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rten::{RunOptions, ThreadPool};
use tokio::sync::{mpsc, oneshot};

use super::answer::{self, Identity};
use super::batch::{self, Leg};
use super::gather;
use super::model::OnnxModel;
use super::request::TensorInput;
use super::tensor::Tensor;
use crate::call::{Output, Payload, PendingRequest};
use crate::outcome::{BatchOutcome, Cause, ItemOutcome, LaunchError, ModelFailure, WorkerExit};
use crate::pool::{BoxFuture, Launcher, Worker, WorkerGone, WorkerMessage};

/// How sessions of a model run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Threads that one batch may use. One is right where several sessions share the cores.
    pub threads: usize,
    /// The name by which answers call the model; its own where absent.
    pub name: Option<String>,
    /// The version by which answers call the model; its own where absent.
    pub version: Option<String>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { threads: 1, name: None, version: None }
    }
}

/// Starts sessions of one model. They share its weights, so a further one costs only its thread.
#[derive(Debug)]
pub struct OnnxLauncher {
    runner: Arc<Runner>,
    threads: usize,
}

impl OnnxLauncher {
    /// Sessions of this model.
    pub fn new(model: Arc<OnnxModel>, options: SessionOptions) -> Self {
        let SessionOptions { threads, name, version } = options;
        let identity = Identity {
            name: name.unwrap_or_else(|| model.name().to_owned()),
            version: version.unwrap_or_else(|| model.version().to_owned()),
        };
        Self { runner: Arc::new(Runner { model, identity }), threads: threads.max(1) }
    }
}

impl Launcher for OnnxLauncher {
    fn launch(&self, worker: u32) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let (runner, threads) = (Arc::clone(&self.runner), self.threads);
        Box::pin(async move {
            let name = format!("onnx-{}-{worker}", runner.identity.name);
            let session =
                Session::start(name, threads, move |inputs, options| runner.run(inputs, options))?;
            Ok(Box::new(session) as Box<dyn Worker>)
        })
    }
}

/// What a session does with a batch.
#[derive(Debug)]
pub(super) struct Runner {
    pub model: Arc<OnnxModel>,
    pub identity: Identity,
}

impl Runner {
    /// Runs a batch and words every answer.
    pub(super) fn run(&self, inputs: &[TensorInput], options: &RunOptions) -> BatchOutcome {
        let legs = batch::legs(inputs);
        match batch::run(&self.model, &legs, options) {
            Err(failure) => BatchOutcome::Failed(failure),
            Ok(outputs) => {
                let mut items = Vec::with_capacity(inputs.len());
                for (leg, outputs) in legs.iter().zip(outputs) {
                    // Of several portions the last one speaks for all.
                    items.extend((1..leg.inputs.len()).map(|_| Ok(Output::default())));
                    items.push(self.answer(leg, &inputs[leg.inputs.clone()], outputs));
                }
                BatchOutcome::Items(items)
            }
        }
    }

    /// The answer to a request all of whose items have their outputs; otherwise nothing yet.
    fn answer(
        &self,
        leg: &Leg<'_>,
        portions: &[TensorInput],
        mut outputs: Vec<Tensor>,
    ) -> ItemOutcome {
        if !leg.is_whole() {
            match gather::gathered(portions, &outputs)? {
                Some(all) => outputs = all,
                None => return Ok(Output::default()),
            }
        }
        answer::answer(&self.model, &self.identity, leg.request, &outputs)
    }
}

/// A batch on its way to the thread.
struct Job {
    inputs: Vec<TensorInput>,
    reply: oneshot::Sender<BatchOutcome>,
}

/// The server's end of a session. Dropping it ends the thread after its batch.
#[derive(Debug)]
pub(super) struct Session {
    jobs: mpsc::Sender<Job>,
    /// The batch that the thread has.
    answer: Option<(u64, oneshot::Receiver<BatchOutcome>)>,
    /// Resolves when the thread is gone.
    gone: oneshot::Receiver<()>,
}

impl Session {
    /// Starts the thread.
    pub(super) fn start(
        name: String,
        threads: usize,
        work: impl FnMut(&[TensorInput], &RunOptions) -> BatchOutcome + Send + 'static,
    ) -> Result<Self, LaunchError> {
        let (jobs, mailbox) = mpsc::channel(1);
        let pool = Arc::new(ThreadPool::with_num_threads(threads));
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&pool)));
        // The loop lives inside the engine's pool: a batch then starts where it arrives instead of
        // being handed to the pool's thread and back.
        let (alive, gone) = oneshot::channel();
        let thread = move || {
            let _alive: oneshot::Sender<()> = alive;
            pool.run(move || serve(mailbox, work, &options));
        };
        std::thread::Builder::new()
            .name(name)
            .spawn(thread)
            .map_err(|error| LaunchError::Spawn(error.to_string()))?;
        Ok(Self { jobs, answer: None, gone })
    }

    /// Gives the thread a batch; an error when the thread is gone.
    pub(super) async fn ride(
        &mut self,
        batch: u64,
        inputs: Vec<TensorInput>,
    ) -> Result<(), WorkerGone> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job { inputs, reply }).await.map_err(|_| WorkerGone)?;
        self.answer = Some((batch, answer));
        Ok(())
    }
}

/// The thread: one batch after the other until nobody sends any more, or until one panics.
fn serve(
    mut mailbox: mpsc::Receiver<Job>,
    mut work: impl FnMut(&[TensorInput], &RunOptions) -> BatchOutcome,
    options: &RunOptions,
) {
    while let Some(Job { inputs, reply }) = mailbox.blocking_recv() {
        if reply.is_closed() {
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| work(&inputs, options))) {
            // The caller may have gone meanwhile; then the answer is of use to nobody.
            Ok(outcome) => drop(reply.send(outcome)),
            Err(panic) => {
                tracing::error!(
                    requests = inputs.len(),
                    panic = words(&*panic),
                    "onnx session panicked"
                );
                return;
            }
        }
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The requests' tensors; `None` when one was never decoded, which the intake does not let happen.
fn tensors(requests: &[PendingRequest]) -> Option<Vec<TensorInput>> {
    let tensors = |request: &PendingRequest| match &request.payload {
        Payload::Tensors(tensors) => Some(tensors.clone()),
        Payload::Raw(_) => None,
    };
    requests.iter().map(tensors).collect()
}

impl Worker for Session {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>> {
        Box::pin(async move {
            match tensors(requests) {
                Some(inputs) => self.ride(batch, inputs).await,
                None => {
                    let (reply, answer) = oneshot::channel();
                    let message = "the request was not decoded for this model".to_owned();
                    let failure = ModelFailure { cause: Cause::Raised, status: None, message };
                    drop(reply.send(BatchOutcome::Failed(failure)));
                    self.answer = Some((batch, answer));
                    Ok(())
                }
            }
        })
    }

    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>> {
        let Some((batch, answer)) = &mut self.answer else {
            return Pin::new(&mut self.gone).poll(context).map(|_| Err(WorkerGone));
        };
        let batch = *batch;
        let heard = ready!(Pin::new(answer).poll(context));
        self.answer = None;
        Poll::Ready(
            heard.map(|outcome| WorkerMessage::Finished { batch, outcome }).map_err(|_| WorkerGone),
        )
    }

    fn exit(&mut self) -> BoxFuture<'_, WorkerExit> {
        Box::pin(std::future::ready(WorkerExit::Crashed { killed: false }))
    }

    fn end(self: Box<Self>, _force: bool) -> BoxFuture<'static, ()> {
        // An idle thread leaves its loop at once; a busy one after its batch, which is shared with
        // nobody. There is nothing to wait for in either case.
        Box::pin(async move { drop(self) })
    }
}
