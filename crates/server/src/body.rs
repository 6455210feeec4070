//! The body of a request on its way in, and of an answer on its way out.
//!
//! A request's body that came in one piece is passed on without a copy. One that comes in several takes
//! its share of the server's memory in steps as it comes, whatever its length is said to be; a client that
//! is too slow loses it. One that is too large is rejected before it is read if its length is given, and
//! while it is read if not. A compressed one is decompressed as it comes, and what comes out is counted like
//! what came. Closing a connection with
//! unread bytes makes the system reset it, which can destroy the answer before the client reads it; so a
//! body that is not needed is read and thrown away for a moment.
//!
//! An answer's body is whole, or comes in pieces when the model streams. Every piece becomes one HTTP
//! chunk as soon as it is made. A stream that fails ends the connection without the last chunk: the status
//! was sent long before, and nothing else would tell the client.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use jitney_engine::AnswerStream;
use jitney_engine::admission::{Admission, CutReason, TransferShare};
use jitney_engine::call::ValueBytes;
use jitney_engine::error::CallError;
use tokio::runtime::Handle;

use crate::compression::{Coding, Decompressor};
use crate::connection::{ConnectionStage, Peer};
use crate::errors::Problem;
use crate::event_stream::EventStream;
use crate::trace::RequestTrace;

/// The room of a body that comes in pieces begins with this and grows by this factor.
const ROOM_MIN: usize = 16 << 10;
const ROOM_FACTOR: usize = 8;
/// Pieces of at least this size are kept as they came: they fill most of the buffer that they hold on to.
const KEPT_PIECE_MIN: usize = READ_BUFFER / 4 * 3;
/// The largest buffer into which a connection reads.
pub(crate) const READ_BUFFER: usize = 128 << 10;
/// Answers up to this size usually fit into the system's buffer of a connection and are not counted.
pub(crate) const SMALL_ANSWER: usize = 16 << 10;
/// Bodies above this usually arrive after their head; below it, with it.
pub(crate) const LARGE: u64 = 16 << 10;
/// How long and how much of an unread body is thrown away.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_BYTES: usize = 256 << 20;

/// A request's body that has not been read yet; dropping it throws the rest away.
pub(crate) struct RequestBody {
    /// What came with the head, where that was all.
    whole: Bytes,
    body: Option<Incoming>,
    carrier: BodyCarrier,
    /// How it is compressed, or why it cannot be read.
    coding: Result<Option<Coding>, Box<Problem>>,
}

/// What brings a body.
#[derive(Clone, Copy)]
enum BodyCarrier {
    /// A connection of its own; the client waits for `100 Continue` and has sent nothing yet where it `expects`.
    Connection { expects: bool },
    /// One of several streams of a connection, which may stand still for so long.
    Stream { patience: Duration },
}

impl RequestBody {
    /// The body of a connection's only request.
    pub(crate) fn new(body: Incoming, expects: bool) -> Self {
        let carrier = BodyCarrier::Connection { expects };
        Self { whole: Bytes::new(), body: Some(body), carrier, coding: Ok(None) }
    }

    /// The body of one of several requests on a connection, which may stand still for so long.
    pub(crate) fn of_stream(body: Incoming, patience: Duration) -> Self {
        let carrier = BodyCarrier::Stream { patience };
        Self { whole: Bytes::new(), body: Some(body), carrier, coding: Ok(None) }
    }

    /// A body that is here.
    pub(crate) fn whole(whole: Bytes) -> Self {
        let carrier = BodyCarrier::Connection { expects: false };
        Self { whole, body: None, carrier, coding: Ok(None) }
    }

    /// The same, compressed in this way; where that is not known, the problem is told to whoever reads it.
    pub(crate) fn coded(mut self, coding: Result<Option<Coding>, Problem>) -> Self {
        self.coding = coding.map_err(Box::new);
        self
    }

    /// Whether a connection of its own still brings it.
    pub(crate) fn occupies_connection(&self) -> bool {
        self.body.is_some() && matches!(self.carrier, BodyCarrier::Connection { .. })
    }

