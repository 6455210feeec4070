//! The accept loop that every listener runs: takes connections, serves HTTP/1.1 or gRPC on them,
//! ends well.
//!
//! Apart from `listen`, which binds, and from `door`, which answers. Told to end, it stops accepting,
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

use crate::connection::{Peer, Stage, Watched};
use crate::door::Door;
use crate::grpc;
use crate::handles;
use crate::handshake;
use crate::listen::Socketed;
use crate::tls::Tls;

/// Largest head of a request, and hyper's read buffer with it.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// Pause after the system refused a connection, as it does when files run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the loop tells its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beat {
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
    socket: Socketed,
    door: Arc<Door>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (beats, _) = watch::channel(Beat::Tick);
    let mut connections = JoinSet::new();
    let floor = Floor { door: &door, beats: &beats, connections: &mut connections };
    let accepting = accept(Acceptor::new(socket, &door)?, floor);
    tokio::select! {
        () = accepting => {}
        () = shutdown => {}
    }
    beats.send_replace(Beat::End);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(door.house.config.shutdown_grace, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections cut off at shutdown");
    }
    Ok(())
}

async fn accept(acceptor: Acceptor, mut floor: Floor<'_>) {
    // Two ticks pass at least before a client is found too slow, hence the half.
    let mut ticks = tokio::time::interval(floor.door.house.config.head_timeout / 2);
    loop {
        tokio::select! {
            accepted = acceptor.accept(&mut floor) => {
                if let Err(error) = accepted {
                    pause(&error).await;
                }
            }
            _ = ticks.tick() => { floor.beats.send_replace(Beat::Tick); }
        }
        while floor.connections.try_join_next().is_some() {}
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
    fn new(socket: Socketed, door: &Door) -> io::Result<Self> {
        let no_certificate = || io::Error::other("no certificate");
        Ok(match socket {
            Socketed::Tls(listener) => {
                let tls = door.house.config.tls.clone().ok_or_else(no_certificate)?;
                let tls = if door.grpc.is_some() { tls.speaking(&[b"h2"]) } else { tls };
                Self::Tls(TcpListener::from_std(listener)?, tls)
            }
            Socketed::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            Socketed::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }

    /// Takes one connection, once there is room for it. May be dropped while it waits.
    async fn accept(&self, floor: &mut Floor<'_>) -> io::Result<()> {
        let room = Arc::clone(&floor.door.connections);
        let Ok(permit) = room.acquire_owned().await else { return Ok(()) };
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Fails only on a connection that is gone already, which hyper will notice.
                let _ = stream.set_nodelay(true);
                floor.open(stream, format!("/{address}"), permit);
            }
            Self::Tls(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                floor.open_tls(stream, tls, format!("/{address}"), permit);
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                floor.open(stream, "/unix".to_owned(), permit);
            }
        }
        Ok(())
    }
}

/// Where a listener's connections run.
struct Floor<'a> {
    door: &'a Arc<Door>,
    beats: &'a watch::Sender<Beat>,
    connections: &'a mut JoinSet<()>,
}

impl Floor<'_> {
    fn open<S>(&mut self, stream: S, address: String, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, door, beats) = self.welcome(address);
        self.connections.spawn(async move {
            attend(stream, peer, &door, beats).await;
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
        let (peer, door, beats) = self.welcome(address);
        let (tls, mut ends) = (tls.clone(), beats.clone());
        self.connections.spawn(async move {
            let patience = door.house.config.head_timeout;
            let shaken = tokio::select! {
                shaken = handshake::shake(stream, &tls, patience) => shaken,
                // Whoever has not even been greeted does not hold up the end.
                _ = ends.wait_for(|beat| matches!(beat, Beat::End)) => Ok(None),
            };
            match shaken {
                Ok(Some(stream)) => attend(stream, peer, &door, beats).await,
                Ok(None) => {}
                Err(error) => tracing::debug!(peer = peer.address, %error, "no TLS"),
            }
            drop(permit);
        });
    }

    fn welcome(&self, address: String) -> (Arc<Peer>, Arc<Door>, watch::Receiver<Beat>) {
        let number = self.door.house.peers.fetch_add(1, Relaxed);
        let peer = Arc::new(Peer::new(number, address));
        (peer, Arc::clone(self.door), self.beats.subscribe())
    }
}

/// Speaks what the door speaks.
async fn attend<S>(stream: S, peer: Arc<Peer>, door: &Door, beats: watch::Receiver<Beat>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match &door.grpc {
        Some(grpc) => {
            let (desk, age) = (Arc::clone(&grpc.desk), grpc.age);
            Box::pin(grpc::connection::serve(stream, peer, desk, age, beats)).await;
        }
        None => serve_one(stream, &peer, door, beats).await,
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: &Arc<Peer>,
    door: &Door,
    mut beats: watch::Receiver<Beat>,
) {
    let watched = Watched::new(TokioIo::new(stream), Arc::clone(peer));
    let service = service_fn(|request: Request<Incoming>| answer(door, peer, request));
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
                return handle(peer, door, beats).await;
            }
            beat = beats.changed() => match (beat, *beats.borrow_and_update()) {
                (Ok(()), Beat::Tick) if !peer.stalled(&mut seen) => {}
                (Ok(()), Beat::Tick) => return tracing::debug!(peer = peer.address, "too slow"),
                (Ok(()), Beat::End) | (Err(_), _) => break,
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    note(peer, connection.await);
}

/// Goes on with frames where the last request asked for them.
async fn handle(peer: &Arc<Peer>, door: &Door, beats: watch::Receiver<Beat>) {
    if let Some(coming) = peer.handed_over() {
        Box::pin(handles::connection::serve(coming, peer, &door.house, beats)).await;
    }
}

/// The request's future lives inside hyper's connection: when the client goes away it is dropped,
/// and the call to the model with it.
async fn answer(
    door: &Door,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Result<crate::respond::Reply, std::convert::Infallible> {
    peer.enter(Stage::Busy);
    let mut reply = door.answer(peer, request).await;
    if !reply.body_mut().keep_busy(peer) {
        peer.enter(Stage::Idle);
    }
    Ok(reply)
}

pub(crate) fn note(peer: &Peer, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "connection ended");
    }
}
