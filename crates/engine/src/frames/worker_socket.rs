//! The socket of one worker, watched for what comes in and not for room to write.
//!
//! The runtime watches its own sockets for both, and on a Unix socket every read of the other end makes room: the
//! server's thread would be woken once per batch for nothing, just when the worker begins. Room is waited for only where
//! it is missing, which small batches never see.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use rustix::buffer::spare_capacity;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes that the system takes before the worker has read them.
const SEND_BUFFER: usize = 512 * 1024;

/// Pieces that are written with one system call.
const SLICES: usize = 64;

/// A worker's socket.
pub(super) struct WorkerSocket {
    stream: AsyncFd<UnixStream>,
    /// Tells when there is room again, while something waits for it.
    room: Option<AsyncFd<UnixStream>>,
}

impl WorkerSocket {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // The system may allow less, which costs a few more system calls for large batches.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
        Ok(Self { stream: watch(stream, Interest::READABLE)?, room: None })
    }

    pub(super) fn into_std(self) -> UnixStream {
        self.stream.into_inner()
    }

    /// Adds what has come to `buffer`, which must have room; 0 at the end. Cancel-safe, and its waker
    /// stays registered.
    pub(super) fn poll_read(
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
    pub(super) fn read_now(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        read(&self.stream, buffer)
    }

    /// Writes as much as there is room for.
    pub(super) fn write_now(&self, data: &mut impl Buf) -> io::Result<()> {
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
    pub(super) fn poll_write(
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

    pub(super) async fn write_all(&self, mut data: impl Buf) -> io::Result<()> {
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
    use std::future::poll_fn;
    use std::io::Read as _;

    use super::*;

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
