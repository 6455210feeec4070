//! A loaded Python process, as the pool sees it: takes batches, answers, ends.
//!
//! What it prints goes to the log under the model's name, line by line, but for the metrics among it, which go to the
//! observer. Of a metric that is longer than a piece only the first piece is read.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::timeout;

use crate::call::SequenceHeaders;
use crate::frames::{
    BatchFrame, BatchItem, CallsToken, ConnectionError, FrameError, FrameKind, WorkerConnection,
    decode_chunk, decode_failed, decode_reply, decode_times, next_frame,
};
use crate::observer::{Observer, PrintedBy};
use crate::outcome::{BatchOutcome, Cause, ItemOutcome, ModelFailure, WorkerExit, last_line};
use crate::pending::PendingRequest;
use crate::pool::{BoxFuture, LoadedReport, Worker, WorkerGone, WorkerMessage};
use crate::process::{OutputSink, WorkerProcess};
use crate::settings::WorkerMode;

/// A worker at work is handed a batch of at most so many bytes: it fits into the socket's buffer and
/// is written without waiting.
const AHEAD_MAX: usize = 32 * 1024;

/// How long a process may take to be reaped after it closed the connection, and to end after it was asked to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct PythonWorker {
    pub(super) process: WorkerProcess,
    pub(super) connection: WorkerConnection,
    /// Batches it can hold at a time.
    pub(super) slots: u8,
    /// What it found when it loaded.
    pub(super) report: LoadedReport,
    pub(super) mode: WorkerMode,
    /// The headers in which its handler reads about sequences.
    pub(super) sequence_headers: Arc<SequenceHeaders>,
    /// Bytes of one answer.
    pub(super) response_bytes_max: Option<u64>,
    /// Batches that no frame has room for; they come back at once, to be run in halves.
    pub(super) too_long: Vec<u64>,
    /// The right of a definition to call models, which ends with it.
    pub(super) calls: Option<CallsToken>,
    /// Why it was found lost.
    pub(super) broken: Option<ConnectionError>,
    /// What it has printed, where its memory is limited.
    pub(super) output: Option<Arc<OutputSource>>,
}

impl PythonWorker {
    fn lose(&mut self, error: ConnectionError) -> WorkerGone {
        self.broken = Some(error);
        WorkerGone
    }

    async fn send(
        &mut self,
        batch: u64,
        requests: &[PendingRequest],
    ) -> Result<(), ConnectionError> {
        let tells = self.calls.is_some();
        let item = |request| BatchItem::of(request, tells);
        let items: Vec<BatchItem<'_>> = requests.iter().filter_map(item).collect();
        assert_eq!(items.len(), requests.len(), "a Python model is given raw inputs only");
        let frame = BatchFrame::of_items(batch, items, &self.sequence_headers);
        if !frame.fits() {
            self.too_long.push(batch);
            return Ok(());
        }
        self.connection.count_in(requests.iter().find_map(|it| it.permit.as_ref()));
        // One that overlaps its batches answers one while another is written to it.
        if self.slots > 1 {
            self.connection.queue_batch(frame)
        } else {
            self.connection.send_batch(frame).await
        }
    }

    async fn next_message(&mut self) -> Result<WorkerMessage, ConnectionError> {
        if let Some(batch) = self.too_long.pop() {
            let message = "The requests of the batch are too large to be run together.".to_owned();
            let failure = ModelFailure::new(Cause::TooLarge, message);
            return Ok(WorkerMessage::Finished {
                batch,
                outcome: Ok(BatchOutcome::Failed(failure)),
            });
        }
        let (header, payload) = next_frame(&mut self.connection, &mut self.process).await?;
        let (batch, count) = (header.id, header.count);
        let over = |outcome| WorkerMessage::Finished { batch, outcome: Ok(outcome) };
        if header.kind == FrameKind::Reply {
            let mut items = decode_reply(count, payload)?;
            if let Some(max) = self.response_bytes_max {
                items.iter_mut().for_each(|item| reject_large(item, max));
            }
            Ok(over(BatchOutcome::Items(items)))
        } else if header.kind == FrameKind::Failed {
            Ok(over(BatchOutcome::Failed(decode_failed(&payload)?)))
        } else if header.kind == FrameKind::Chunk {
            Ok(WorkerMessage::Pieces { batch, pieces: decode_chunk(count, payload)? })
        } else if header.kind == FrameKind::Times {
            Ok(WorkerMessage::Times { batch, times: decode_times(&payload)? })
        } else {
            Err(FrameError::Unexpected(header.kind).into())
        }
    }

