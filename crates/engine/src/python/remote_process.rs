//! A worker's process on another machine, seen through the connection of the actor that holds it.
//!
//! The actor says where it has put the model, forwards what the process prints and tells how it ended, a
//! JSON object on each line (`protocol/spec.md`). The end of the connection is the process's end: here when
//! the machine is lost, there when the process is not wanted any more.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::worker::WorkerStream;
use crate::process::{OutputSink as _, ProcessEnd, WatchedElsewhere, WorkerProcess};

/// Bytes of a line; an actor cuts what is printed into pieces that are far smaller.
const LINE_BYTES_MAX: u64 = 128 * 1024;

/// How long the end of a process waits for what it wrote last, which comes over another connection.
const LAST_WORDS: Duration = Duration::from_millis(100);

const SIGKILL: i32 = 9;

/// Where the actor has put things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct NodePaths {
    /// The address of its machine.
    #[serde(default)]
    pub(crate) node: String,
    /// The model's directory; none where it lies where it lies here.
    #[serde(default)]
    pub(crate) model: Option<String>,
    /// The directory of a definition's own code.
    #[serde(default)]
    pub(crate) code: Option<String>,
}

/// What an actor says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActorLine {
    /// The files are there, and the process is started next.
    Ready(NodePaths),
    Stdout(String),
    Stderr(String),
    /// Its exit status, or below zero the signal that ended it.
    Exited(i32),
}

/// Takes the connection of an actor over, tells it to go on, and resolves when it has all files. The process
/// counts as lost when `lost` resolves, which is dropped at its end.
pub(super) async fn adopt(
    runtime: &Handle,
    stream: StdUnixStream,
    go: Value,
    output: [WorkerStream; 2],
    lost: impl Future<Output = ()> + Send + 'static,
) -> io::Result<(WorkerProcess, NodePaths)> {
    let (tell, told) = oneshot::channel();
    runtime.spawn(async move {
        let result = match ActorConnection::open(stream, &go, output).await {
            Ok(connection) => connection.run(tell, lost).await,
            Err(error) => {
                drop(tell.send(Err(error)));
                return;
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "the connection of an actor broke");
        }
    });
    told.await.unwrap_or_else(|_| Err(lost_early()))
}

fn lost_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the node was lost before the worker had started")
}

struct ActorConnection {
    reader: BufReader<OwnedReadHalf>,
    /// Open as long as the process is wanted.
    _writer: tokio::net::unix::OwnedWriteHalf,
    stdout: WorkerStream,
    stderr: WorkerStream,
    line: Vec<u8>,
}

type Tell = oneshot::Sender<io::Result<(WorkerProcess, NodePaths)>>;

impl ActorConnection {
    async fn open(
        stream: StdUnixStream,
        go: &Value,
        output: [WorkerStream; 2],
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (reader, mut writer) = UnixStream::from_std(stream)?.into_split();
        writer.write_all(format!("{go}\n").as_bytes()).await?;
        let [stdout, stderr] = output;
        let reader = BufReader::new(reader);
        Ok(Self { reader, _writer: writer, stdout, stderr, line: Vec::new() })
    }

    async fn run(mut self, mut tell: Tell, lost: impl Future<Output = ()>) -> io::Result<()> {
        let mut why = lost_early();
        let paths = loop {
            let said = tokio::select! {
                said = self.next() => said,
                // Whoever waited for it has given up.
                () = tell.closed() => return Ok(()),
            };
            match said {
                Ok(ActorLine::Ready(paths)) => break paths,
                Ok(ActorLine::Stdout(_)) => {}
                Ok(ActorLine::Stderr(text)) => why = io::Error::other(text.trim().to_owned()),
                Ok(ActorLine::Exited(_)) | Err(_) => {
                    drop(tell.send(Err(why)));
                    return said.map(drop);
                }
            }
        };
        let (process, watched) = WorkerProcess::elsewhere();
        // One that is not wanted any more is dropped here.
        drop(tell.send(Ok((process, paths))));
        self.watch(watched, lost).await
    }

    async fn watch(
        mut self,
        mut watched: WatchedElsewhere,
        lost: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let mut lost = std::pin::pin!(lost);
        let end = loop {
            let said = tokio::select! {
                said = self.next() => said,
                _ = &mut watched.unwanted => return Ok(()),
                () = &mut lost => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            match said {
                Ok(ActorLine::Exited(status)) => break ended(status),
                Ok(ActorLine::Ready(_) | ActorLine::Stdout(_) | ActorLine::Stderr(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "an actor is gone");
                    break ProcessEnd { lost: true, ..ended(-SIGKILL) };
                }
            }
        };
        tokio::time::sleep(LAST_WORDS).await;
        // Nobody may wait for it.
        let _ = watched.ended.send(end);
        Ok(())
    }

    /// The next line; what was printed is passed on too. Cancel-safe.
    async fn next(&mut self) -> io::Result<ActorLine> {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len() as u64);
        let read = (&mut self.reader).take(room).read_until(b'\n', &mut self.line).await?;
        if read == 0 || self.line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let said = serde_json::from_slice(&self.line);
        self.line.clear();
        let said: ActorLine = said?;
        match &said {
            ActorLine::Stdout(text) => self.stdout.take(text.as_bytes(), true),
            ActorLine::Stderr(text) => self.stderr.take(text.as_bytes(), true),
            ActorLine::Ready(_) | ActorLine::Exited(_) => {}
        }
        Ok(said)
    }
}

/// The end that an exit status, or below zero a signal, tells of.
fn ended(status: i32) -> ProcessEnd {
    let raw = if status < 0 { status.saturating_neg() & 0x7f } else { (status & 0xff) << 8 };
    let (out_of_memory, memory, lost) = (Some(false), None, false);
    ProcessEnd {
        status: ExitStatus::from_raw(raw),
        out_of_memory,
        memory,
        beyond_limit: false,
        lost,
    }
}
