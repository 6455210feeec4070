//! The way back to a caller: one answer, or a first piece and then the rest as it is made.
//!
//! Nearly every answer is whole and takes a oneshot channel, as if streams did not exist. The first
//! piece of a stream resolves the call; the pieces after it go through a bounded buffer of their own.
//! Filling it never waits: a client that falls too far behind loses its stream, and the others of its
//! worker lose nothing. The parts of a request share one way back, on which each answers exactly once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jitney_batcher::{DispatchReason, Padding};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::admission::{Admission, Permit};
use crate::error::CallError;
use crate::outcome::Output;

/// Bytes that may wait for a client; one piece may always wait, whatever its size.
const BYTES_MAX: usize = 16 << 20;

/// What a piece takes beside its bytes. It counts like these, so that small pieces need no bound of their own: thousands
/// may come from a worker before whoever writes to the client has its turn.
const PIECE_BYTES: usize = 64;

/// So many fit in any case.
const PIECES_MAX: usize = BYTES_MAX / PIECE_BYTES;

/// What an answer says about its way through the server.
#[derive(Clone, Debug)]
pub struct Timing {
    /// From admission to the dispatch of the batch that answered it.
    pub queue: Duration,
    /// How long that batch ran.
    pub compute: Duration,
    /// Items in that batch.
    pub batch_items: u32,
    /// The most items a batch of this model may hold.
    pub batch_items_max: u32,
    /// Position in the batch, from 0.
    pub position: u32,
    /// Why the batch was dispatched when it was.
    pub reason: DispatchReason,
    /// 1 for the first try.
    pub attempt: u8,
    /// The batch's number among those of the model.
    pub batch: u64,
    /// Of a request that was run in several batches: the items of each batch, in the order of their
    /// dispatch. Then `queue` ends with the first dispatch, `compute` lasts from there to the last
    /// answer, and the rest is that of the last batch. Empty for a request in one batch.
    pub batches: Vec<u32>,
    /// What that batch costs as it came and as it was run, for a model that pads.
    pub padding: Option<Padding>,
}

/// What a call resolves to: the whole answer, or the first piece of one that is still being made.
///
/// With a `stream` a protocol sends status, headers and body of `output` at once and then every piece
/// as it comes; only the stream tells whether the answer ends well.
#[derive(Debug)]
pub struct Answer {
    /// What the model answered; of a stream its head and first piece.
    pub output: Output,
    /// Where the time went. Of a stream, `compute` ends with the first piece.
    pub timing: Timing,
    /// The further pieces of a stream; `None` for a whole answer.
    pub stream: Option<AnswerStream>,
}

pub(crate) type AnswerReceiver = oneshot::Receiver<Result<Answer, CallError>>;
pub(crate) type PartsReceiver = mpsc::Receiver<Result<Answer, CallError>>;

/// The engine's end of the way back, held by the request. Dropping it says that the request was lost.
#[derive(Debug)]
#[expect(private_interfaces, reason = "only this file makes one and looks inside")]
pub(crate) enum Reply {
    Whole(oneshot::Sender<Result<Answer, CallError>>),
    Pieces(PieceSender),
    /// One of the parts of a request.
    Part(ReplyPart),
    /// The caller of a stream went away, or fell too far behind.
    Gone,
}

#[derive(Debug)]
struct PieceSender {
    sender: mpsc::Sender<Bytes>,
    buffer: Arc<StreamBuffer>,
}

/// A part's end of the way back that it shares with the others of its request.
#[derive(Debug)]
struct ReplyPart {
    sender: mpsc::Sender<Result<Answer, CallError>>,
    /// Whether this is the part that stands for the whole request in the books.
    last: bool,
    told: bool,
    /// The whole request's, returned when its last part has ended.
    _permit: Arc<Permit>,
}

impl ReplyPart {
    /// There is room for one answer from each part.
    fn tell(&mut self, answer: Result<Answer, CallError>) {
        if !std::mem::replace(&mut self.told, true) {
            drop(self.sender.try_send(answer));
        }
    }
}

impl Drop for ReplyPart {
    fn drop(&mut self) {
        self.tell(Err(CallError::Gone));
    }
}

/// What both ends of a stream know.
#[derive(Debug, Default)]
struct StreamBuffer {
    bytes: AtomicUsize,
    /// How the stream ended, written before the channel closes. Nothing there: it was lost.
    end: OnceLock<Result<(), CallError>>,
    /// Where the bytes are counted.
    account: Option<Arc<Admission>>,
    /// Who is told that the caller left before the end.
    left: Option<Arc<Notify>>,
}

impl StreamBuffer {
    /// Counts bytes that begin to wait; returns how many waited before.
    fn add(&self, bytes: usize) -> usize {
        if let Some(account) = &self.account {
            account.take_over(bytes as u64);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed)
    }

    fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(account) = &self.account {
            account.give_back(bytes as u64);
        }
    }
}

impl Drop for StreamBuffer {
    fn drop(&mut self) {
        self.remove(self.bytes.load(Ordering::Relaxed));
    }
}

impl Reply {
    pub(crate) fn new() -> (Self, AnswerReceiver) {
        let (sender, answer) = oneshot::channel();
        (Self::Whole(sender), answer)
    }