    /// How the process ended, once it has been reaped or killed.
    async fn exit_of(&mut self, error: ConnectionError) -> WorkerExit {
        match error {
            ConnectionError::Protocol(error) => {
                tracing::error!(%error, "worker broke the protocol");
                WorkerExit::BrokeProtocol
            }
            ConnectionError::Closed | ConnectionError::Io(_) => {
                let exit = reaped(&mut self.process).await;
                self.aborted_for_memory(exit).await.unwrap_or(exit)
            }
        }
    }

    /// Libraries in C++ and Rust abort where Python would raise MemoryError; the last that they print tells.
    async fn aborted_for_memory(&mut self, exit: WorkerExit) -> Option<WorkerExit> {
        let output = self.output.as_ref().filter(|_| exit.is_abort())?;
        drop(timeout(EXIT_TIMEOUT, self.process.drained()).await);
        let last = output.last_error();
        let memory = NO_MEMORY.iter().any(|words| last.contains(words));
        memory.then_some(WorkerExit::OutOfMemory { bytes: None })
    }
}

/// What is printed by a library that gets no memory, and aborts.
const NO_MEMORY: [&str; 3] = ["bad_alloc", "MemoryError", "memory allocation of"];

/// How a process ended that closed its connection.
pub(super) async fn reaped(process: &mut WorkerProcess) -> WorkerExit {
    WorkerExit::of_process(timeout(EXIT_TIMEOUT, process.wait()).await.ok().flatten())
}

/// TorchServe closes the worker for this; here only the request fails.
fn reject_large(item: &mut ItemOutcome, max: u64) {
    let bytes = item.as_ref().map_or(0, |output| output.bytes() as u64);
    if bytes > max {
        let message = format!("The response has {bytes} bytes, more than max_response_size={max}.");
        *item = Err(ModelFailure::new(Cause::TooLarge, message));
    }
}

impl Worker for PythonWorker {
    fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    fn memory(&self) -> u64 {
        self.process.memory()
    }

    fn gpu_memory(&self) -> u64 {
        self.report.gpu_memory.unwrap_or(0)
    }

    fn slots(&self) -> u8 {
        self.slots
    }

    fn report(&mut self) -> LoadedReport {
        std::mem::take(&mut self.report)
    }

    fn queues(&self, requests: &[PendingRequest]) -> bool {
        let small = || {
            let inputs = requests.iter().filter_map(|request| request.payload.raw()).collect();
            BatchFrame::new(0, inputs, &self.sequence_headers).payload_len() <= AHEAD_MAX
        };
        // Others do not run their batches one after another.
        self.mode == WorkerMode::Single && self.slots == 1 && small()
    }

    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>> {
        Box::pin(async move {
            let sent = self.send(batch, requests).await;
            sent.map_err(|error| self.lose(error))
        })
    }

    fn share(&mut self, workers: u32) {
        // A connection that broke is found by the batch that follows.
        drop(self.connection.queue_share(workers));
    }

    fn cancels(&self) -> bool {
        true
    }

    fn cancel(&mut self, batch: u64, positions: &[u16]) -> Result<(), WorkerGone> {
        let queued = self.connection.queue_cancel(batch, positions);
        queued.map_err(|error| self.lose(error))
    }

    /// A future made anew for every poll: all that `next_message` remembers lies in the connection and the process,
    /// whose wakers stay registered, and so a message costs no allocation.
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>> {
        let heard = ready!(pin!(self.next_message()).poll(context));
        Poll::Ready(heard.map_err(|error| self.lose(error)))
    }

    fn exit(&mut self) -> BoxFuture<'_, WorkerExit> {
        let error = self.broken.take().unwrap_or(ConnectionError::Closed);
        Box::pin(self.exit_of(error))
    }

    fn end(mut self: Box<Self>, force: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if !force
                && self
                    .connection
                    .send_control(FrameKind::Stop, &serde_json::json!({}))
                    .await
                    .is_ok()
            {
                drop(timeout(EXIT_TIMEOUT, self.process.wait()).await);
            }
            self.process.kill();
            // One that the kernel cannot end yet is not waited for.
            drop(timeout(EXIT_TIMEOUT, self.process.wait()).await);
        })
    }
}

