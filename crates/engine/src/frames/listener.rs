//! The Unix socket that workers connect to, and the tokens that distinguish them.
//!
//! A connection without a token of this server is closed, and so is one whose token was made for another
//! role or was used already. The socket lies in a private directory. What a worker says on a connection on which it calls
//! models is the server's affair (`protocol/handles.md`).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::connection::{ConnectionError, WorkerConnection};
use super::frame::{FrameError, FrameKind, decode_control};

/// How long a fresh connection may take to send its token, and to be taken by who serves it.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections for calls that wait to be served.
const CALLS_WAITING: usize = 64;

/// The version of the frames.
pub(crate) const PROTOCOL: u32 = 3;

/// The socket and the connections that are expected on it.
#[derive(Debug)]
pub(crate) struct WorkerListener {
    pub(crate) path: PathBuf,
    expected: Arc<ExpectedConnections>,
    /// The connections for calls, until somebody serves them.
    calls: Mutex<Option<mpsc::Receiver<CallConnection>>>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum ConnectionRole {
    /// It gets batches and answers them.
    #[default]
    Worker,
    /// It calls other models.
    Calls,
}

#[derive(serde::Deserialize)]
struct Hello {
    protocol: u32,
    token: String,
    #[serde(default)]
    role: ConnectionRole,
}

/// Who may connect, by token.
#[derive(Debug)]
struct ExpectedConnections {
    tokens: Mutex<HashMap<String, ExpectedConnection>>,
    calls: mpsc::Sender<CallConnection>,
}

#[derive(Debug)]
enum ExpectedConnection {
    /// A worker, once.
    Worker(oneshot::Sender<std::os::unix::net::UnixStream>),
    /// The calls of a worker, any number of times while it lives.
    Calls(Arc<CallingWorker>, CallerEnded),
}

/// A worker that calls models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallingWorker {
    /// Its own model.
    pub model: String,
    /// The version of that.
    pub version: String,
    /// Its number.
    pub worker: u32,
}

/// A connection on which a worker calls models.
#[derive(Debug)]
pub struct CallConnection {
    /// The bare connection, after the hello.
    pub stream: std::os::unix::net::UnixStream,
    /// What was read behind the hello.
    pub ahead: Bytes,
    /// Whose it is.
    pub caller: Arc<CallingWorker>,
    /// When its calls end.
    pub ended: CallerEnded,
}

/// Tells when a worker has ended, whoever else holds its connection.
#[derive(Clone, Debug)]
pub struct CallerEnded(watch::Receiver<()>);

impl CallerEnded {
    /// Resolves when the worker has ended.
    pub async fn wait(&mut self) {
        // Nothing is ever sent: an error is the end.
        while self.0.changed().await.is_ok() {}
    }
}

impl WorkerListener {
    /// Listens on `path` with a task on `runtime`.
    pub(crate) fn listen(path: PathBuf, runtime: &Handle) -> io::Result<Arc<Self>> {
        let _context = runtime.enter();
        let socket = UnixListener::bind(&path)?;
        let (calls, waiting) = mpsc::channel(CALLS_WAITING);
        let expected = Arc::new(ExpectedConnections { tokens: Mutex::default(), calls });
        runtime.spawn(accept(socket, Arc::clone(&expected)));
        Ok(Arc::new(Self { path, expected, calls: Mutex::new(Some(waiting)) }))
    }

    /// Lets a connection say who it is that came another way than over the socket.
    pub(crate) async fn introduce(&self, stream: UnixStream) {
        greet(stream, Arc::clone(&self.expected)).await;
    }

    /// Makes a token for one worker; the receiver gets its connection.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn expect(&self) -> io::Result<ExpectedWorker> {
        let (sender, connection) = oneshot::channel();
        let token = self.expected.admit(ExpectedConnection::Worker(sender))?;
        Ok(ExpectedWorker { token, connection })
    }

    /// Makes a token for the calls of one worker. They end when it is dropped.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn expect_calls(&self, caller: CallingWorker) -> io::Result<CallsToken> {
        let (alive, ended) = watch::channel(());
        let calls = ExpectedConnection::Calls(Arc::new(caller), CallerEnded(ended));
        Ok(CallsToken { token: self.expected.admit(calls)?, _alive: alive })
    }

    /// The connections on which workers call models; who serves them takes this once.
    pub(crate) fn take_calls(&self) -> Option<mpsc::Receiver<CallConnection>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A worker that may connect once. Forgotten when dropped.
pub(crate) struct ExpectedWorker {
    pub(crate) token: Token,
    pub(crate) connection: oneshot::Receiver<std::os::unix::net::UnixStream>,
}

/// The right of one worker to call models.
pub(crate) struct CallsToken {
    pub(crate) token: Token,
    /// Its connections end with this.
    _alive: watch::Sender<()>,
}

/// What a connection must say. Worth nothing once it is dropped.
pub(crate) struct Token {
    text: String,
    expected: Arc<ExpectedConnections>,
}

impl Token {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.expected.tokens().remove(&self.text);
    }
}