    /// The replies of a request in so many parts. Each of them answers once.
    pub(crate) fn of_parts(count: usize, permit: Permit) -> (Vec<Self>, PartsReceiver) {
        let (sender, answers) = mpsc::channel(count.max(1));
        let permit = Arc::new(permit);
        let part = |place| {
            let (sender, permit) = (sender.clone(), Arc::clone(&permit));
            let last = place + 1 == count;
            Self::Part(ReplyPart { sender, last, told: false, _permit: permit })
        };
        ((0..count).map(part).collect(), answers)
    }

    /// Whether this is a part of a request only, which its caller puts together and counts.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self, Self::Part(_))
    }

    /// What it adds to a number of requests: parts before the last add nothing.
    pub(crate) fn counts(&self) -> u64 {
        u64::from(!matches!(self, Self::Part(ReplyPart { last: false, .. })))
    }

    /// Whether the caller has stopped waiting.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Whole(sender) => sender.is_closed(),
            Self::Pieces(pieces) => pieces.sender.is_closed(),
            Self::Part(part) => part.sender.is_closed(),
            Self::Gone => true,
        }
    }

    /// Whether a first piece was sent.
    pub(crate) fn streams(&self) -> bool {
        matches!(self, Self::Pieces(_) | Self::Gone)
    }

    /// Sends one piece; more will follow. Of the first one all is told, of later ones the body. What waits
    /// for the caller counts in `account`; who drives the worker waits at `left` for callers that leave.
    pub(crate) fn piece(
        &mut self,
        piece: Answer,
        account: Option<&Arc<Admission>>,
        left: &Arc<Notify>,
    ) {
        *self = match std::mem::replace(self, Self::Gone) {
            Self::Whole(sender) => Self::begin(sender, piece, account, left),
            Self::Pieces(pieces) => pieces.push(piece.output.body),
            // A request that streams is not split; the last answer is enough.
            Self::Part(part) => Self::Part(part),
            Self::Gone => Self::Gone,
        };
    }

    /// Ends the request.
    pub(crate) fn finish(self, answer: Result<Answer, CallError>) {
        match self {
            // A caller that has just stopped waiting is fine.
            Self::Whole(sender) => drop(sender.send(answer)),
            Self::Pieces(pieces) => pieces.finish(answer),
            Self::Part(mut part) => part.tell(answer),
            Self::Gone => {}
        }
    }

    fn begin(
        sender: oneshot::Sender<Result<Answer, CallError>>,
        mut first: Answer,
        account: Option<&Arc<Admission>>,
        left: &Arc<Notify>,
    ) -> Self {
        let (pieces, rest) = mpsc::channel(PIECES_MAX);
        let mut buffer = StreamBuffer::default();
        buffer.account = account.cloned();
        buffer.left = Some(Arc::clone(left));
        let buffer = Arc::new(buffer);
        first.stream =
            Some(AnswerStream { pieces: rest, buffer: Arc::clone(&buffer), told: false });
        match sender.send(Ok(first)) {
            Ok(()) => Self::Pieces(PieceSender { sender: pieces, buffer }),
            Err(_) => Self::Gone,
        }
    }
}

impl PieceSender {
    fn push(self, piece: Bytes) -> Reply {
        if self.sender.is_closed() {
            return Reply::Gone;
        }
        if self.enqueue(piece) {
            return Reply::Pieces(self);
        }
        self.end(Err(CallError::SlowReader));
        Reply::Gone
    }

    fn enqueue(&self, piece: Bytes) -> bool {
        if piece.is_empty() {
            return true;
        }
        let bytes = piece.len() + PIECE_BYTES;
        let waiting = self.buffer.add(bytes);
        let room = waiting == 0 || waiting + bytes <= BYTES_MAX;
        room && self.sender.try_send(piece).is_ok()
    }

    fn finish(self, answer: Result<Answer, CallError>) {
        let end = match answer {
            Ok(last) => self.enqueue(last.output.body).then_some(()).ok_or(CallError::SlowReader),
            Err(error) => Err(error),
        };
        self.end(end);
    }

    fn end(&self, end: Result<(), CallError>) {
        // Set once only: the sender goes with it.
        drop(self.buffer.end.set(end));
    }
}

/// The pieces of an answer that follow its first one. Dropping it is a client that leaves: the worker is told and
/// makes no more pieces for it, and goes on for the others of its batch.
#[derive(Debug)]
pub struct AnswerStream {
    pieces: mpsc::Receiver<Bytes>,
    buffer: Arc<StreamBuffer>,
    told: bool,
}

impl AnswerStream {
    /// The next piece as soon as the model has made it, `None` after the last. An error is the
    /// last item too. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Bytes, CallError>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// [`AnswerStream::next`] for those who are polled themselves.
    pub fn poll_next(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes, CallError>>> {
        self.pieces.poll_recv(context).map(|received| match received {
            Some(piece) => {
                self.buffer.remove(piece.len() + PIECE_BYTES);
                Some(Ok(piece))
            }
            None => self.end().map(Err),
        })
    }

    /// Why the stream ended, if not as it should; told once.
    fn end(&mut self) -> Option<CallError> {
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        match self.buffer.end.get() {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.clone()),
            None => Some(CallError::Gone),
        }
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        // First, since who is told looks whether it is closed.
        self.pieces.close();
        if let (None, Some(left)) = (self.buffer.end.get(), &self.buffer.left) {
            left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
