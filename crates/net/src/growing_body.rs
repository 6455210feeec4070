//! A body or message that comes in pieces: it takes its share of the server's memory in steps as it comes,
//! whatever its length is said to be, and a client that is too slow loses it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use jitney_memory::ValueBytes;
use jitney_memory::admission::{Admission, CutReason, TransferShare};
use jitney_memory::quota::Quota;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::body_error::BodyError;
use crate::compression::Decompressor;

/// The room begins with this and grows by this factor.
const ROOM_MIN: usize = 16 << 10;
const ROOM_FACTOR: usize = 8;
/// Pieces of at least this size are kept as they came: they fill most of the buffer that they hold on to.
const KEPT_PIECE_MIN: usize = READ_BUFFER / 4 * 3;
/// The largest buffer into which a connection reads.
pub const READ_BUFFER: usize = 128 << 10;

/// The share that the head of a request has of the memory while its body is awaited.
pub struct HeadShare {
    pub(crate) share: TransferShare,
    pub(crate) bytes: u64,
}

/// A body or message that comes in pieces, and its share of the memory.
pub struct GrowingBody {
    /// What is complete: pieces that fill their buffers, kept as they came.
    pieces: Vec<Bytes>,
    pieces_len: usize,
    /// Where smaller pieces are put together.
    bytes: BytesMut,
    share: TransferShare,
    /// What the share has beside them, for the head.
    head_bytes: u64,
    /// Bytes that were taken in all.
    room: usize,
    /// No more than this will come, if the client keeps its word.
    announced: usize,
}

impl GrowingBody {
    /// One of which no more will come than was announced, if the client keeps its word.
    pub fn new(admission: &Arc<Admission>, announced: u64) -> Self {
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        Self {
            pieces: Vec::new(),
            pieces_len: 0,
            bytes: BytesMut::new(),
            share: admission.body(),
            head_bytes: 0,
            room: 0,
            announced,
        }
    }

    /// The same behind a head, whose share it goes on with.
    pub(crate) fn behind(mut self, head: Option<HeadShare>) -> Self {
        if let Some(HeadShare { share, bytes }) = head {
            (self.share, self.head_bytes) = (share, bytes);
        }
        self
    }

    /// The same, which takes its memory from the quota of its client's key, too.
    pub fn charged(mut self, quota: Option<&Arc<Quota>>) -> Self {
        self.share.charge(quota);
        self
    }

