//! The accept loop that every listener runs: takes connections, serves HTTP/1.1 or gRPC on them,
//! ends well.
//!
//! Apart from `listen`, which binds, and from `listener`, which answers. Told to end, it stops accepting,
//! lets requests under way finish within the grace, and drops the rest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;

use crate::connection::{ConnectionStage, Peer, WatchedStream};
use crate::grpc;
use crate::handles;
use crate::handshake;
use crate::listen::ListenSocket;
use crate::listener::Listener;
use crate::tls::Tls;

/// Largest head of a request, and hyper's read buffer with it.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// Pause after the system refused a connection, as it does when files run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the loop tells its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListenerSignal {
    /// Time to look whether the client sends.
    Tick,
    /// Finish what is under way.
    End,
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
    // Two ticks pass at least before a client is found too slow, hence the half.
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

/// A client that gave up while it waited is none of our business.
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
                let tls = if listener.grpc.is_some() { tls.speaking(&[b"h2"]) } else { tls };
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
        let (peer, listener, signals) = self.new_peer(address);
        self.tasks.spawn(async move {
            serve_protocol(stream, peer, &listener, signals).await;
            drop(permit);
        });
    }

    /// The handshake is the connection's own business: the loop goes on to the next client.
    fn open_tls(
        &mut self,
        stream: TcpStream,
        tls: &Tls,
        address: String,
        permit: OwnedSemaphorePermit,
    ) {
        let (peer, listener, signals) = self.new_peer(address);
        let (tls, mut ends) = (tls.clone(), signals.clone());
        self.tasks.spawn(async move {
            let patience = listener.state.config.head_timeout;
            let stream = tokio::select! {
                stream = handshake::shake(stream, &tls, patience) => stream,
                // Whoever has not even been greeted does not hold up the end.
                _ = ends.wait_for(|signal| matches!(signal, ListenerSignal::End)) => Ok(None),
            };
            match stream {
                Ok(Some(stream)) => serve_protocol(stream, peer, &listener, signals).await,
                Ok(None) => {}
                Err(error) => tracing::debug!(peer = peer.address, %error, "no TLS"),
            }
            drop(permit);
        });
    }

    fn new_peer(
        &self,
        address: String,
    ) -> (Arc<Peer>, Arc<Listener>, watch::Receiver<ListenerSignal>) {
        let number = self.listener.state.peers.fetch_add(1, Relaxed);
        let peer = Arc::new(Peer::new(number, address));
        (peer, Arc::clone(self.listener), self.signals.subscribe())
    }
}

/// Speaks what the listener speaks.
async fn serve_protocol<S>(
    stream: S,
    peer: Arc<Peer>,
    listener: &Listener,
    signals: watch::Receiver<ListenerSignal>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match &listener.grpc {
        Some(grpc) => {
            let (services, age) = (Arc::clone(&grpc.services), grpc.age);
            Box::pin(grpc::connection::serve(stream, peer, services, age, signals)).await;
        }
        None => serve_one(stream, &peer, listener, signals).await,
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: &Arc<Peer>,
    listener: &Listener,
    mut signals: watch::Receiver<ListenerSignal>,
) {
    let watched = WatchedStream::new(TokioIo::new(stream), Arc::clone(peer));
    let service = service_fn(|request: Request<Incoming>| answer(listener, peer, request));
    let connection = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(watched, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut seen = None;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                note(peer, ended);
                return handle(peer, listener, signals).await;
            }
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) if !peer.stalled(&mut seen) => {}
                (Ok(()), ListenerSignal::Tick) => return tracing::debug!(peer = peer.address, "too slow"),
                (Ok(()), ListenerSignal::End) | (Err(_), _) => break,
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    note(peer, connection.await);
}

/// Goes on with frames where the last request asked for them.
async fn handle(peer: &Arc<Peer>, listener: &Listener, signals: watch::Receiver<ListenerSignal>) {
    if let Some(coming) = peer.handed_over() {
        Box::pin(handles::connection::serve(coming, peer, &listener.state, signals)).await;
    }
}

/// The request's future lives inside hyper's connection: when the client goes away it is dropped,
/// and the call to the model with it.
async fn answer(
    listener: &Listener,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Result<crate::respond::HttpResponse, std::convert::Infallible> {
    peer.enter(ConnectionStage::Busy);
    let mut reply = listener.answer(peer, request).await;
    if !reply.body_mut().keep_busy(peer) {
        peer.enter(ConnectionStage::Idle);
    }
    Ok(reply)
}

pub(crate) fn note(peer: &Peer, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "connection ended");
    }
}
