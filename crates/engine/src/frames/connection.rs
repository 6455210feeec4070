//! One worker's connection: whole frames in, whole frames out.
//!
//! Small batches are copied into one buffer and written at once; large ones are written piece by
//! piece without copying their values. Replies are cut out of the read buffer, so a body is copied
//! once, by the kernel.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes, BytesMut};

use super::answer_room::{AnswerRoom, COUNTED_MIN};
use super::batch_frame::BatchFrame;
use super::frame::{
    FrameError, FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, encode_cancel, encode_control,
};
use super::worker_socket::WorkerSocket;
use crate::admission::{Admission, Permit};
use crate::process::WorkerProcess;

/// From this size on, values are written in place. Below it one copy is cheaper than many pieces.
const COPY_MAX: usize = 64 * 1024;

/// The read buffer is grown to at least this, so that a usual reply is one read.
const READ_ROOM: usize = 32 * 1024;

/// A larger buffer is not kept for the next frame.
const KEPT_MAX: usize = 1 << 20;

/// Bytes of what somebody says before it is known who that is.
const HELLO_BYTES_MAX: u32 = 4096;

/// What can go wrong between the server and a worker it started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the worker closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the worker broke the protocol: {0}")]
    Protocol(#[from] FrameError),
}

pub(crate) struct WorkerConnection {
    socket: WorkerSocket,
    /// Bytes that a frame may bring.
    payload_max: u32,
    /// What was read and is no whole frame yet.
    read: Vec<u8>,
    /// What was read, whole frames and then perhaps a part of one.
    frames: Bytes,
    /// Where frames are put together; empty in between.
    pub(crate) write: BytesMut,
    /// What is still to be written, while frames are received.
    outgoing: Segments,
    /// Where answers are counted.
    pub(super) account: Option<Arc<Admission>>,
    /// The memory of the large answer that is coming.
    room: Option<AnswerRoom>,
}

/// Pieces of a frame, written with as few system calls as the kernel allows.
#[derive(Default)]
struct Segments(VecDeque<Bytes>);

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |first| first)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let count = slices.len().min(self.0.len());
        for (slice, piece) in slices.iter_mut().zip(&self.0) {
            *slice = IoSlice::new(piece);
        }
        count
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.0.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.0.pop_front();
        }
    }
}

