//! A handle's connection: reads calls, runs them side by side, writes what becomes of them.
//!
//! The only owner of its calls: when the client goes away they are dropped with it. It reads no
//! further while as many calls are under way as may, which slows the client down instead of failing
//! it, and writes everything that is ready at once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::call::{CallFrame, PendingCall};
use super::frame::{self, ClientFrame, HandleCall, HandleFrameError, NAMES_MAX, ServerFrame};
use crate::accept::ListenerSignal;
use crate::connection::{ConnectionStage, Peer};
use crate::errors::Problem;
use crate::listener::ServerState;

/// Calls of one connection under way at a time.
pub(super) const CALLS_MAX: usize = 8192;
/// Bytes of such calls, beyond which no further one is read.
const CALL_BYTES_MAX: usize = 64 << 20;
/// Words that wait to be written; whoever has one more waits with it.
const FRAMES_MAX: usize = 1024;
/// What is read, and written, at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a client may take to notice the end, and how much it sends meanwhile is thrown away.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bodies from here on are written from where they lie.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Speaks frames until the client goes, breaks the rules, or the server ends.
pub(crate) async fn serve(
    coming: OnUpgrade,
    peer: &Arc<Peer>,
    state: &Arc<ServerState>,
    mut signals: watch::Receiver<ListenerSignal>,
) {
    peer.enter(ConnectionStage::Busy);
    let Ok(stream) = coming.await else { return };
    let (sender, mut receiver) = mpsc::channel(FRAMES_MAX);
    let mut calls = Calls::new(state, peer, sender);
    let mut stream = FrameStream::new(stream);
    let ended = converse(&mut stream, &mut calls, &mut receiver, &mut signals).await;
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "handle ended");
    }
}

async fn converse(
    stream: &mut FrameStream,
    calls: &mut Calls<'_>,
    receiver: &mut mpsc::Receiver<CallFrame>,
    signals: &mut watch::Receiver<ListenerSignal>,
) -> io::Result<()> {
    let mut ending = matches!(*signals.borrow_and_update(), ListenerSignal::End);
    loop {
        if !ending {
            calls.take_in(&mut stream.input)?;
        } else if calls.running.is_empty() {
            return stream.part().await;
        }
        let reading = !ending && calls.has_room();
        tokio::select! {
            Some(outgoing) = receiver.recv() => stream.say(outgoing, calls, receiver).await?,
            read = stream.read(), if reading => if read? == 0 { return Ok(()) },
            signal = signals.changed() => {
                ending |= signal.is_err() || matches!(*signals.borrow_and_update(), ListenerSignal::End);
            }
        }
    }
}

/// The bytes of a connection.
struct FrameStream {
    stream: TokioIo<Upgraded>,
    input: BytesMut,
    output: BytesMut,
}

impl FrameStream {
    fn new(stream: Upgraded) -> Self {
        Self { stream: TokioIo::new(stream), input: BytesMut::new(), output: BytesMut::new() }
    }

    /// May be dropped while it waits.
    async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(CHUNK_BYTES);
        self.stream.read_buf(&mut self.input).await
    }

    /// Ends the connection. Closing it with bytes unread would destroy the last answers on their way.
    async fn part(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let gone = async {
            while self.read().await.is_ok_and(|count| count > 0) {
                self.input.clear();
            }
        };
        // Who does not go is left.
        drop(tokio::time::timeout(CLOSE_TIMEOUT, gone).await);
        Ok(())
    }

    /// Writes a frame and all that are ready behind it.
    async fn say(
        &mut self,
        outgoing: CallFrame,
        calls: &mut Calls<'_>,
        receiver: &mut mpsc::Receiver<CallFrame>,
    ) -> io::Result<()> {
        let mut next = Some(outgoing);
        while let Some(CallFrame { id, frame }) = next {
            if calls.is_awaited(id, &frame) {
                let body = frame.write(id, &mut self.output);
                self.put(body).await?;
            }
            next = receiver.try_recv().ok();
        }
        self.stream.write_all_buf(&mut self.output).await?;
        self.stream.flush().await
    }

    async fn put(&mut self, mut body: Bytes) -> io::Result<()> {
        if body.len() < COPY_BYTES_MAX {
            self.output.extend_from_slice(&body);
        }
        if body.len() >= COPY_BYTES_MAX || self.output.len() >= CHUNK_BYTES {
            self.stream.write_all_buf(&mut self.output).await?;
        }
        if body.len() >= COPY_BYTES_MAX {
            self.stream.write_all_buf(&mut body).await?;
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
    sender: mpsc::Sender<CallFrame>,
    tasks: JoinSet<()>,
    /// Those that owe a last frame.
    running: HashMap<u64, RunningCall>,
    /// The bytes of their bodies.
    bytes: usize,
}

impl<'a> Calls<'a> {
    fn new(
        state: &'a Arc<ServerState>,
        peer: &'a Arc<Peer>,
        sender: mpsc::Sender<CallFrame>,
    ) -> Self {
        Self { state, peer, sender, tasks: JoinSet::new(), running: HashMap::new(), bytes: 0 }
    }

    fn has_room(&self) -> bool {
        self.running.len() < CALLS_MAX && self.bytes < CALL_BYTES_MAX
    }

    /// Begins and cancels what has arrived, as far as there is room.
    fn take_in(&mut self, input: &mut BytesMut) -> io::Result<()> {
        while let Some(done) = self.tasks.try_join_next() {
            // A call that panicked never says its last frame; the end of the connection says it.
            done.or_else(|error| if error.is_cancelled() { Ok(()) } else { Err(error) })?;
        }
        let limit = self.state.config.max_request_bytes + NAMES_MAX;
        while self.has_room() {
            match frame::take(input, limit).map_err(broken)? {
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

    fn begin(&mut self, call: HandleCall) -> io::Result<()> {
        let (id, bytes, sender) = (call.id, call.body.len(), self.sender.clone());
        if self.running.contains_key(&id) {
            return Err(broken(HandleFrameError::TakenId));
        }
        let task = match self.ask(call) {
            Ok(ask) => self.tasks.spawn(ask.run(sender)),
            Err(problem) => self.tasks.spawn(async move {
                drop(sender.send(CallFrame { id, frame: ServerFrame::Failed(problem) }).await);
            }),
        };
        self.running.insert(id, RunningCall { task, bytes });
        self.bytes += bytes;
        Ok(())
    }

    fn release(&mut self, id: u64) -> Option<RunningCall> {
        let running = self.running.remove(&id)?;
        self.bytes -= running.bytes;
        Some(running)
    }

    fn ask(&mut self, call: HandleCall) -> Result<PendingCall, Problem> {
        let model = self.state.engine.model(&call.model, call.version.as_deref())?;
        if call.content_type.is_empty() && model.api().is_none() {
            return Err(Problem::bad_request(format!(
                "Model \"{}\" is no definition of the jitney package: make its handle with \
                 encoding=\"json\" or encoding=\"bytes\".",
                call.model
            )));
        }
        let room = self.state.rooms.of(&model);
        let (state, peer) = (Arc::clone(self.state), Arc::clone(self.peer));
        Ok(PendingCall { state, peer, model, room, call, started: Instant::now() })
    }

    /// Whether the client still waits for this frame; the last one ends its call.
    fn is_awaited(&mut self, id: u64, frame: &ServerFrame) -> bool {
        if frame.is_last() { self.release(id).is_some() } else { self.running.contains_key(&id) }
    }
}

fn broken(error: HandleFrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.as_str())
}