    /// Whether it is larger than what usually arrives together with a request's head.
    pub(crate) fn large(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.size_hint().lower() > LARGE)
    }

    /// The whole body; a large one in the pieces in which it came.
    ///
    /// # Errors
    /// Too large, compressed in an unknown way, or broken off; in the latter case the client is gone.
    pub(crate) async fn read(
        mut self,
        limit: u64,
        admission: &Arc<Admission>,
    ) -> Result<ValueBytes, Problem> {
        let Some(body) = &mut self.body else {
            let whole = std::mem::take(&mut self.whole);
            let fits = whole.len() as u64 <= limit;
            return if fits { Ok(whole.into()) } else { Err(Problem::too_large(limit)) };
        };
        if body.size_hint().lower() > limit {
            return Err(Problem::too_large(limit));
        }
        match &mut self.coding {
            Ok(None) => {}
            Ok(Some(coding)) => {
                let coding = *coding;
                return Box::pin(self.read_compressed(coding, limit, admission)).await;
            }
            Err(problem) => return Err((**problem).clone()),
        }
        let first = next(body, self.carrier).await?.unwrap_or_default();
        if body.is_end_stream() && first.len() as u64 <= limit {
            return Ok(first.into());
        }
        // The client has begun to send.
        self.note_begun();
        Box::pin(self.read_rest(first, limit, admission)).await
    }

    fn note_begun(&mut self) {
        if let BodyCarrier::Connection { expects } = &mut self.carrier {
            *expects = false;
        }
    }

    /// Reads a body that comes in several pieces. Its share of the memory ends here: the request takes one
    /// of its own before anything else happens on this thread.
    async fn read_rest(
        mut self,
        first: Bytes,
        limit: u64,
        admission: &Arc<Admission>,
    ) -> Result<ValueBytes, Problem> {
        let Some(body) = &mut self.body else { return Ok(first.into()) };
        let announced = first.len() as u64 + body.size_hint().exact().unwrap_or(limit);
        let limit = limit.min(admission.bodies_max());
        let mut whole = GrowingBody::new(admission, announced.min(limit));
        whole.push_piece(first).map_err(Problem::cut)?;
        while whole.len() as u64 <= limit {
            match whole.next(body, self.carrier).await? {
                Some(data) => whole.push_piece(data).map_err(Problem::cut)?,
                None => return Ok(whole.into_value()),
            }
        }
        Err(Problem::too_large(limit))
    }

    /// Reads a compressed body. What comes out counts against the limits as it appears.
    async fn read_compressed(
        mut self,
        coding: Coding,
        limit: u64,
        admission: &Arc<Admission>,
    ) -> Result<ValueBytes, Problem> {
        let limit = limit.min(admission.bodies_max());
        let mut whole = GrowingBody::new(admission, limit);
        let mut decompressor = Decompressor::new(coding);
        let mut came = 0;
        while let Some(body) = &mut self.body
            && let Some(data) = whole.next(body, self.carrier).await?
        {
            self.note_begun();
            came += data.len() as u64;
            if came > limit {
                return Err(Problem::too_large(limit));
            }
            whole.push_compressed(data, &mut decompressor, limit).await?;
        }
        decompressor.finish()?;
        Ok(whole.into_value())
    }
}

/// A body or message that comes in pieces, and its share of the memory.
pub(crate) struct GrowingBody {
    /// What is complete: pieces that fill their buffers, kept as they came.
    pieces: Vec<Bytes>,
    pieces_len: usize,
    /// Where smaller pieces are put together.
    bytes: BytesMut,
    share: TransferShare,
    /// Bytes that were taken in all.
    room: usize,
    /// No more than this will come, if the client keeps its word.
    announced: usize,
}