    /// How much has come.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.pieces_len + self.bytes.len()
    }

    /// Adds a piece that came, once there is memory for it.
    pub(crate) fn push_piece(&mut self, piece: Bytes) -> Result<(), CutReason> {
        let came = piece.len();
        self.add_piece(piece)?;
        self.share.advance(came as u64);
        Ok(())
    }

    /// Keeps the piece that came with the head, whose buffer is there anyway, once there is memory for it.
    pub(crate) fn keep_first(&mut self, piece: Bytes) -> Result<(), CutReason> {
        let came = piece.len();
        self.keep(piece)?;
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
    ) -> Result<(), BodyError> {
        self.share.advance(piece.len() as u64);
        while let Some(bytes) = decompressor.step(&mut piece)? {
            if (self.len() + bytes.len()) as u64 > limit {
                return Err(BodyError::TooLarge { limit });
            }
            let more = bytes.len() >= KEPT_PIECE_MIN || !piece.is_empty();
            self.add_piece(bytes).map_err(BodyError::Cut)?;
            if more {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Adds a piece. One that fills most of the buffer it came in is kept; others are copied, since each
    /// would hold on to a whole buffer. So is one for which smaller ones have taken memory already: keeping
    /// it would take that memory twice.
    fn add_piece(&mut self, piece: Bytes) -> Result<(), CutReason> {
        let spare = self.bytes.capacity() - self.bytes.len();
        if piece.len() < KEPT_PIECE_MIN || piece.len() <= spare {
            return self.add(&piece);
        }
        self.keep(piece)
    }

    fn keep(&mut self, piece: Bytes) -> Result<(), CutReason> {
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
            self.share.grow(self.head_bytes + self.room as u64)?;
        }
        Ok(())
    }

    /// Adds a piece that came to the end of the last one, once there is memory for it.
    ///
    /// # Errors
    /// There is none.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), CutReason> {
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

    /// Reads what has come to where it stays, once there is memory for it: at most so many bytes, and never none.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, BodyError>> {
        if self.bytes.len() == self.bytes.capacity() {
            self.begin_piece().map_err(BodyError::Cut)?;
        }
        let mut room = (&mut self.bytes).limit(most);
        let read = ready!(pin!(stream.read_buf(&mut room)).poll(context));
        let came = read.inspect_err(|error| tracing::debug!(%error, "a body ended early"));
        let came = came.ok().filter(|came| *came > 0).ok_or(BodyError::Ended)?;
        self.share.advance(came as u64);
        Poll::Ready(Ok(came))
    }

    /// Lets the next bytes begin a piece of their own, which has the memory of the next step.
    fn begin_piece(&mut self) -> Result<(), CutReason> {
        let held = self.len();
        self.take_room(held + 1)?;
        self.pieces.extend((!self.bytes.is_empty()).then(|| self.bytes.split().freeze()));
        self.pieces_len = held;
        self.bytes = BytesMut::with_capacity(self.room - held);
        Ok(())
    }

    /// Ready when the client's memory was taken away.
    pub fn poll_cut(&self, context: &mut Context<'_>) -> Poll<CutReason> {
        self.share.poll_cut(context)
    }

    /// All that was added with [`Self::push`].
    pub fn finish(self) -> Bytes {
        self.bytes.freeze()
    }

    pub(crate) fn into_value(mut self) -> ValueBytes {
        if !self.bytes.is_empty() || self.pieces.is_empty() {
            self.pieces.push(self.bytes.freeze());
        }
        ValueBytes::from_pieces(self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use jitney_memory::admission::AdmissionLimits;

    use super::*;

    #[test]
    fn pieces_of_any_size_take_hardly_more_memory_than_was_announced() {
        const ANNOUNCED: usize = 1_000_000;
        for small in [1, 20_000, 60_000, KEPT_PIECE_MIN] {
            let admission = Admission::new(AdmissionLimits::default());
            let mut body = GrowingBody::new(&admission, ANNOUNCED as u64);
            while body.len() < ANNOUNCED {
                let size = if body.len() < 3 * small { small } else { READ_BUFFER };
                let piece = vec![7; size.min(ANNOUNCED - body.len())];
                body.push_piece(piece.into()).expect("there is room");
            }
            let taken = admission.bytes();
            assert!(taken <= (ANNOUNCED + READ_BUFFER) as u64, "after pieces of {small}: {taken}");
            assert_eq!(body.into_value().len(), ANNOUNCED);
        }
    }

    #[tokio::test]
    async fn what_is_read_takes_memory_in_steps_and_stays_where_it_came() {
        const ANNOUNCED: usize = 1_000_000;
        let admission = Admission::new(AdmissionLimits::default());
        let mut body = GrowingBody::new(&admission, ANNOUNCED as u64);
        let sent: Vec<u8> = (0..2 * ANNOUNCED).map(|at| at as u8).collect();
        let mut stream = &sent[..];
        body.keep_first(Bytes::from_static(&[7])).expect("there is room");
        while body.len() < ANNOUNCED {
            let (held, most) = (body.len(), ANNOUNCED - body.len());
            let fill = std::future::poll_fn(|context| body.poll_fill(&mut stream, most, context));
            assert_eq!(fill.await, Ok(body.len() - held));
            assert!(admission.bytes() <= ((held + 1) * ROOM_FACTOR).max(ROOM_MIN) as u64);
        }
        assert_eq!(admission.bytes(), ANNOUNCED as u64);
        let value = body.into_value();
        let lengths: Vec<_> = value.pieces().iter().map(Bytes::len).collect();
        assert_eq!(lengths, [1, (16 << 10) - 1, (7 * 16) << 10, ANNOUNCED - ((8 * 16) << 10)]);
        assert!(value.starts_with(&[7]) && value[1..] == sent[..ANNOUNCED - 1]);
    }

    #[tokio::test]
    async fn without_memory_nothing_is_read_and_an_end_is_an_error() {
        let limits = AdmissionLimits { bytes: 1000, ..AdmissionLimits::default() };
        let mut body = GrowingBody::new(&Admission::new(limits), 100_000);
        let mut stream = &[7; 100][..];
        let fill = std::future::poll_fn(|context| body.poll_fill(&mut stream, 100_000, context));
        assert_eq!(fill.await, Err(BodyError::Cut(CutReason::Room)));
        assert_eq!(stream.len(), 100);
        let mut body = GrowingBody::new(&Admission::new(AdmissionLimits::default()), 100_000);
        let mut stream: &[u8] = &[];
        let fill = std::future::poll_fn(|context| body.poll_fill(&mut stream, 100_000, context));
        assert_eq!(fill.await, Err(BodyError::Ended));
    }
}
