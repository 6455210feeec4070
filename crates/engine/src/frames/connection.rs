//! One worker's connection: whole frames in, whole frames out.
//!
//! Small batches are copied into one buffer and written at once; large ones are written piece by
//! piece without copying their values. Replies are cut out of the read buffer, so a body is copied
//! once, by the kernel.
//!
//! The socket is watched for what comes in and not for room to write. The runtime watches its own sockets for both, and on a
//! Unix socket every read of the other end makes room: the server's thread would be woken once per batch for nothing, just
//! when the worker begins. Room is waited for only where it is missing, which small batches never see.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use rustix::buffer::spare_capacity;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::answer_room::AnswerRoom;
use super::batch_frame::BatchFrame;
use super::frame::{
    FrameError, FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, encode_cancel, encode_control,
};
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
    /// The memory of large answers.
    pub(crate) room: AnswerRoom,
}

impl WorkerConnection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        let socket = WorkerSocket::new(stream)?;
        let (read, frames, write) = (Vec::new(), Bytes::new(), BytesMut::new());
        let (payload_max, outgoing) = (PAYLOAD_MAX, Segments::default());
        let room = AnswerRoom::default();
        Ok(Self { socket, payload_max, read, frames, write, outgoing, room })
    }

    /// With somebody who has not said who it is, and for whom no memory is taken.
    pub(crate) fn with_stranger(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { payload_max: HELLO_BYTES_MAX, ..Self::new(stream)? })
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
                self.room.give_back();
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
                ready!(self.room.poll_take(missing, context));
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

/// Bytes that the system takes before the worker has read them.
const SEND_BUFFER: usize = 512 * 1024;

/// Pieces that are written with one system call.
const SLICES: usize = 64;

/// A worker's socket.
struct WorkerSocket {
    stream: AsyncFd<UnixStream>,
    /// Tells when there is room again, while something waits for it.
    room: Option<AsyncFd<UnixStream>>,
}

impl WorkerSocket {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // The system may allow less, which costs a few more system calls for large batches.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
        Ok(Self { stream: watch(stream, Interest::READABLE)?, room: None })
    }

    fn into_std(self) -> UnixStream {
        self.stream.into_inner()
    }

    /// Adds what has come to `buffer`, which must have room; 0 at the end. Cancel-safe, and its waker
    /// stays registered.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.stream.poll_read_ready(context))?;
            let room = buffer.capacity() - buffer.len();
            match ready.try_io(|stream| read(stream, buffer)) {
                Ok(Ok(length)) => {
                    if length < room {
                        // That was all: what comes later is told anew.
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(length));
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }

    /// The same without waiting.
    fn read_now(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        read(&self.stream, buffer)
    }

    /// Writes as much as there is room for.
    fn write_now(&self, data: &mut impl Buf) -> io::Result<()> {
        while data.has_remaining() {
            match write(self.stream.get_ref(), data) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => data.advance(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what there is room for, until all is written. Cancel-safe, and its waker stays registered.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        data: &mut impl Buf,
    ) -> Poll<io::Result<()>> {
        loop {
            self.write_now(data)?;
            if !data.has_remaining() {
                self.room = None;
                return Poll::Ready(Ok(()));
            }
            let room = match &self.room {
                Some(room) => room,
                None => {
                    let other = self.stream.get_ref().try_clone()?;
                    self.room.insert(watch(other, Interest::WRITABLE)?)
                }
            };
            ready!(room.poll_write_ready(context))?.clear_ready();
        }
    }

    async fn write_all(&self, mut data: impl Buf) -> io::Result<()> {
        let mut room = None;
        while data.has_remaining() {
            let written = match &room {
                None => write(self.stream.get_ref(), &data),
                Some(room) => wait_and_write(room, &data).await,
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => data.advance(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && room.is_none() => {
                    room = Some(watch(self.stream.get_ref().try_clone()?, Interest::WRITABLE)?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for WorkerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[expect(deprecated, reason = "what replaces it is unsafe; a descriptor that is owned stays valid")]
fn watch(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

fn read(stream: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    Ok(recv(stream, spare_capacity(buffer), RecvFlags::empty())?.1)
}

async fn wait_and_write(room: &AsyncFd<UnixStream>, data: &impl Buf) -> io::Result<usize> {
    room.async_io(Interest::WRITABLE, |stream| write(stream, data)).await
}

/// Writes as much as there is room for.
fn write(mut stream: &UnixStream, data: &impl Buf) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    match data.chunks_vectored(&mut slices) {
        0 | 1 => stream.write(data.chunk()),
        count => stream.write_vectored(&slices[..count]),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

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

    fn pair() -> (WorkerSocket, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair");
        (WorkerSocket::new(here).expect("a socket"), there)
    }

    async fn read_some(socket: &WorkerSocket, buffer: &mut Vec<u8>) -> io::Result<usize> {
        poll_fn(|context| socket.poll_read(context, buffer)).await
    }

    #[tokio::test]
    async fn what_the_other_end_reads_wakes_nobody() {
        let (socket, mut there) = pair();
        socket.write_all(&b"batch"[..]).await.expect("room");
        there.read_exact(&mut [0; 5]).expect("a batch");
        there.write_all(b"reply").expect("room");
        let mut buffer = Vec::with_capacity(16);
        assert_eq!(read_some(&socket, &mut buffer).await.ok(), Some(5));
        // Whatever the system had to tell has been told by now.
        let mut room = std::pin::pin!(socket.stream.ready(Interest::WRITABLE));
        let told = poll_fn(|context| Poll::Ready(room.as_mut().poll(context).is_ready())).await;
        assert!(!told);
    }

    #[tokio::test]
    async fn a_write_waits_for_room_and_a_read_for_more() {
        let (socket, mut there) = pair();
        let (size, piece) = (8 << 20, bytes::Bytes::from(vec![7; 1 << 20]));
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; size];
            there.read_exact(&mut all).expect("all of it");
            there.write_all(&all[..100]).expect("room");
            all.iter().all(|byte| *byte == 7)
        });
        let mut whole = bytes::BytesMut::new();
        (0..size >> 20).for_each(|_| whole.extend_from_slice(&piece));
        socket.write_all(whole.freeze()).await.expect("a reader");
        let mut buffer = Vec::with_capacity(10);
        while buffer.len() < 100 {
            buffer.reserve(10);
            assert!(read_some(&socket, &mut buffer).await.expect("bytes") > 0);
        }
        assert_eq!(read_some(&socket, &mut buffer).await.ok(), Some(0), "the end");
        assert!(reader.join().expect("no panic"));
    }
}
