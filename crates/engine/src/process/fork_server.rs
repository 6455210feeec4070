//! A process that has done once what many would do at their start, and forks itself into each of them.
//!
//! What it forks is no child of this process. That such a process has ended is seen by a descriptor of it, and the
//! fork server tells how. It reaps one only when it is asked to, so that nobody else can have the id before. Where the
//! fork server itself ends, what it forked goes on, and how that ends is not known.
//!
//! Its standard input is a socket. An order is four bytes of length, a letter and a text; `F`, with the new process's
//! output and errors as descriptors, is answered by its id, or by `no` or `never` and a reason, `R` and an id by the status that
//! `wait` gives. Answers are texts behind four bytes of length.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// What a process prints on one of its streams.
pub(super) type Pipe = Box<dyn AsyncRead + Send + Unpin>;

/// How long it may take to get ready and to fork; then workers are started without it.
const PATIENCE: Duration = Duration::from_secs(120);
const ANSWER_MAX: u32 = 4096;
const FORK: u8 = b'F';
const REAP: u8 = b'R';

/// The way to the process.
pub(crate) struct ForkServer(Mutex<UnixStream>);

/// What a forked process gets.
pub(crate) struct ForkOrder {
    pub(crate) dir: PathBuf,
    /// Its whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl ForkOrder {
    fn encode(&self) -> Vec<u8> {
        let mut text = self.dir.as_os_str().as_bytes().to_vec();
        for (name, value) in &self.env {
            for part in [b"\0", name.as_bytes(), b"=", value.as_bytes()] {
                text.extend_from_slice(part);
            }
        }
        text
    }
}

/// Why a process was not forked.
#[derive(Debug)]
pub(crate) enum ForkError {
    /// This one must be started by itself.
    Unfit(String),
    /// So must all.
    Never(String),
    /// Nothing more comes from the fork server.
    Gone(io::Error),
}

impl From<io::Error> for ForkError {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl ForkServer {
    /// What is at the other end may take orders before it is ready.
    pub(super) fn new(channel: UnixStream) -> Self {
        Self(Mutex::new(channel))
    }

    /// The id of a new process, and its output and errors.
    pub(super) async fn fork(
        &self,
        order: &ForkOrder,
    ) -> Result<(Pid, [Option<Pipe>; 2]), ForkError> {
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let ends = [stdout_end.as_fd(), stderr_end.as_fd()];
        let answer = self.ask(FORK, &order.encode(), &ends).await?;
        match answer.split_once(' ') {
            Some(("no", why)) => return Err(ForkError::Unfit(why.to_owned())),
            Some(("never", why)) => return Err(ForkError::Never(why.to_owned())),
            _ => {}
        }
        let id = answer.parse().ok().and_then(Pid::from_raw).ok_or_else(|| unreadable(&answer))?;
        let pipe = |end: io::PipeReader| -> io::Result<Option<Pipe>> {
            Ok(Some(Box::new(pipe::Receiver::from_owned_fd(end.into())?)))
        };
        Ok((id, [pipe(stdout)?, pipe(stderr)?]))
    }

    /// How a process ended that has ended.
    pub(super) async fn reap(&self, id: Pid) -> io::Result<i32> {
        let id = id.as_raw_nonzero().to_string();
        let answer = self.ask(REAP, id.as_bytes(), &[]).await?;
        answer.parse().map_err(|_| unreadable(&answer))
    }

    async fn ask(&self, what: u8, text: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<String> {
        let length = u32::try_from(text.len() + 1).map_err(io::Error::other)?;
        let mut order = length.to_le_bytes().to_vec();
        order.push(what);
        order.extend_from_slice(text);
        let asked = async {
            let mut channel = self.0.lock().await;
            let send = || send_with_files(&channel, &order, files);
            let sent = channel.async_io(Interest::WRITABLE, send).await?;
            channel.write_all(&order[sent..]).await?;
            let length = channel.read_u32_le().await?.min(ANSWER_MAX);
            let mut answer = vec![0; length as usize];
            channel.read_exact(&mut answer).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Sends the beginning of an order, and the files with it.
fn send_with_files(
    channel: &UnixStream,
    order: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(files));
    }
    Ok(sendmsg(channel, &[IoSlice::new(order)], &mut with, SendFlags::NOSIGNAL)?)
}

fn unreadable(answer: &str) -> io::Error {
    io::Error::other(format!("the fork server answered {answer:?}"))
}