/// How a metric begins (`protocol/spec.md`).
const METRIC: &[u8] = b"[METRICS]";

/// The worker whose output it is.
pub(crate) struct OutputSource {
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) worker: u32,
    /// How many processes of the model were started before it.
    pub(crate) start: u32,
    pub(crate) observer: Arc<dyn Observer>,
    /// The last line of its stderr that was not empty.
    pub(crate) last_error: Mutex<String>,
}

impl OutputSource {
    /// The last line that it printed as an error so far; empty if there was none.
    pub(crate) fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn printed_by(&self) -> PrintedBy<'_> {
        let Self { model, version, worker, start, .. } = self;
        PrintedBy { model, version, worker: *worker, start: *start }
    }

    fn note_error(&self, text: &str) {
        let line = last_line(text);
        if !line.is_empty() {
            let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
            line.clone_into(&mut last);
        }
    }
}

/// Both streams were read to their ends, and nobody looks at the process any more.
impl Drop for OutputSource {
    fn drop(&mut self) {
        self.observer.printing_ended(self.printed_by());
    }
}

/// One stream of a worker.
pub(crate) struct WorkerStream {
    source: Arc<OutputSource>,
    stream: &'static str,
    /// Whether the line at hand is a metric.
    metric: bool,
}

impl WorkerStream {
    pub(crate) fn new(source: &Arc<OutputSource>, stream: &'static str) -> Self {
        Self { source: Arc::clone(source), stream, metric: false }
    }
}

impl OutputSink for WorkerStream {
    fn take(&mut self, piece: &[u8], begins: bool) {
        if begins {
            self.metric = self.stream == "stdout" && piece.starts_with(METRIC);
        }
        match (self.metric, begins) {
            (true, true) => {
                let (line, source) = (text(&piece[METRIC.len()..]), &self.source);
                match line.starts_with('{') {
                    true => source.observer.own_metric_printed(source.printed_by(), &line),
                    false => source.observer.metric_printed(&line),
                }
            }
            (true, false) => {}
            (false, _) => log_line(&text(piece), &self.source, self.stream),
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned()
}

fn log_line(text: &str, source: &OutputSource, stream: &'static str) {
    let OutputSource { model, version, worker, .. } = source;
    if stream == "stderr" {
        source.note_error(text);
        tracing::warn!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    } else {
        tracing::info!(target: "jitney::worker_output", model, version, worker, stream, "{text}");
    }
}

#[cfg(test)]
mod output_tests {
    use std::sync::Mutex;

    use super::*;
    use crate::process::{OUTPUT_PIECE_MAX, read_pieces};

    #[derive(Default)]
    struct Printed(Mutex<Vec<String>>);

    impl Observer for Printed {
        fn metric_printed(&self, line: &str) {
            self.0.lock().expect("lock").push(line.to_owned());
        }
    }

    async fn printed(output: &str, stream: &'static str) -> Vec<String> {
        let printed = Arc::new(Printed::default());
        let observer: Arc<dyn Observer> = Arc::clone(&printed) as _;
        let (model, version) = ("m".to_owned(), "1".to_owned());
        let last_error = Mutex::default();
        let source = OutputSource { model, version, worker: 9000, start: 0, observer, last_error };
        let source = Arc::new(source);
        read_pieces(output.as_bytes(), WorkerStream::new(&source, stream)).await;
        let last = if stream == "stderr" { output.trim().lines().last() } else { None };
        assert_eq!(source.last_error(), last.unwrap_or_default().trim());
        std::mem::take(&mut *printed.0.lock().expect("lock"))
    }

    #[tokio::test]
    async fn metrics_are_told_apart_from_output_at_the_beginning_of_a_line() {
        let output = "hello\n[METRICS]a\r\nsee [METRICS]b\n [METRICS]c\n[METRICS]d";
        assert_eq!(printed(output, "stdout").await, ["a", "d"]);
        assert!(printed(output, "stderr").await.is_empty());
    }

    #[tokio::test]
    async fn of_an_endless_metric_only_the_first_piece_is_read() {
        let endless = "x".repeat(3 * OUTPUT_PIECE_MAX as usize);
        let output = format!("[METRICS]{endless}\n[METRICS]next\n{endless}[METRICS]no\n");
        let lines = printed(&output, "stdout").await;
        assert_eq!((lines.len(), lines[1].as_str()), (2, "next"));
        assert!(lines[0].len() < OUTPUT_PIECE_MAX as usize);
    }
}
