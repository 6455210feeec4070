//! The accept loop of a listener: takes connections and serves them, each in a task of its own.
//!
//! `listen` binds the sockets; a [`ConnectionService`] serves the connections. When the server ends, the loop
//! stops accepting, lets requests under way finish within the grace, and drops the rest. When another server has
//! the socket, it stops accepting and serves the open connections to their ends.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::Response;
use jitney_memory::admission::Admission;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::connection::{ListenerSignal, Peer};
use crate::handshake::{self, handshake};
use crate::listen::ListenSocket;
use crate::open_connections::{ListedConnection, OpenConnections, TICK};
use crate::outgoing_body::ResponseBody;
use crate::tls::Tls;

/// Pause after a connection could not be accepted, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What serves the connections of a listener.
pub trait ConnectionService: Send + Sync + 'static {
    /// Serves a connection until it ends, or until a signal says so.
    fn serve<S>(
        self: Arc<Self>,
        stream: S,
        peer: Arc<Peer>,
        signals: watch::Receiver<ListenerSignal>,
    ) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The protocols that it offers where it is encrypted, the best one first.
    fn protocols(&self) -> &'static [&'static [u8]];

    /// Whether the server is about to end, and lets its clients go to another one.
    fn drains(&self) -> bool;

    /// The answer to plain HTTP where only HTTPS is spoken.
    fn https_only(&self) -> Response<ResponseBody>;
}

/// A listener: who serves its connections, and within which limits.
pub struct Listener<C> {
    /// Serves its connections.
    pub service: Arc<C>,
    /// Those of all listeners of the plane.
    pub open: Arc<OpenConnections>,
    /// Where the bytes of its clients are counted.
    pub admission: Arc<Admission>,
    /// The number of the next connection of the whole server.
    pub next_number: Arc<AtomicU64>,
    /// The certificate, where it is encrypted.
    pub tls: Option<Tls>,
    /// How long a client may take to send a request's head.
    pub head_timeout: Duration,
    /// How long requests under way may take once the listener ends.
    pub shutdown_grace: Duration,
}

/// Serves until `shutdown` resolves and what was under way is answered or the grace is over. Once `retiring` says so,
/// no connection is accepted any more, and it ends with the last one. `retiring` is dropped when none is accepted.
///
/// # Errors
/// The socket does not fit the runtime.
pub async fn serve<C: ConnectionService>(
    socket: ListenSocket,
    listener: Arc<Listener<C>>,
    mut retiring: watch::Receiver<bool>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (signals, _) = watch::channel(ListenerSignal::Tick);
    let mut tasks = JoinSet::new();
    let connections =
        Connections { listener: &listener, signals: &signals, tasks: &mut tasks, permit: None };
    let accepting = accept(Acceptor::new(socket, &listener)?, connections);
    let mut shutdown = std::pin::pin!(shutdown);
    let retired = tokio::select! {
        () = accepting => false,
        Ok(_) = retiring.wait_for(|retiring| *retiring) => true,
        () = &mut shutdown => false,
    };
    drop(retiring);
    if retired {
        tokio::select! {
            () = finish(&listener.open, &mut tasks) => {}
            () = shutdown => {}
        }
    }
    signals.send_replace(ListenerSignal::End);
    listener.open.call_all();
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(listener.shutdown_grace, ended).await.is_err() {
        tracing::warn!(connections = tasks.len(), "connections cut off at shutdown");
    }
    Ok(())
}

async fn accept<C: ConnectionService>(acceptor: Acceptor, mut connections: Connections<'_, C>) {
    // A client is too slow after two ticks, hence the half.
    let every = connections.listener.head_timeout / 2;
    let mut ticks = tokio::time::interval(every);
    let mut clock = tokio::time::interval(TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let open = Arc::clone(&connections.listener.open);
    loop {
        tokio::select! {
            accepted = acceptor.accept(&mut connections) => {
                if let Err(error) = accepted {
                    pause(&error, &open).await;
                }
            }
            _ = clock.tick() => {
                open.tick();
                if connections.listener.service.drains() {
                    open.drain();
                }
            }
            _ = ticks.tick() => {
                connections.signals.send_replace(ListenerSignal::Tick);
                open.close_timed_out();
                open.close_silent(every);
            }
        }
        while connections.tasks.try_join_next().is_some() {}
    }
}

/// Serves the open connections to their ends. Nobody's request may get lost, so each connection ends with an
/// answer, unless its client is hardly about to send a request.
async fn finish(open: &OpenConnections, tasks: &mut JoinSet<()>) {
    let _last_answers = open.end_with_answers();
    let mut clock = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            ended = tasks.join_next() => if ended.is_none() { return },
            _ = clock.tick() => {
                open.tick();
                open.close_retiring();
            }
        }
    }
}