impl GrowingBody {
    pub(crate) fn new(admission: &Arc<Admission>, announced: u64) -> Self {
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        Self {
            pieces: Vec::new(),
            pieces_len: 0,
            bytes: BytesMut::new(),
            share: admission.body(),
            room: 0,
            announced,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces_len + self.bytes.len()
    }

    /// Adds a piece that came, once there is memory for it.
    fn push_piece(&mut self, piece: Bytes) -> Result<(), CutReason> {
        let came = piece.len();
        self.add_piece(piece)?;
        self.share.advance(came as u64);
        Ok(())
    }

    /// Adds what comes out of a piece that came, in steps between which other tasks run.
    ///
    /// # Errors
    /// More comes out than may, there is no memory for it, or it cannot be read.
    pub(crate) async fn push_compressed(
        &mut self,
        mut piece: Bytes,
        decompressor: &mut Decompressor,
        limit: u64,
    ) -> Result<(), Problem> {
        self.share.advance(piece.len() as u64);
        while let Some(bytes) = decompressor.step(&mut piece)? {
            if (self.len() + bytes.len()) as u64 > limit {
                return Err(Problem::too_large(limit));
            }
            let more = bytes.len() >= KEPT_PIECE_MIN || !piece.is_empty();
            self.add_piece(bytes).map_err(Problem::cut)?;
            if more {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Adds a piece. One that fills most of the buffer it came in is kept; others are copied, since each
    /// would hold on to a whole buffer.
    fn add_piece(&mut self, piece: Bytes) -> Result<(), CutReason> {
        if piece.len() < KEPT_PIECE_MIN {
            return self.add(&piece);
        }
        let came = piece.len();
        self.take_room(self.pieces_len + self.bytes.capacity() + came)?;
        if !self.bytes.is_empty() {
            self.pieces_len += self.bytes.len();
            self.pieces.push(self.bytes.split().freeze());
        }
        self.pieces_len += came;
        self.pieces.push(piece);
        Ok(())
    }

    /// Takes memory for so many bytes in all, in steps.
    fn take_room(&mut self, wanted: usize) -> Result<(), CutReason> {
        if wanted > self.room {
            let step = (self.room * ROOM_FACTOR).max(ROOM_MIN).min(self.announced);
            self.room = wanted.max(step);
            self.share.grow(self.room as u64)?;
        }
        Ok(())
    }

    /// Adds a piece that came to the end of the last one, once there is memory for it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), CutReason> {
        self.add(piece)?;
        self.share.advance(piece.len() as u64);
        Ok(())
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), CutReason> {
        let wanted = self.bytes.len() + piece.len();
        if wanted > self.bytes.capacity() {
            let most = self.announced.saturating_sub(self.pieces_len);
            let step = (self.bytes.capacity() * ROOM_FACTOR).max(ROOM_MIN).min(most);
            let room = wanted.max(step);
            self.take_room(self.pieces_len + room)?;
            self.bytes.reserve(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Ready when the client's memory was taken away.
    pub(crate) fn poll_cut(&self, context: &mut Context<'_>) -> Poll<CutReason> {
        self.share.poll_cut(context)
    }

    /// The next piece, unless the client's memory was taken away.
    async fn next(
        &self,
        body: &mut Incoming,
        carrier: BodyCarrier,
    ) -> Result<Option<Bytes>, Problem> {
        let next = poll_fn(|context| match self.poll_cut(context) {
            Poll::Ready(reason) => Poll::Ready(Err(Problem::cut(reason))),
            Poll::Pending => poll_next(body, context),
        });
        carrier.wait(next).await
    }

    /// All that was added with [`Self::push`].
    pub(crate) fn finish(self) -> Bytes {
        self.bytes.freeze()
    }

    fn into_value(mut self) -> ValueBytes {
        if !self.bytes.is_empty() || self.pieces.is_empty() {
            self.pieces.push(self.bytes.freeze());
        }
        ValueBytes::from_pieces(self.pieces)
    }
}

impl BodyCarrier {
    /// Waits for a piece. A connection that stands still is ended as a whole; of several streams, only the
    /// one that does.
    async fn wait(
        self,
        next: impl Future<Output = Result<Option<Bytes>, Problem>>,
    ) -> Result<Option<Bytes>, Problem> {
        match self {
            Self::Connection { .. } => next.await,
            Self::Stream { patience } => {
                let next = tokio::time::timeout(patience, next).await;
                next.unwrap_or_else(|_| Err(Problem::stalled(patience)))
            }
        }
    }
}

/// The next piece of data; trailers are passed over.
async fn next(body: &mut Incoming, carrier: BodyCarrier) -> Result<Option<Bytes>, Problem> {
    carrier.wait(poll_fn(|context| poll_next(body, context))).await
}

fn poll_next(
    body: &mut Incoming,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Problem>> {
    while let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Poll::Ready(Ok(Some(data))),
            Ok(Err(_trailers)) => {}
            Err(error) => {
                tracing::debug!(%error, "a request's body ended early");
                return Poll::Ready(Err(Problem::bad_request("Invalid HTTP message.")));
            }
        }
    }
    Poll::Ready(Ok(None))
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        // The end of a stream is told to the client by itself.
        let BodyCarrier::Connection { expects: false } = self.carrier else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(DISCARD_TIME, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut seen = 0;
    while let Ok(Some(data)) = poll_fn(|context| poll_next(&mut body, context)).await {
        seen += data.len();
        if seen > DISCARD_BYTES {
            return;
        }
    }
}

/// A piece of an answer on its way to the client: its memory is in the account until it is written.
pub(crate) struct AnswerPiece {
    bytes: Bytes,
    share: Option<TransferShare>,
}

impl AnswerPiece {
    pub(crate) fn new(bytes: Bytes, peer: &Peer) -> Self {
        let share = (bytes.len() > SMALL_ANSWER).then(|| peer.hold_answer(bytes.len()));
        Self { bytes, share }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The same with memory that was taken for it.
    pub(crate) fn held_by(self, share: TransferShare) -> Self {
        Self { share: Some(share), ..self }
    }
}

impl Buf for AnswerPiece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(share) = &self.share {
            share.advance(count as u64);
        }
    }
}

/// An answer's body.
pub(crate) enum ResponseBody {
    /// All of it; nothing once it was taken. Large ones know their connection.
    Whole(Bytes, Option<Arc<Peer>>),
    /// The first piece, and those to come; the request's trace ends with the last one.
    Pieces(Bytes, PieceStream, Option<Busy>, Option<Arc<RequestTrace>>),
}

/// The pieces of an answer that are to come.
pub(crate) enum PieceStream {
    /// As the model makes them.
    Plain(AnswerStream),
    /// Each as an event.
    Events(Box<EventStream>),
    /// What the server itself goes on to tell.
    Live(LiveStream),
}

/// Pieces that the server makes as long as somebody reads them.
pub(crate) type LiveStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

impl PieceStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallError>>> {
        match self {
            Self::Plain(pieces) => pieces.poll_next(context),
            Self::Events(events) => events.poll_next(context).map(|event| event.map(Ok)),
            Self::Live(pieces) => pieces.as_mut().poll_next(context).map(|piece| piece.map(Ok)),
        }
    }
}

/// A connection on which a stream is under way; idle when this is dropped.
pub(crate) struct Busy(Arc<Peer>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(ConnectionStage::Idle);
    }
}

impl ResponseBody {
    /// An answer's body.
    pub(crate) fn new(body: Bytes, rest: Option<AnswerStream>) -> Self {
        match rest {
            None => Self::whole(body),
            Some(rest) => Self::Pieces(body, PieceStream::Plain(rest), None, None),
        }
    }

    /// An answer's body in events.
    pub(crate) fn events(first: Bytes, rest: EventStream) -> Self {
        Self::Pieces(first, PieceStream::Events(Box::new(rest)), None, None)
    }

    /// An answer without an end of its own: the pieces come until their source ends.
    pub(crate) fn live(first: Bytes, rest: LiveStream) -> Self {
        Self::Pieces(first, PieceStream::Live(rest), None, None)
    }

    /// An answer's body that is here.
    pub(crate) fn whole(body: Bytes) -> Self {
        Self::Whole(body, None)
    }

    /// Lets a connection count as busy until the last piece is sent; false if there is only one.
    pub(crate) fn keep_busy(&mut self, peer: &Arc<Peer>) -> bool {
        match self {
            Self::Whole(body, large) => {
                *large = (body.len() > SMALL_ANSWER).then(|| Arc::clone(peer));
                false
            }
            Self::Pieces(_, _, busy, _) => {
                *busy = Some(Busy(Arc::clone(peer)));
                true
            }
        }
    }

    /// Keeps a request's trace until the last piece is sent; one whose answer is here ends now.
    pub(crate) fn keep_trace(&mut self, trace: Arc<RequestTrace>) {
        if let Self::Pieces(_, _, _, kept) = self {
            *kept = Some(trace);
        }
    }

    /// A piece with its share of the memory, where its connection is known.
    fn piece(&self, bytes: Bytes) -> Frame<AnswerPiece> {
        let (Self::Whole(_, Some(peer)) | Self::Pieces(_, _, Some(Busy(peer)), _)) = self else {
            return Frame::data(AnswerPiece { bytes, share: None });
        };
        Frame::data(AnswerPiece::new(bytes, peer))
    }

    /// What is here of it.
    pub(crate) fn here(&self) -> &Bytes {
        let (Self::Whole(here, _) | Self::Pieces(here, ..)) = self;
        here
    }

    /// All of it, unless there are pieces to come.
    pub(crate) fn all(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(body, _) => Some(body),
            Self::Pieces(..) => None,
        }
    }

    /// Takes what is here.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let (Self::Whole(here, _) | Self::Pieces(here, ..)) = self;
        let here = std::mem::take(here);
        (!here.is_empty()).then_some(here)
    }
}

impl Body for ResponseBody {
    type Data = AnswerPiece;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerPiece>, CallError>>> {
        if let Some(here) = self.take() {
            return Poll::Ready(Some(Ok(self.piece(here))));
        }
        let next = match &mut *self {
            Self::Whole(..) => None,
            Self::Pieces(_, rest, ..) => ready!(rest.poll_next(context)),
        };
        Poll::Ready(next.map(|piece| piece.map(|bytes| self.piece(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(body, _) if body.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body, _) => SizeHint::with_exact(body.len() as u64),
            Self::Pieces(..) => SizeHint::default(),
        }
    }
}
