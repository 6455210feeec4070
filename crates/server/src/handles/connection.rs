//! A handle's connection: reads calls, runs them concurrently, writes their frames.
//!
//! It owns its calls: when the client goes away they are dropped with it. It stops reading while its
//! limit of calls is under way, which slows the client down instead of failing it, and writes all frames
//! that are ready at once. A frame takes its share of the server's memory while it comes, and its call does
//! until the model admits it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper_util::rt::TokioIo;
use jitney_engine::admission::{CutReason, LimitMet, TransferShare};
use jitney_net::AnswerPiece;
use jitney_net::connection::{ConnectionStage, ListenerSignal, Peer};
use jitney_net::request_id::XRequestId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::HandleUpgrade;
use super::call::{self, CallFrame, PendingCall};
use super::frame::{self, ClientFrame, HandleCall, HandleFrameError, NAMES_MAX, ServerFrame};
use crate::auth::{Gate, GuardedOperation};
use crate::errors::Problem;
use crate::inference;
use crate::keys::Caller;
use crate::plugins::CallGuard;
use crate::request_key::RequestKey;
use crate::route::ModelRef;
use crate::state::ServerState;

/// Calls of one connection under way at a time.
const CALLS_MAX: usize = 8192;
/// Bytes of such calls, beyond which no further one is read.
const CALL_BYTES_MAX: usize = 64 << 20;
/// Frames that wait to be written; a call with a further one waits.
const FRAMES_MAX: usize = 1024;
/// What is read, and written, at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a client may take to notice the end; what it sends meanwhile is thrown away.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bodies of at least this size are written without a copy.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Serves frames until the client goes away, breaks the protocol, or the server ends.
pub(crate) async fn serve(
    upgrade: HandleUpgrade,
    peer: &Arc<Peer>,
    state: &Arc<ServerState>,
    mut signals: watch::Receiver<ListenerSignal>,
) {
    peer.enter(ConnectionStage::Busy);
    let HandleUpgrade { connection, guard, caller } = upgrade;
    let Ok(stream) = connection.await else { return };
    let right = guard.map_or(CallRight::Open, CallRight::Guarded);
    serve_stream(TokioIo::new(stream), right, caller, peer, state, &mut signals).await;
}

/// What the calls of a connection may do.
pub(super) enum CallRight {
    /// They are admitted like any request.
    Open,
    /// They are, once the operator's plugin allows each.
    Guarded(Arc<CallGuard>),
    /// They come from a worker of this server, which calls for a request that was admitted.
    Admitted,
}

/// Serves the frames of a connection that speaks nothing else, or nothing else any more.
pub(super) async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    right: CallRight,
    caller: Caller,
    peer: &Arc<Peer>,
    state: &Arc<ServerState>,
    signals: &mut watch::Receiver<ListenerSignal>,
) {
    let (sender, mut receiver) = mpsc::channel(FRAMES_MAX);
    let mut calls = Calls::new(state, peer, right, caller, sender);
    let mut stream = FrameStream::new(stream);
    let ended = serve_calls(&mut stream, &mut calls, &mut receiver, signals).await;
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "handle ended");
    }
}

async fn serve_calls(
    stream: &mut FrameStream<impl AsyncRead + AsyncWrite + Unpin>,
    calls: &mut Calls<'_>,
    receiver: &mut mpsc::Receiver<CallFrame>,
    signals: &mut watch::Receiver<ListenerSignal>,
) -> io::Result<()> {
    let peer = calls.peer;
    let mut ending = matches!(*signals.borrow_and_update(), ListenerSignal::End);
    loop {
        if !ending {
            calls.skip(&mut stream.input);
            calls.read_frames(&mut stream.input)?;
            calls.hold_half(&mut stream.input)?;
        } else if calls.running.is_empty() {
            return stream.close().await;
        }
        calls.note_idle(stream.input.is_empty());
        let reading = !ending && calls.has_room();
        tokio::select! {
            Some(outgoing) = receiver.recv() => stream.write(outgoing, calls, receiver).await?,
            read = stream.read(), if reading => if read? == 0 { return Ok(()) },
            reason = calls.cut() => return Err(too_slow(reason)),
            signal = signals.changed() => {
                ending |= signal.is_err() || matches!(*signals.borrow_and_update(), ListenerSignal::End);
            }
            () = peer.open.close_asked(), if !ending => ending = true,
        }
    }
}

