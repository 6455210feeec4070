//! The Unix socket that workers connect to, and the tokens that distinguish them.
//!
//! A connection without a token of this server, or with one that was used already, is closed. The
//! socket lies in a private directory.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::{ConnectionError, WorkerConnection};
use super::frame::{FrameError, FrameKind, decode_control};

/// How long a fresh connection may take to send its token.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of the frames.
pub(crate) const PROTOCOL: u32 = 2;

type Expected = Arc<Mutex<HashMap<String, oneshot::Sender<std::os::unix::net::UnixStream>>>>;

/// The socket and the workers that are expected on it.
#[derive(Debug)]
pub(crate) struct WorkerListener {
    pub(crate) path: PathBuf,
    expected: Expected,
}

#[derive(serde::Deserialize)]
struct Hello {
    protocol: u32,
    token: String,
}

impl WorkerListener {
    /// Listens on `path` with a task on `runtime`.
    pub(crate) fn listen(path: PathBuf, runtime: &Handle) -> io::Result<Arc<Self>> {
        let _context = runtime.enter();
        let socket = UnixListener::bind(&path)?;
        let listener = Arc::new(Self { path, expected: Expected::default() });
        runtime.spawn(accept(socket, Arc::clone(&listener.expected)));
        Ok(listener)
    }

    /// Lets a connection say who it is that came another way than over the socket.
    pub(super) async fn introduce(&self, stream: UnixStream) {
        greet(stream, Arc::clone(&self.expected)).await;
    }

    /// Makes a token for one worker; the receiver gets its connection.
    pub(crate) fn expect(&self) -> ExpectedWorker {
        let token = token();
        let (sender, connection) = oneshot::channel();
        lock(&self.expected).insert(token.clone(), sender);
        ExpectedWorker { token, connection, expected: Arc::clone(&self.expected) }
    }
}

/// A worker that may connect once. Forgotten when dropped.
pub(crate) struct ExpectedWorker {
    pub(crate) token: String,
    pub(crate) connection: oneshot::Receiver<std::os::unix::net::UnixStream>,
    expected: Expected,
}

impl Drop for ExpectedWorker {
    fn drop(&mut self) {
        lock(&self.expected).remove(&self.token);
    }
}

fn lock(
    expected: &Expected,
) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<std::os::unix::net::UnixStream>>> {
    expected.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 128 bits that cannot be guessed: the standard library's hasher keys come from the system.
fn token() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

async fn accept(listener: UnixListener, expected: Expected) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(greet(stream, Arc::clone(&expected)));
            }
            Err(error) => {
                // Out of descriptors, most likely: wait for some to be given back.
                tracing::error!(%error, "cannot accept a worker's connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn greet(stream: UnixStream, expected: Expected) {
    match timeout(HELLO_TIMEOUT, identify(stream)).await {
        Ok(Ok((token, stream))) => match lock(&expected).remove(&token) {
            // The worker's launcher may have given up in this very moment.
            Some(waiting) => drop(waiting.send(stream)),
            None => tracing::warn!("closed a connection with an unknown worker token"),
        },
        Ok(Err(error)) => tracing::warn!(%error, "closed a connection that is no worker"),
        Err(_) => tracing::warn!("closed a connection that sent nothing"),
    }
}

/// Reads the hello and hands the bare connection on, since its owner may live on another runtime.
async fn identify(
    stream: UnixStream,
) -> Result<(String, std::os::unix::net::UnixStream), ConnectionError> {
    let mut connection = WorkerConnection::new(stream.into_std()?)?;
    let (header, payload) = connection.receive().await?;
    if header.kind != FrameKind::Hello {
        return Err(FrameError::Unexpected(header.kind).into());
    }
    let hello: Hello = decode_control(&payload)?;
    if hello.protocol != PROTOCOL {
        let message = format!("protocol {} is not {PROTOCOL}", hello.protocol);
        return Err(FrameError::BadControl(message).into());
    }
    Ok((hello.token, connection.into_std()))
}