impl WorkerConnection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        let socket = WorkerSocket::new(stream)?;
        let (read, frames, write) = (Vec::new(), Bytes::new(), BytesMut::new());
        let (payload_max, outgoing) = (PAYLOAD_MAX, Segments::default());
        let (account, room) = (None, None);
        Ok(Self { socket, payload_max, read, frames, write, outgoing, account, room })
    }

    /// With somebody who has not said who it is, and for whom no memory is taken.
    pub(crate) fn with_stranger(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { payload_max: HELLO_BYTES_MAX, ..Self::new(stream)? })
    }

    /// Counts what the worker answers in the account of this request, if it has one.
    pub(crate) fn count_in(&mut self, permit: Option<&Permit>) {
        if self.account.is_none() {
            self.account = permit.map(|permit| Arc::clone(permit.account()));
        }
    }

    /// The bare connection, and what was read of it and is no frame that was received.
    pub(crate) fn into_std(self) -> (UnixStream, Bytes) {
        // One of them is empty.
        let ahead = if self.frames.is_empty() { self.read.into() } else { self.frames };
        (self.socket.into_std(), ahead)
    }

    pub(crate) async fn send_control(
        &mut self,
        kind: FrameKind,
        message: &serde_json::Value,
    ) -> Result<(), ConnectionError> {
        self.write_queued().await?;
        self.write.clear();
        encode_control(kind, message, &mut self.write);
        Ok(self.socket.write_all(&self.write[..]).await?)
    }

    /// Tells a worker, which may be busy, whose callers have left. What it has no room for yet is written before
    /// the next batch, or by [`Self::receive`].
    pub(crate) fn queue_cancel(
        &mut self,
        batch: u64,
        positions: &[u16],
    ) -> Result<(), ConnectionError> {
        self.queue(|whole| encode_cancel(batch, positions, whole))
    }

    /// Tells a worker, which may be busy, how many of its kind serve now.
    pub(crate) fn queue_share(&mut self, workers: u32) -> Result<(), ConnectionError> {
        let message = serde_json::json!({ "workers": workers });
        self.queue(|whole| encode_control(FrameKind::Share, &message, whole))
    }

    fn queue(&mut self, encode: impl FnOnce(&mut BytesMut)) -> Result<(), ConnectionError> {
        let mut whole = BytesMut::new();
        encode(&mut whole);
        self.outgoing.0.push_back(whole.freeze());
        Ok(self.socket.write_now(&mut self.outgoing)?)
    }

    /// Writes what is queued.
    async fn write_queued(&mut self) -> Result<(), ConnectionError> {
        if !self.outgoing.0.is_empty() {
            self.socket.write_all(std::mem::take(&mut self.outgoing)).await?;
        }
        Ok(())
    }

    pub(crate) async fn send_batch(
        &mut self,
        frame: BatchFrame<'_>,
    ) -> Result<(), ConnectionError> {
        self.write_queued().await?;
        if frame.payload_len() <= COPY_MAX {
            self.write.clear();
            frame.encode(&mut self.write);
            return Ok(self.socket.write_all(&self.write[..]).await?);
        }
        let segments = Segments(frame.segments().into());
        Ok(self.socket.write_all(segments).await?)
    }

    /// Writes as much of a batch as there is room for; [`Self::receive`] writes the rest. The worker must
    /// read at any time, and hold a bounded number of batches.
    pub(crate) fn queue_batch(&mut self, frame: BatchFrame<'_>) -> Result<(), ConnectionError> {
        if frame.payload_len() <= COPY_MAX {
            return self.queue(|whole| frame.encode(whole));
        }
        self.outgoing.0.extend(frame.segments());
        Ok(self.socket.write_now(&mut self.outgoing)?)
    }

    /// Sends a frame that is complete.
    pub(crate) async fn send_bytes(&mut self, frame: &[u8]) -> Result<(), ConnectionError> {
        self.write_queued().await?;
        Ok(self.socket.write_all(frame).await?)
    }

    /// Takes the buffer back that [`Self::write`] was, unless it has grown too large to be kept.
    pub(crate) fn keep_buffer(&mut self, buffer: BytesMut) {
        if buffer.capacity() <= KEPT_MAX {
            self.write = buffer;
        }
    }

    /// The next frame. Cancel-safe: what was read stays in the buffer. Meanwhile what is queued is written.
    pub(crate) async fn receive(&mut self) -> Result<(FrameHeader, Bytes), ConnectionError> {
        loop {
            if let Some(frame) = self.buffered()? {
                // What becomes of its answers is counted elsewhere.
                self.room = None;
                return Ok(frame);
            }
            let received = poll_fn(|context| {
                if self.outgoing.has_remaining()
                    && let Poll::Ready(Err(error)) =
                        self.socket.poll_write(context, &mut self.outgoing)
                {
                    return Poll::Ready(Err(error));
                }
                let missing = self.read.capacity() - self.read.len();
                if let Some(account) = self.account.as_ref().filter(|_| missing > COUNTED_MIN) {
                    let room = self.room.get_or_insert_with(|| AnswerRoom::new(account));
                    ready!(room.poll_take(missing, context));
                }
                self.socket.poll_read(context, &mut self.read)
            });
            if received.await? == 0 {
                return Err(ConnectionError::Closed);
            }
        }
    }

    /// The next frame of a process that has ended. What it wrote is here, though the runtime may not have
    /// noticed yet; nothing is waited for.
    pub(crate) fn receive_rest(&mut self) -> Result<(FrameHeader, Bytes), ConnectionError> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            if self.socket.read_now(&mut self.read).unwrap_or(0) == 0 {
                return Err(ConnectionError::Closed);
            }
        }
    }

    /// A whole frame that is already here; otherwise there is room to read on.
    fn buffered(&mut self) -> Result<Option<(FrameHeader, Bytes)>, FrameError> {
        if self.frames.is_empty() {
            if let Err(missing) = whole(&self.read, self.payload_max)? {
                self.read.reserve(missing);
                return Ok(None);
            }
            self.frames = std::mem::take(&mut self.read).into();
        }
        match whole(&self.frames, self.payload_max)? {
            Ok((header, length)) => {
                let mut frame = self.frames.split_to(length);
                frame.advance(HEADER_LEN);
                Ok(Some((header, frame)))
            }
            Err(missing) => {
                self.read.reserve(self.frames.len() + missing);
                self.read.extend_from_slice(&std::mem::take(&mut self.frames));
                Ok(None)
            }
        }
    }
}