/// The bytes of a connection.
struct FrameStream<S> {
    stream: S,
    input: BytesMut,
    output: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameStream<S> {
    fn new(stream: S) -> Self {
        Self { stream, input: BytesMut::new(), output: BytesMut::new() }
    }

    /// May be dropped while it waits.
    async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(CHUNK_BYTES);
        self.stream.read_buf(&mut self.input).await
    }

    /// Ends the connection. Closing it with bytes unread would destroy the last answers on their way.
    async fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let gone = async {
            while self.read().await.is_ok_and(|count| count > 0) {
                self.input.clear();
            }
        };
        drop(tokio::time::timeout(CLOSE_TIMEOUT, gone).await);
        Ok(())
    }

    /// Writes a frame and all that are ready behind it.
    async fn write(
        &mut self,
        outgoing: CallFrame,
        calls: &mut Calls<'_>,
        receiver: &mut mpsc::Receiver<CallFrame>,
    ) -> io::Result<()> {
        let mut next = Some(outgoing);
        while let Some(CallFrame { id, frame, held }) = next {
            // From here on what is large has its memory as a piece that the client must take.
            drop(held);
            if calls.is_awaited(id, &frame) {
                let body = frame.write(id, &mut self.output);
                self.put(body, calls.peer).await?;
            }
            next = receiver.try_recv().ok();
        }
        self.stream.write_all_buf(&mut self.output).await?;
        self.stream.flush().await
    }

    async fn put(&mut self, body: Bytes, peer: &Peer) -> io::Result<()> {
        if body.len() < COPY_BYTES_MAX {
            self.output.extend_from_slice(&body);
        }
        if body.len() >= COPY_BYTES_MAX || self.output.len() >= CHUNK_BYTES {
            self.stream.write_all_buf(&mut self.output).await?;
        }
        if body.len() >= COPY_BYTES_MAX {
            self.stream.write_all_buf(&mut AnswerPiece::new(body, peer)).await?;
        }
        Ok(())
    }
}

/// A call under way.
struct RunningCall {
    task: AbortHandle,
    bytes: usize,
}

/// The calls of a connection. Dropping it drops them.
struct Calls<'a> {
    state: &'a Arc<ServerState>,
    peer: &'a Arc<Peer>,
    right: CallRight,
    caller: Caller,
    sender: mpsc::Sender<CallFrame>,
    tasks: JoinSet<()>,
    /// Those without a last frame so far.
    running: HashMap<u64, RunningCall>,
    /// The bytes of their bodies.
    bytes: usize,
    /// The memory of a frame that is not complete, and how much of it was here at the last look.
    half: Option<(TransferShare, usize)>,
    /// Bytes to throw away, of a frame that there was no memory for.
    skipped: usize,
}

impl<'a> Calls<'a> {
    fn new(
        state: &'a Arc<ServerState>,
        peer: &'a Arc<Peer>,
        right: CallRight,
        caller: Caller,
        sender: mpsc::Sender<CallFrame>,
    ) -> Self {
        let (tasks, running) = (JoinSet::new(), HashMap::new());
        let (bytes, half, skipped) = (0, None, 0);
        Self { state, peer, right, caller, sender, tasks, running, bytes, half, skipped }
    }