/// A client that gave up before it was accepted is no error of the server. Where file descriptors ran out, an
/// idle connection gives its own.
async fn pause(error: &io::Error, open: &OpenConnections) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        if let Some(suppressed) = open.accept_errors.pass() {
            tracing::warn!(%error, suppressed, "cannot accept a connection");
        }
        open.close_longest_idle();
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// A listening socket inside a runtime.
enum Acceptor {
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
    Unix(UnixListener),
}

impl Acceptor {
    fn new<C: ConnectionService>(socket: ListenSocket, listener: &Listener<C>) -> io::Result<Self> {
        let no_certificate = || io::Error::other("no certificate");
        Ok(match socket {
            ListenSocket::Tls(socket) => {
                let tls = listener.tls.clone().ok_or_else(no_certificate)?;
                Self::Tls(TcpListener::from_std(socket)?, tls)
            }
            ListenSocket::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            ListenSocket::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }

    /// Takes one connection, once there is room for it. May be dropped while it waits.
    async fn accept<C: ConnectionService>(
        &self,
        connections: &mut Connections<'_, C>,
    ) -> io::Result<()> {
        connections.make_room().await;
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Fails only on a connection that is gone already, which hyper will notice.
                let _ = stream.set_nodelay(true);
                connections.open(stream, format!("/{address}"));
            }
            Self::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                connections.open_tls(stream, tls, format!("/{address}"));
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                connections.open(stream, "/unix".to_owned());
            }
        }
        Ok(())
    }
}

/// Where a listener's connections run.
struct Connections<'a, C> {
    listener: &'a Arc<Listener<C>>,
    signals: &'a watch::Sender<ListenerSignal>,
    tasks: &'a mut JoinSet<()>,
    /// The permit for the next connection; held while it is awaited, so that a client of a full plane is
    /// accepted at once and another connection closes after it.
    permit: Option<OwnedSemaphorePermit>,
}

impl<C: ConnectionService> Connections<'_, C> {
    /// Waits until there is room for a connection. May be dropped while it waits.
    async fn make_room(&mut self) {
        if self.permit.is_none() {
            self.permit = self.listener.open.permit().await;
        }
    }

    fn open<S>(&mut self, stream: S, address: String)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(connection) = self.connection(address) else { return };
        self.tasks.spawn(connection.serve(stream));
    }

    /// The handshake runs in the connection's task, so that the loop goes on to the next client.
    fn open_tls(&mut self, stream: TcpStream, tls: &Tls, address: String) {
        let Some(connection) = self.connection(address) else { return };
        let (tls, mut signals) = (tls.clone(), connection.signals.clone());
        self.tasks.spawn(async move {
            let Listener { head_timeout: timeout, service, .. } = &*connection.listener;
            let stream = tokio::select! {
                stream = handshake(stream, &tls, service.protocols(), *timeout, || service.https_only()) => stream,
                // A handshake under way does not delay the end.
                _ = signals.wait_for(|signal| matches!(signal, ListenerSignal::End)) => Ok(None),
                () = connection.listed.open.close_asked() => Ok(None),
            };
            match stream {
                Ok(Some(stream)) => {
                    if let Some(subject) = handshake::subject(&stream) {
                        let _ = connection.peer.subject.set(subject);
                    }
                    connection.serve(stream).await;
                }
                Ok(None) => {}
                Err(error) => connection.handshake_failed(&error),
            }
        });
    }

    /// Nothing without a permit.
    fn connection(&mut self, address: String) -> Option<NewConnection<C>> {
        let number = self.listener.next_number.fetch_add(1, Relaxed);
        let listed = self.listener.open.list(number, self.permit.take()?);
        let admission = Arc::clone(&self.listener.admission);
        let peer = Arc::new(Peer::new(number, address, Arc::clone(&listed.open), admission));
        let signals = self.signals.subscribe();
        Some(NewConnection { peer, listener: Arc::clone(self.listener), signals, listed })
    }
}

/// A connection that was accepted.
struct NewConnection<C> {
    peer: Arc<Peer>,
    listener: Arc<Listener<C>>,
    signals: watch::Receiver<ListenerSignal>,
    listed: ListedConnection,
}

impl<C: ConnectionService> NewConnection<C> {
    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, listener, signals, listed: _listed } = self;
        Arc::clone(&listener.service).serve(stream, peer, signals).await;
    }

    /// Who runs the server is told what they or the client can change; the rest is noise.
    fn handshake_failed(&self, error: &io::Error) {
        let peer = &self.peer.address;
        let Some(why) = handshake::explain(error) else {
            return tracing::debug!(peer, %error, "TLS handshake failed");
        };
        if let Some(suppressed) = self.listener.open.handshake_errors.pass() {
            tracing::warn!(peer, suppressed, "TLS handshake failed: {why}");
        }
    }
}
