//! A loaded process of this very program, as the pool sees it: takes batches, answers, ends.
//!
//! Requests were decoded and checked here; what is sent are their tensors, and what comes back are finished answers,
//! so that neither the model nor the writing of its answers can hold up or end the server. Only the parts
//! of a request that ran in several batches are put together here, off the data plane.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use jitney_settings::CpuList;
use serde_json::{Map, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::LocalModel;
use super::gpus::LocalGpus;
use super::process::{LastWords, LoadedProcess, LocalLoad, LocalProcesses};
use crate::call::DecodedInput;
use crate::cpus::CpuAssignment;
use crate::frames::{
    ConnectionError, FrameError, FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, WorkerConnection,
    decode_failed, decode_reply, next_frame,
};
use crate::gpu_assignment::GpuAnswers;
use crate::outcome::{BatchOutcome, ItemOutcome, LaunchError, ModelFailure, WorkerExit};
use crate::pending::{Payload, PendingRequest};
use crate::pool::{
    BoxFuture, Launcher, LoadedReport, ProgressSender, Worker, WorkerGone, WorkerMessage,
};
use crate::process::WorkerProcess;

/// How long a process may take to end after it was asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the worker processes of one model version.
pub(crate) struct LocalLauncher {
    pub(crate) processes: Arc<LocalProcesses>,
    pub(crate) model: Arc<dyn LocalModel>,
    pub(crate) load: Arc<LocalLoad>,
    /// Whether a process has tried the model before; else only its file was read.
    pub(crate) tried: bool,
    /// Those that its workers are given, if any.
    pub(crate) gpus: Option<LocalGpus>,
    /// The processors that they are kept to, if any.
    pub(crate) cpus: Option<Arc<CpuAssignment>>,
    /// The workers that the model was last scaled to.
    pub(crate) workers: AtomicU32,
}

impl Launcher for LocalLauncher {
    fn launch(
        &self,
        worker: u32,
        _progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>> {
        let (processes, load) = (Arc::clone(&self.processes), Arc::clone(&self.load));
        let (model, tried) = (Arc::clone(&self.model), self.tried);
        let told = self.gpus.as_ref().map(|gpus| gpus.told(worker));
        let (cpus, gpu) = (self.cpus.clone(), self.gpu(worker));
        let workers = self.workers.load(Ordering::Relaxed);
        Box::pin(async move {
            let mut own = Map::new();
            own.insert("workers".to_owned(), workers.into());
            own.insert("pinned".to_owned(), cpus.is_some().into());
            if let Some(told) = told {
                own.extend(told.await?);
            }
            let load = Arc::new(load.with(own));
            let pin = |process: &WorkerProcess| {
                if let Some(cpus) = cpus {
                    cpus.pin(worker, gpu, process);
                }
            };
            let loaded = processes.load(&load, Some(worker), pin).await?;
            let declared = model.file_signature();
            let same = match tried {
                true => loaded.signature == *declared,
                false => loaded.signature.keeps_to(declared),
            };
            // What it declares of batches may turn out to be wrong: then each item runs by itself.
            let alone = declared.batches() && !loaded.signature.batches();
            if !same {
                return Err(LaunchError::Load(
                    format!(
                        "{} has other inputs or outputs than when the model was registered; \
                     register it again",
                        load.file.display()
                    )
                    .into(),
                ));
            }
            let LoadedProcess { process, connection, last_words, .. } = loaded;
            let worker = LocalWorker {
                alone,
                process,
                connection,
                last_words,
                model,
                load,
                inputs: Vec::new(),
                finishing: None,
                exit: None,
            };
            Ok(Box::new(worker) as Box<dyn Worker>)
        })
    }

    fn set_worker_count(&self, workers: u32) {
        self.workers.store(workers, Ordering::Relaxed);
        self.cpus.iter().for_each(|cpus| cpus.set_count(workers));
    }

    fn gpu_ids(&self) -> Vec<u32> {
        self.gpus.as_ref().map(|gpus| gpus.assignment.each()).unwrap_or_default()
    }

    fn give_gpu(&self, worker: u32, gpu: u32) {
        if let Some(gpus) = &self.gpus {
            gpus.assignment.give(worker, gpu);
        }
    }

    fn gpu(&self, worker: u32) -> Option<u32> {
        self.gpus.as_ref()?.assignment.first(worker)
    }

    fn gpu_answers(&self, worker: u32) -> Option<GpuAnswers> {
        self.gpus.as_ref()?.assignment.answers(worker)
    }

    fn cpus(&self, worker: u32) -> Option<CpuList> {
        self.cpus.as_ref()?.cpus(worker)
    }

    fn forget(&self, worker: u32) {
        if let Some(gpus) = &self.gpus {
            gpus.assignment.release(worker);
        }
        self.cpus.iter().for_each(|cpus| cpus.release(worker));
    }
}

/// A loaded process, as the pool sees it.
pub(crate) struct LocalWorker {
    /// Whether a batch may hold one item only.
    alone: bool,
    process: WorkerProcess,
    connection: WorkerConnection,
    last_words: LastWords,
    model: Arc<dyn LocalModel>,
    load: Arc<LocalLoad>,
    /// The inputs of the batch that it has, if one of them is unfinished when the worker has answered.
    inputs: Vec<Arc<dyn DecodedInput>>,
    /// A batch whose parts are being put together, or one that could not be sent.
    finishing: Option<(u64, JoinHandle<BatchOutcome>)>,
    /// How it ended, once it has.
    exit: Option<WorkerExit>,
}

impl LocalWorker {
    async fn send(&mut self, id: u64, requests: &[PendingRequest]) -> Result<(), WorkerGone> {
        self.connection.count_in(requests.iter().find_map(|it| it.permit.as_ref()));
        let inputs: Option<Vec<_>> = requests.iter().map(decoded).collect();
        let mut frame = std::mem::take(&mut self.connection.write);
        let sent = match inputs.filter(|inputs| put_batch(id, inputs, &mut frame)) {
            None => {
                let failure = ModelFailure::raised("the batch cannot be sent to the worker");
                let outcome = std::future::ready(BatchOutcome::Failed(failure));
                self.finishing = Some((id, tokio::spawn(outcome)));
                Ok(())
            }
            Some(inputs) => {
                let unfinished = inputs.iter().any(|input| is_unfinished(&***input));
                self.inputs.clear();
                if unfinished {
                    self.inputs.extend(inputs.into_iter().cloned());
                }
                self.connection.send_bytes(&frame).await
            }
        };
        self.connection.keep_buffer(frame);
        match sent {
            Ok(()) => Ok(()),
            Err(error) => {
                self.lose(&error).await;
                Err(WorkerGone)
            }
        }
    }

    /// Its next message. Made anew for every poll: all that it remembers lies in `self`.
    async fn next_message(&mut self) -> Result<WorkerMessage, WorkerGone> {
        if let Some((batch, finishing)) = &mut self.finishing {
            let (batch, outcome) = (*batch, finishing.await);
            self.finishing = None;
            let failed =
                |_| BatchOutcome::Failed(ModelFailure::raised("the answer was not written"));
            let outcome = outcome.unwrap_or_else(failed);
            return Ok(WorkerMessage::Finished { batch, outcome: Ok(outcome) });
        }
        if self.exit.is_some() {
            return Err(WorkerGone);
        }
        let heard = next_frame(&mut self.connection, &mut self.process).await;
        match heard.and_then(|(header, payload)| Ok(self.on_frame(header, payload)?)) {
            Ok(Some(message)) => Ok(message),
            // The parts are being put together.
            Ok(None) => Box::pin(self.next_message()).await,
            Err(error) => {
                self.lose(&error).await;
                Err(WorkerGone)
            }
        }
    }

    fn on_frame(
        &mut self,
        header: FrameHeader,
        payload: Bytes,
    ) -> Result<Option<WorkerMessage>, FrameError> {
        let batch = header.id;
        let outcome = if header.kind == FrameKind::Reply {
            BatchOutcome::Items(decode_reply(header.count, payload)?)
        } else if header.kind == FrameKind::Failed {
            BatchOutcome::Failed(decode_failed(&payload)?)
        } else {
            return Err(FrameError::Unexpected(header.kind));
        };
        let inputs = std::mem::take(&mut self.inputs);
        match outcome {
            BatchOutcome::Items(items) if inputs.iter().any(|input| input.is_part()) => {
                let (model, load) = (Arc::clone(&self.model), Arc::clone(&self.load));
                let work = move || finish(&*model, &load, &inputs, items);
                self.finishing = Some((batch, tokio::task::spawn_blocking(work)));
                Ok(None)
            }
            // Tensors are read where they lie.
            BatchOutcome::Items(items) if !inputs.is_empty() => {
                let outcome = finish(&*self.model, &self.load, &inputs, items);
                Ok(Some(WorkerMessage::Finished { batch, outcome: Ok(outcome) }))
            }
            outcome @ (BatchOutcome::Items(_) | BatchOutcome::Failed(_)) => {
                Ok(Some(WorkerMessage::Finished { batch, outcome: Ok(outcome) }))
            }
        }
    }

    /// Learns how the process ended. Whatever is left of it ends now.
    async fn lose(&mut self, error: &ConnectionError) {
        if let ConnectionError::Protocol(error) = error {
            tracing::error!(%error, "worker broke the protocol");
            self.exit = Some(WorkerExit::BrokeProtocol);
            return;
        }
        // It has closed the connection, so it has ended or ends, and this does not change how.
        self.process.kill();
        let status = self.process.wait().await;
        self.process.drained().await;
        self.exit = Some(match self.last_words.get() {
            Some(bytes) => WorkerExit::OutOfMemory { bytes: Some(*bytes) },
            None => WorkerExit::of_process(status),
        });
    }
}

/// The request's input; `None` when it was never decoded, which the intake does not let happen.
fn decoded(request: &PendingRequest) -> Option<&Arc<dyn DecodedInput>> {
    match &request.payload {
        Payload::Decoded(input, ..) => Some(input),
        Payload::Raw(_) => None,
    }
}

/// Writes a BATCH frame; false when it would be longer than a frame may be.
fn put_batch(id: u64, inputs: &[&Arc<dyn DecodedInput>], out: &mut BytesMut) -> bool {
    out.clear();
    let table = HEADER_LEN;
    out.put_bytes(0, table + 8 * inputs.len());
    for (position, input) in inputs.iter().enumerate() {
        let start = out.len();
        input.put_meta(out);
        let meta = out.len();
        input.put_body(out);
        if out.len() - HEADER_LEN > PAYLOAD_MAX as usize {
            return false;
        }
        let lengths = [(meta - start) as u32, (out.len() - meta) as u32].map(u32::to_le_bytes);
        out[table + 8 * position..][..8].copy_from_slice(lengths.as_flattened());
    }
    let length = (out.len() - HEADER_LEN) as u32;
    let mut head = BytesMut::with_capacity(HEADER_LEN);
    let count = inputs.len() as u16;
    FrameHeader { length, kind: FrameKind::Batch, count, id }.encode(&mut head);
    out[..HEADER_LEN].copy_from_slice(&head);
    true
}

/// Whether what a worker gives for it is not the answer yet.
fn is_unfinished(input: &dyn DecodedInput) -> bool {
    input.is_part() || input.wants_tensors()
}

/// The answers to a batch in which some requests are parts of larger ones, or want tensors.
fn finish(
    model: &dyn LocalModel,
    load: &LocalLoad,
    inputs: &[Arc<dyn DecodedInput>],
    items: Vec<ItemOutcome>,
) -> BatchOutcome {
    let item = |(position, item): (usize, ItemOutcome)| match (inputs.get(position), item) {
        (Some(input), Ok(output)) if is_unfinished(&**input) => {
            model.finish(&load.name, &load.version, &**input, output)
        }
        (_, item) => item,
    };
    BatchOutcome::Items(items.into_iter().enumerate().map(item).collect())
}

impl Worker for LocalWorker {
    fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    fn report(&mut self) -> LoadedReport {
        let sizes = if self.alone { vec![1] } else { Vec::new() };
        LoadedReport { sizes, ..LoadedReport::default() }
    }

    fn send_batch<'a>(
        &'a mut self,
        batch: u64,
        requests: &'a [PendingRequest],
    ) -> BoxFuture<'a, Result<(), WorkerGone>> {
        Box::pin(self.send(batch, requests))
    }

    fn share(&mut self, workers: u32) {
        // A connection that broke is found by the batch that follows.
        drop(self.connection.queue_share(workers));
    }

    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WorkerMessage, WorkerGone>> {
        let heard = ready!(pin!(self.next_message()).poll(context));
        Poll::Ready(heard)
    }

    fn exit(&mut self) -> BoxFuture<'_, WorkerExit> {
        Box::pin(std::future::ready(self.exit.unwrap_or(WorkerExit::UNEXPLAINED)))
    }

    fn end(mut self: Box<Self>, force: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if !force && self.connection.send_control(FrameKind::Stop, &json!({})).await.is_ok() {
                drop(timeout(STOP_TIMEOUT, self.process.wait()).await);
            }
            self.process.kill();
            self.process.wait().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::RowsModel;

    #[test]
    fn a_batch_has_a_table_before_its_items() {
        let input = |rows: &str| {
            RowsModel::default().decode(*crate::testkit::call(rows).input).expect("rows").input
        };
        let (one, three) = (input("[1]"), input("[1, 2, 3]"));
        let mut frame = BytesMut::new();
        assert!(put_batch(7, &[&one, &three], &mut frame));
        let head: &[u8; HEADER_LEN] = frame.first_chunk().expect("a header");
        let header = FrameHeader::decode(head).expect("sound");
        assert_eq!((header.kind, header.count, header.id), (FrameKind::Batch, 2, 7));
        assert_eq!(header.length as usize, frame.len() - HEADER_LEN);
        let lengths: Vec<u32> = frame[HEADER_LEN..][..16]
            .chunks(4)
            .map(|length| u32::from_le_bytes(length.try_into().expect("four bytes")))
            .collect();
        // The test model writes as many bytes as it has rows.
        assert_eq!(lengths, [0, 1, 0, 3]);
        assert_eq!(frame.len(), HEADER_LEN + 16 + 4);
    }
}