    /// Notes when the last call ends, and when another begins to arrive.
    fn note_idle(&self, nothing_read: bool) {
        let open = &self.peer.open;
        match (nothing_read && self.running.is_empty(), open.is_idle()) {
            (true, false) => open.note_idle(),
            (false, true) => open.note_busy(),
            (true, true) | (false, false) => {}
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < CALLS_MAX && self.bytes < CALL_BYTES_MAX
    }

    /// Starts and cancels the calls that have arrived, up to the limit.
    fn read_frames(&mut self, input: &mut BytesMut) -> io::Result<()> {
        while let Some(done) = self.tasks.try_join_next() {
            // A call that panicked sends no last frame, so the connection ends.
            done.or_else(|error| if error.is_cancelled() { Ok(()) } else { Err(error) })?;
        }
        let limit = self.state.config.max_request_bytes + NAMES_MAX;
        while self.has_room() {
            let frame = frame::take(input, limit).map_err(broken)?;
            if frame.is_some() {
                self.half = None;
            }
            match frame {
                Some(ClientFrame::Call(call)) => self.begin(call)?,
                Some(ClientFrame::Cancel { id }) => {
                    if let Some(running) = self.release(id) {
                        running.task.abort();
                    }
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Takes memory for a frame that is not complete. Where there is none the call fails, and what comes
    /// of the frame is thrown away.
    fn hold_half(&mut self, input: &mut BytesMut) -> io::Result<()> {
        // While calls wait to be read, the client is not to blame for what is missing.
        if input.is_empty() || !self.has_room() {
            self.half = None;
            return Ok(());
        }
        let (share, seen) = self.half.get_or_insert_with(|| {
            let mut share = self.state.engine.admission().body();
            share.charge(self.caller.quota());
            (share, 0)
        });
        share.advance((input.len() - *seen) as u64);
        *seen = input.len();
        match (share.grow(input.capacity() as u64), frame::half(input)) {
            (Ok(()), _) => Ok(()),
            (Err(reason @ (CutReason::Room | CutReason::Key)), Some((id, length)))
                if length > input.len() =>
            {
                self.half = None;
                self.skipped = length - input.len();
                // Its memory is what is needed.
                *input = BytesMut::new();
                self.check_free(id)?;
                let failing = call::fail(id, Problem::cut(reason), self.sender.clone());
                let task = self.tasks.spawn(failing);
                self.running.insert(id, RunningCall { task, bytes: 0 });
                Ok(())
            }
            (Err(reason), _) => Err(too_slow(reason)),
        }
    }

    /// Throws away what has come of a frame that there was no memory for.
    fn skip(&mut self, input: &mut BytesMut) {
        let count = self.skipped.min(input.len());
        input.advance(count);
        self.skipped -= count;
    }

    /// Resolves when the client was too slow with a frame.
    async fn cut(&self) -> CutReason {
        poll_fn(|context| match &self.half {
            Some((share, _)) => share.poll_cut(context),
            None => Poll::Pending,
        })
        .await
    }

    fn begin(&mut self, call: HandleCall) -> io::Result<()> {
        let (id, bytes, sender) = (call.id, call.body.len(), self.sender.clone());
        self.check_free(id)?;
        let task = match &self.right {
            CallRight::Guarded(guard) => {
                let (guard, asked) =
                    (Arc::clone(guard), (call.model.clone(), call.version.clone()));
                let pending = self.pending(call);
                self.tasks.spawn(call::run_authorized(guard, id, asked, pending, sender))
            }
            CallRight::Open | CallRight::Admitted => match self.pending(call) {
                Ok(pending) => self.tasks.spawn(pending.run(sender)),
                Err(problem) => self.tasks.spawn(call::fail(id, problem, sender)),
            },
        };
        self.running.insert(id, RunningCall { task, bytes });
        self.bytes += bytes;
        Ok(())
    }

    fn check_free(&self, id: u64) -> io::Result<()> {
        let taken = self.running.contains_key(&id);
        if taken { Err(broken(HandleFrameError::TakenId)) } else { Ok(()) }
    }

    fn release(&mut self, id: u64) -> Option<RunningCall> {
        let running = self.running.remove(&id)?;
        self.bytes -= running.bytes;
        Some(running)
    }

    fn pending(&mut self, call: HandleCall) -> Result<PendingCall, Problem> {
        let (gate, operation) = (Gate::Inference, GuardedOperation::Predict);
        self.caller.check_again(gate, operation, Some(&call.model))?;
        let target = ModelRef { model: &call.model, version: call.version.as_deref() };
        let id = XRequestId::of(self.state.config.dialect, &call.headers);
        let key = RequestKey { headers: &call.headers, client: self.caller.name(), id: &id };
        let model = self.state.inference.model_for(target, |sticky| key.hash(sticky))?;
        if call.content_type.is_empty() && model.api().is_none() {
            return Err(Problem::bad_request(format!(
                "Model \"{}\" is not a definition of the jitney package: make its handle with \
                 encoding=\"json\" or encoding=\"bytes\".",
                call.model
            )));
        }
        let (state, peer) = (Arc::clone(self.state), Arc::clone(self.peer));
        let held = state.engine.admission().hold(call.body.len() as u64);
        let failed = |error: LimitMet| {
            inference::failure(state.config.dialect, &model, target, &error.into())
        };
        let held = Some(held.map_err(failed)?);
        let started = Instant::now();
        let trace = call::begin_trace(&state, &peer, &call, &id, started);
        let admitted = matches!(self.right, CallRight::Admitted);
        let caller = self.caller.clone();
        Ok(PendingCall { state, peer, caller, admitted, model, call, started, id, trace, held })
    }

    /// Whether the client still waits for this frame; the last one ends its call.
    fn is_awaited(&mut self, id: u64, frame: &ServerFrame) -> bool {
        if frame.is_last() { self.release(id).is_some() } else { self.running.contains_key(&id) }
    }
}

fn too_slow(reason: CutReason) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Problem::cut(reason).message)
}

fn broken(error: HandleFrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.as_str())
}
