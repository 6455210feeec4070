//! Where workers of other machines connect: TCP with TLS, under a certificate that is made at every start.
//!
//! Whoever may connect was given that very certificate together with a token, and trusts no other. What
//! comes is passed on over a pair of sockets to the [`WorkerListener`], so that nothing behind it knows from
//! where a worker came. A machine that vanishes without a word is noticed within seconds.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::frames::WorkerListener;

/// Connections that have not introduced themselves yet.
const STRANGERS_MAX: usize = 64;
/// How long one may take to agree on a key.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are under way in each direction of a connection.
const RELAY_BYTES: usize = 64 * 1024;
/// A silent peer is asked after this whether it is there, ...
const SILENCE: Duration = Duration::from_secs(2);
/// ...again and again, and is lost when nothing came back for so long.
const LOST_AFTER: Duration = Duration::from_secs(5);
const QUESTIONS: u32 = 3;

/// The address, and the certificate that peers must be told.
#[derive(Debug)]
pub(crate) struct SecureListener {
    pub(crate) address: SocketAddr,
    /// In PEM.
    pub(crate) certificate: String,
}

impl SecureListener {
    /// Listens on one address of this machine, with a task on `runtime`.
    pub(crate) async fn listen(
        host: IpAddr,
        port: u16,
        workers: &Arc<WorkerListener>,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let (acceptor, certificate) = acceptor(host)?;
        let workers = Arc::clone(workers);
        let bound = runtime.spawn(async move {
            let listener = TcpListener::bind((host, port)).await?;
            let address = listener.local_addr()?;
            tokio::spawn(accept(listener, acceptor, workers));
            Ok::<_, io::Error>(address)
        });
        let address = bound.await.map_err(io::Error::other)??;
        Ok(Self { address, certificate })
    }
}

fn acceptor(host: IpAddr) -> io::Result<(TlsAcceptor, String)> {
    let made = rcgen::generate_simple_self_signed(vec![host.to_string()]);
    let made = made.map_err(io::Error::other)?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(io::Error::other)?;
    Ok((TlsAcceptor::from(Arc::new(config)), made.cert.pem()))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, workers: Arc<WorkerListener>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&strangers).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let (acceptor, workers) = (acceptor.clone(), Arc::clone(&workers));
                tokio::spawn(async move {
                    if let Err(error) = introduce(stream, acceptor, &workers).await {
                        tracing::warn!(%error, %from, "closed a connection that is no worker");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: wait for some to be given back.
                tracing::error!(%error, "cannot accept a worker's connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Returns when the peer has said who it is, and was passed on or turned away.
async fn introduce(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    workers: &WorkerListener,
) -> io::Result<()> {
    notice_loss(&stream)?;
    let mut secure = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let (mut here, there) = UnixStream::pair()?;
    tokio::spawn(async move {
        // However it ends, both sides see the end.
        let relay = copy_bidirectional_with_sizes(&mut secure, &mut here, RELAY_BYTES, RELAY_BYTES);
        drop(relay.await);
    });
    workers.introduce(there).await;
    Ok(())
}

/// Makes the kernel end the connection soon after the other machine has vanished.
fn notice_loss(stream: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&stream, true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(&stream, QUESTIONS)?;
    sockopt::set_tcp_user_timeout(&stream, LOST_AFTER.as_millis() as u32)?;
    Ok(())
}
