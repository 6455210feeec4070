//! One worker's connection: whole frames in, whole frames out.
//!
//! Small batches are copied into one buffer and written at once; large ones are written piece by
//! piece without copying their values. Replies are cut out of the read buffer, so a body is copied
//! once, by the kernel.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::frame::{
    BatchFrame, FrameError, FrameHeader, FrameKind, HEADER_LEN, encode_cancel, encode_control,
};

/// From this size on, values are written in place. Below it one copy is cheaper than many pieces.
const COPY_MAX: usize = 64 * 1024;

/// Bytes that the system takes before the worker has read them.
const SEND_BUFFER: usize = 512 * 1024;

/// The read buffer is grown to at least this, so that a usual reply is one read.
const READ_ROOM: usize = 32 * 1024;

/// How much is read at a time of what a process left behind.
const REST_PIECE: usize = 16 * 1024;

/// A larger buffer is not kept for the next frame.
const KEPT_MAX: usize = 1 << 20;

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
    stream: UnixStream,
    read: BytesMut,
    /// Where frames are put together; empty in between.
    pub(crate) write: BytesMut,
}

impl WorkerConnection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        // The system may allow less, which costs a few more system calls for large batches.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
        Self { stream, read: BytesMut::new(), write: BytesMut::new() }
    }

    /// The bare connection; nothing may be buffered, as after a hello.
    pub(crate) fn into_std(self) -> std::io::Result<std::os::unix::net::UnixStream> {
        self.stream.into_std()
    }

    pub(crate) async fn send_control(
        &mut self,
        kind: FrameKind,
        message: &serde_json::Value,
    ) -> Result<(), ConnectionError> {
        self.write.clear();
        encode_control(kind, message, &mut self.write);
        Ok(self.stream.write_all(&self.write).await?)
    }

    pub(crate) async fn send_cancel(&mut self, batch: u64) -> Result<(), ConnectionError> {
        self.write.clear();
        encode_cancel(batch, &mut self.write);
        Ok(self.stream.write_all(&self.write).await?)
    }

    pub(crate) async fn send_batch(
        &mut self,
        frame: BatchFrame<'_>,
    ) -> Result<(), ConnectionError> {
        if frame.payload_len() <= COPY_MAX {
            self.write.clear();
            frame.encode(&mut self.write);
            return Ok(self.stream.write_all(&self.write).await?);
        }
        let mut segments = Segments(frame.segments().into());
        Ok(self.stream.write_all_buf(&mut segments).await?)
    }

    /// Sends a frame that is complete.
    pub(crate) async fn send_bytes(&mut self, frame: &[u8]) -> Result<(), ConnectionError> {
        Ok(self.stream.write_all(frame).await?)
    }

    /// Takes the buffer back that [`Self::write`] was, unless it has grown too large to be kept.
    pub(crate) fn keep_buffer(&mut self, buffer: BytesMut) {
        if buffer.capacity() <= KEPT_MAX {
            self.write = buffer;
        }
    }

    /// The next frame. Cancel-safe: what was read stays in the buffer.
    pub(crate) async fn receive(&mut self) -> Result<(FrameHeader, Bytes), ConnectionError> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            if self.read.capacity() - self.read.len() < READ_ROOM {
                self.read.reserve(READ_ROOM);
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(ConnectionError::Closed);
            }
        }
    }

    /// The next frame of a process that has ended. What it wrote is here, though the runtime may not have
    /// noticed yet; nothing is waited for.
    pub(crate) fn receive_rest(&mut self) -> Result<(FrameHeader, Bytes), ConnectionError> {
        let mut piece = [0; REST_PIECE];
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            match recv(&self.stream, &mut piece[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) if length > 0 => self.read.extend_from_slice(&piece[..length]),
                Ok(_) | Err(_) => return Err(ConnectionError::Closed),
            }
        }
    }

    /// A whole frame that is already here.
    fn buffered(&mut self) -> Result<Option<(FrameHeader, Bytes)>, FrameError> {
        let Some(head) = self.read.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let header = FrameHeader::decode(head)?;
        let total = HEADER_LEN + header.length as usize;
        if self.read.len() < total {
            self.read.reserve(total - self.read.len());
            return Ok(None);
        }
        let mut frame = self.read.split_to(total);
        frame.advance(HEADER_LEN);
        Ok(Some((header, frame.freeze())))
    }
}

/// Pieces of a frame, written with as few system calls as the kernel allows.
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn what_a_process_wrote_before_it_ended_is_not_lost() {
        let (here, mut there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        here.set_nonblocking(true).expect("a socket");
        let mut connection = WorkerConnection::new(UnixStream::from_std(here).expect("a socket"));
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
}