impl ExpectedConnections {
    fn admit(self: &Arc<Self>, connection: ExpectedConnection) -> io::Result<Token> {
        let text = random_text()?;
        self.tokens().insert(text.clone(), connection);
        Ok(Token { text, expected: Arc::clone(self) })
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<String, ExpectedConnection>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has this token for this role.
    fn find(&self, hello: &Hello) -> Option<ExpectedConnection> {
        let mut tokens = self.tokens();
        match (tokens.get(&hello.token)?, hello.role) {
            (ExpectedConnection::Worker(_), ConnectionRole::Worker) => tokens.remove(&hello.token),
            (ExpectedConnection::Calls(caller, ended), ConnectionRole::Calls) => {
                Some(ExpectedConnection::Calls(Arc::clone(caller), ended.clone()))
            }
            (ExpectedConnection::Worker(_), ConnectionRole::Calls)
            | (ExpectedConnection::Calls(..), ConnectionRole::Worker) => None,
        }
    }
}

/// 128 bits that cannot be guessed, also by who knows other tokens.
fn random_text() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

async fn accept(listener: UnixListener, expected: Arc<ExpectedConnections>) {
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

async fn greet(stream: UnixStream, expected: Arc<ExpectedConnections>) {
    match timeout(HELLO_TIMEOUT, identify(stream)).await {
        Ok(Ok((hello, stream, ahead))) => match expected.find(&hello) {
            // The worker's launcher may have given up in this very moment.
            Some(ExpectedConnection::Worker(waiting)) => drop(waiting.send(stream)),
            Some(ExpectedConnection::Calls(caller, ended)) => {
                let connection = CallConnection { stream, ahead, caller, ended };
                if expected.calls.send_timeout(connection, HELLO_TIMEOUT).await.is_err() {
                    tracing::warn!("closed a worker's connection for calls: nobody serves it");
                }
            }
            None => tracing::warn!("closed a connection with an unknown worker token"),
        },
        Ok(Err(error)) => tracing::warn!(%error, "closed a connection that is no worker"),
        Err(_) => tracing::warn!("closed a connection that sent nothing"),
    }
}

/// Reads the hello and hands the bare connection on, since its owner may live on another runtime; with
/// what has come behind the hello, which only callers may send at once.
async fn identify(
    stream: UnixStream,
) -> Result<(Hello, std::os::unix::net::UnixStream, Bytes), ConnectionError> {
    let mut connection = WorkerConnection::with_stranger(stream.into_std()?)?;
    let (header, payload) = connection.receive().await?;
    if header.kind != FrameKind::Hello {
        return Err(FrameError::Unexpected(header.kind).into());
    }
    let hello: Hello = decode_control(&payload)?;
    if hello.protocol != PROTOCOL {
        let message = format!("protocol {} is not {PROTOCOL}", hello.protocol);
        return Err(FrameError::BadControl(message).into());
    }
    let (stream, ahead) = connection.into_std();
    Ok((hello, stream, ahead))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::path::Path;

    use bytes::BytesMut;
    use serde_json::{Value, json};

    use super::super::frame::{FrameHeader, encode_control};
    use super::*;

    fn connect(path: &Path, hello: &Value, behind: &[u8]) -> std::os::unix::net::UnixStream {
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        let mut bytes = BytesMut::new();
        encode_control(FrameKind::Hello, hello, &mut bytes);
        bytes.extend_from_slice(behind);
        stream.write_all(&bytes).unwrap();
        stream
    }

    #[tokio::test]
    async fn the_calls_of_a_worker_are_let_in_while_it_lives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("workers.sock");
        let listener = WorkerListener::listen(path.clone(), &Handle::current()).unwrap();
        let mut calls = listener.take_calls().unwrap();
        assert!(listener.take_calls().is_none());
        let caller = CallingWorker { model: "m".to_owned(), version: "1.0".to_owned(), worker: 7 };
        let token = listener.expect_calls(caller.clone()).unwrap();
        let hello = json!({ "protocol": PROTOCOL, "token": token.token.text(), "role": "calls" });
        let _first = connect(&path, &hello, b"CALL");
        let mut connection = calls.recv().await.unwrap();
        assert_eq!((&*connection.caller, &connection.ahead[..]), (&caller, &b"CALL"[..]));
        let _second = connect(&path, &hello, b"");
        assert!(calls.recv().await.is_some_and(|second| second.ahead.is_empty()));
        drop(token);
        connection.ended.wait().await;
        let refused = connect(&path, &hello, b"");
        assert_closed(refused).await;
    }

    #[tokio::test]
    async fn a_token_is_good_for_its_own_role_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("workers.sock");
        let listener = WorkerListener::listen(path.clone(), &Handle::current()).unwrap();
        let caller = CallingWorker { model: "m".to_owned(), version: "1.0".to_owned(), worker: 7 };
        let (calls, mut worker) =
            (listener.expect_calls(caller).unwrap(), listener.expect().unwrap());
        for (token, role) in [(calls.token.text(), "worker"), (worker.token.text(), "calls")] {
            let hello = json!({ "protocol": PROTOCOL, "token": token, "role": role });
            assert_closed(connect(&path, &hello, b"")).await;
        }
        let hello = json!({ "protocol": PROTOCOL, "token": worker.token.text() });
        let _connected = connect(&path, &hello, b"");
        assert!((&mut worker.connection).await.is_ok(), "the token was not used up");
    }

    #[tokio::test]
    async fn a_stranger_takes_no_memory_before_it_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("workers.sock");
        let _listener = WorkerListener::listen(path.clone(), &Handle::current()).unwrap();
        for kind in [FrameKind::Hello, FrameKind::Reply] {
            let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
            let mut head = BytesMut::new();
            FrameHeader { length: 1 << 29, kind, count: 0, id: 0 }.encode(&mut head);
            stream.write_all(&head).unwrap();
            // It is closed by its header, and not when its time is over.
            assert!(timeout(HELLO_TIMEOUT / 2, assert_closed(stream)).await.is_ok());
        }
    }

    async fn assert_closed(mut stream: std::os::unix::net::UnixStream) {
        let read = tokio::task::spawn_blocking(move || stream.read(&mut [0; 1]));
        assert!(matches!(read.await.unwrap(), Ok(0) | Err(_)));
    }
}
