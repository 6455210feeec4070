//! The answers to a stream of requests, of which many run at the same time.
//!
//! A client may send as fast as it likes: one request more than may run is read, and those of one sequence run one
//! after the other. A client that stops sending still gets every answer; when it disconnects, its requests are
//! cancelled. What a request asks is not known here.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use jitney_engine::admission::{Admission, HeldBytes};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

/// Requests of one stream that are under way at a time.
const CALLS_MAX: usize = 128;

/// Answers that wait for a client before its calls do.
const ANSWERS_MAX: usize = 16;

/// One request of a stream.
pub(super) struct StreamedCall {
    /// Where no other request of it is under way, this one runs.
    pub(super) sequence: Option<Arc<str>>,
    /// Sends its answers.
    pub(super) run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Where the answers of a stream go.
#[derive(Clone)]
pub(super) struct AnswerSender<T> {
    sender: mpsc::Sender<(T, HeldBytes)>,
    admission: Arc<Admission>,
}

impl<T> AnswerSender<T> {
    /// Sends an answer of so many bytes.
    pub(super) async fn send(&self, answer: T, bytes: usize) {
        let held = self.admission.keep(bytes as u64);
        // The client may be gone; then the task ends with its answers.
        drop(self.sender.send((answer, held)).await);
    }
}

/// What the client reads. Dropping it ends the task and all its calls.
pub(super) struct StreamAnswers<T> {
    receiver: mpsc::Receiver<(T, HeldBytes)>,
    _task: JoinSet<()>,
}

impl<T: Clone + Send + 'static> StreamAnswers<T> {
    /// The answers of the calls that are made of the requests; where none can be made the stream ends.
    pub(super) fn of<R: Send + 'static>(
        requests: Streaming<R>,
        admission: &Arc<Admission>,
        calls: impl FnMut(R, AnswerSender<T>) -> Option<StreamedCall> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(ANSWERS_MAX);
        let to = AnswerSender { sender, admission: Arc::clone(admission) };
        let mut task = JoinSet::new();
        task.spawn(answer(requests, to, calls));
        Self { receiver, _task: task }
    }
}

impl<T> Stream for StreamAnswers<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context).map(|answer| answer.map(|(message, _)| Ok(message)))
    }
}

async fn answer<R, T: Clone>(
    mut requests: Streaming<R>,
    to: AnswerSender<T>,
    mut calls: impl FnMut(R, AnswerSender<T>) -> Option<StreamedCall>,
) {
    let (mut running, mut busy) = (JoinSet::new(), HashSet::<Arc<str>>::new());
    let (mut open, mut next) = (true, None);
    while open || next.is_some() || !running.is_empty() {
        let may_run = |next: &mut StreamedCall| {
            next.sequence.as_ref().is_none_or(|sequence| !busy.contains(sequence))
        };
        if let Some(StreamedCall { sequence, run }) = next.take_if(may_run) {
            busy.extend(sequence.clone());
            running.spawn(async move {
                run.await;
                sequence
            });
        }
        let room = open && next.is_none() && running.len() < CALLS_MAX;
        tokio::select! {
            request = requests.message(), if room => match request {
                Ok(Some(request)) => match calls(request, to.clone()) {
                    Some(call) => next = Some(call),
                    None => return,
                },
                Ok(None) => open = false,
                // The client is gone.
                Err(_) => return,
            },
            Some(over) = running.join_next() => {
                // The sequence of a call that panicked is not known.
                let Ok(sequence) = over else { return };
                if let Some(sequence) = sequence {
                    busy.remove(&sequence);
                }
            }
        }
    }
}
