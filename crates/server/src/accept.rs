//! The accept loop of a listener: takes connections and serves them, each in a task of its own.
//!
//! `listen` binds the sockets; `rest`, `grpc` and `handles` serve the connections. When the server ends,
//! the loop stops accepting, lets requests under way finish within the grace, and drops the rest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::auth::BrowserRule;
use crate::config::ConnectionAge;
use crate::connection::{ListenerSignal, Peer};
use crate::grpc::GrpcServices;
use crate::handshake::handshake;
use crate::listen::ListenSocket;
use crate::route::Apis;
use crate::state::ServerState;
use crate::tls::Tls;
use crate::{grpc, handles, rest};

/// Pause after a connection could not be accepted, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One listener's view of the server.
pub(crate) struct Listener {
    pub(crate) state: Arc<ServerState>,
    pub(crate) apis: Apis,
    pub(crate) browsers: BrowserRule,
    /// Permits for connections, shared by the listeners of a plane.
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) protocol: ListenerProtocol,
}

/// What a listener speaks.
pub(crate) enum ListenerProtocol {
    /// HTTP/1.1, upgraded to frames by handles.
    Http,
    /// gRPC over HTTP/2.
    Grpc(Arc<GrpcServices>, ConnectionAge),
}

/// Serves until `shutdown` resolves and what was under way is answered or the grace is over.
///
/// # Errors
/// The socket does not fit the runtime.
pub(crate) async fn serve(
    socket: ListenSocket,
    listener: Arc<Listener>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (signals, _) = watch::channel(ListenerSignal::Tick);
    let mut tasks = JoinSet::new();
    let connections = Connections { listener: &listener, signals: &signals, tasks: &mut tasks };
    let accepting = accept(Acceptor::new(socket, &listener)?, connections);
    tokio::select! {
        () = accepting => {}
        () = shutdown => {}
    }
    signals.send_replace(ListenerSignal::End);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(listener.state.config.shutdown_grace, ended).await.is_err() {
        tracing::warn!(connections = tasks.len(), "connections cut off at shutdown");
    }
    Ok(())
}

async fn accept(acceptor: Acceptor, mut connections: Connections<'_>) {
    // A client is too slow after two ticks, hence the half.
    let mut ticks = tokio::time::interval(connections.listener.state.config.head_timeout / 2);
    loop {
        tokio::select! {
            accepted = acceptor.accept(&mut connections) => {
                if let Err(error) = accepted {
                    pause(&error).await;
                }
            }
            _ = ticks.tick() => { connections.signals.send_replace(ListenerSignal::Tick); }
        }
        while connections.tasks.try_join_next().is_some() {}
    }
}

/// A client that gave up before it was accepted is no error of the server.
async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept a connection");
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
    fn new(socket: ListenSocket, listener: &Listener) -> io::Result<Self> {
        let no_certificate = || io::Error::other("no certificate");
        Ok(match socket {
            ListenSocket::Tls(socket) => {
                let tls = listener.state.config.tls.clone().ok_or_else(no_certificate)?;
                let tls = match listener.protocol {
                    ListenerProtocol::Http => tls,
                    ListenerProtocol::Grpc(..) => tls.speaking(&[b"h2"]),
                };
                Self::Tls(TcpListener::from_std(socket)?, tls)
            }
            ListenSocket::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            ListenSocket::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }

    /// Takes one connection, once there is room for it. May be dropped while it waits.
    async fn accept(&self, connections: &mut Connections<'_>) -> io::Result<()> {
        let room = Arc::clone(&connections.listener.connections);
        let Ok(permit) = room.acquire_owned().await else { return Ok(()) };
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Fails only on a connection that is gone already, which hyper will notice.
                let _ = stream.set_nodelay(true);
                connections.open(stream, format!("/{address}"), permit);
            }
            Self::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                connections.open_tls(stream, tls, format!("/{address}"), permit);
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                connections.open(stream, "/unix".to_owned(), permit);
            }
        }
        Ok(())
    }
}

/// Where a listener's connections run.
struct Connections<'a> {
    listener: &'a Arc<Listener>,
    signals: &'a watch::Sender<ListenerSignal>,
    tasks: &'a mut JoinSet<()>,
}

impl Connections<'_> {
    fn open<S>(&mut self, stream: S, address: String, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.connection(address);
        self.tasks.spawn(async move {
            connection.serve(stream).await;
            drop(permit);
        });
    }

    /// The handshake runs in the connection's task, so that the loop goes on to the next client.
    fn open_tls(
        &mut self,
        stream: TcpStream,
        tls: &Tls,
        address: String,
        permit: OwnedSemaphorePermit,
    ) {
        let connection = self.connection(address);
        let (tls, mut signals) = (tls.clone(), connection.signals.clone());
        self.tasks.spawn(async move {
            let timeout = connection.listener.state.config.head_timeout;
            let stream = tokio::select! {
                stream = handshake(stream, &tls, timeout) => stream,
                // A handshake under way does not delay the end.
                _ = signals.wait_for(|signal| matches!(signal, ListenerSignal::End)) => Ok(None),
            };
            match stream {
                Ok(Some(stream)) => connection.serve(stream).await,
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(peer = connection.peer.address, %error, "TLS handshake failed");
                }
            }
            drop(permit);
        });
    }

    fn connection(&self, address: String) -> NewConnection {
        let number = self.listener.state.peers.fetch_add(1, Relaxed);
        let admission = Arc::clone(self.listener.state.engine.admission());
        let peer = Arc::new(Peer::new(number, address, admission));
        let signals = self.signals.subscribe();
        NewConnection { peer, listener: Arc::clone(self.listener), signals }
    }
}

/// A connection that was accepted.
struct NewConnection {
    peer: Arc<Peer>,
    listener: Arc<Listener>,
    signals: watch::Receiver<ListenerSignal>,
}

impl NewConnection {
    /// Serves the listener's protocol, and a handle's frames where the client upgrades to them.
    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, listener, mut signals } = self;
        let Listener { state, apis, browsers, protocol, .. } = &*listener;
        match protocol {
            ListenerProtocol::Grpc(services, age) => {
                let services = Arc::clone(services);
                Box::pin(grpc::serve(stream, peer, services, *age, signals)).await;
            }
            ListenerProtocol::Http => {
                let serving = rest::serve(stream, &peer, state, *apis, *browsers, &mut signals);
                let upgrade = serving.await;
                if let Some(upgrade) = upgrade {
                    Box::pin(handles::serve(upgrade, &peer, state, signals)).await;
                }
            }
        }
    }
}