/// The next frame, or the end of the process: a child that the handler forked may keep the connection
/// open after the worker itself is gone.
pub(crate) async fn next_frame(
    connection: &mut WorkerConnection,
    process: &mut WorkerProcess,
) -> Result<(FrameHeader, Bytes), ConnectionError> {
    tokio::select! {
        biased;
        received = connection.receive() => received,
        _ = process.wait() => connection.receive_rest(),
    }
}

/// The head of the frame that begins here and the length of both, or how much had better be read before
/// looking again.
fn whole(read: &[u8], payload_max: u32) -> Result<Result<(FrameHeader, usize), usize>, FrameError> {
    let Some(head) = read.first_chunk::<HEADER_LEN>() else { return Ok(Err(READ_ROOM)) };
    let header = FrameHeader::decode(head)?;
    if header.length > payload_max {
        return Err(FrameError::TooLong(header.length));
    }
    let length = HEADER_LEN + header.length as usize;
    let missing = length.saturating_sub(read.len());
    Ok(if missing == 0 { Ok((header, length)) } else { Err(missing) })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn what_a_process_wrote_before_it_ended_is_not_lost() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let mut connection = WorkerConnection::new(here).expect("a socket");
        let mut frame = BytesMut::new();
        encode_control(FrameKind::Loaded, &serde_json::json!({ "slots": 1 }), &mut frame);
        there.write_all(&frame.repeat(2)).expect("room");
        drop(there);
        // The runtime has had no chance to notice that anything came.
        for _ in 0..2 {
            assert!(connection.receive_rest().is_ok_and(|(it, _)| it.kind == FrameKind::Loaded));
        }
        assert!(matches!(connection.receive_rest(), Err(ConnectionError::Closed)));
    }

    #[tokio::test]
    async fn an_answer_is_received_while_a_large_batch_is_written() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let mut connection = WorkerConnection::new(here).expect("a socket");
        let mut input = crate::testkit::call("").input;
        input.parameters[0].value = vec![7; 8 << 20].into();
        let names = crate::call::SequenceHeaders::default();
        let frame = || BatchFrame::new(1, vec![&input], &names);
        connection.queue_batch(frame()).expect("a worker");
        connection.queue_batch(frame()).expect("a worker");
        let mut answer = BytesMut::new();
        encode_control(FrameKind::Times, &serde_json::json!({}), &mut answer);
        there.write_all(&answer).expect("room");
        let heard = connection.receive().await.expect("an answer");
        assert_eq!(heard.0.kind, FrameKind::Times, "although nothing of the batch was read");
        let whole = 2 * (HEADER_LEN + frame().payload_len());
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; whole];
            std::io::Read::read_exact(&mut there, &mut all).expect("both batches");
            there.write_all(&answer).expect("room");
            there
        });
        assert!(connection.receive().await.is_ok(), "waiting for an answer writes the rest");
        assert!(connection.outgoing.0.is_empty() && reader.join().is_ok());
    }
}
