//! Where the load goes, and how a connection to it is opened.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::answer::ExchangeFailure;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProtocol {
    /// HTTP/1.1: a connection carries one request at a time.
    Http1,
    /// HTTP/2: a connection carries several.
    Http2,
    /// gRPC, over HTTP/2.
    Grpc,
}

impl LoadProtocol {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
        }
    }
}

/// Where the load goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The addresses of the server, tried in turn.
    pub addresses: Vec<SocketAddr>,
    /// What is spoken.
    pub protocol: LoadProtocol,
    /// With TLS: whom to trust, and the name that the certificate must have.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Opens connections and counts them.
pub(crate) struct Dialer {
    target: Target,
    connector: Option<(TlsConnector, ServerName<'static>)>,
    opened: Cell<u64>,
    /// What the system said when no connection could be opened last.
    problem: RefCell<String>,
}

impl Dialer {
    pub(crate) fn new(target: Target) -> Self {
        let connector = target.tls.as_ref().map(|(config, name)| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = match target.protocol {
                LoadProtocol::Http1 => vec![b"http/1.1".to_vec()],
                LoadProtocol::Http2 | LoadProtocol::Grpc => vec![b"h2".to_vec()],
            };
            (TlsConnector::from(Arc::new(config)), name.clone())
        });
        Self { target, connector, opened: Cell::new(0), problem: RefCell::default() }
    }

    pub(crate) fn protocol(&self) -> LoadProtocol {
        self.target.protocol
    }

    /// Connections that were opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.get()
    }

    /// What the system said when no connection could be opened last.
    pub(crate) fn problem(&self) -> String {
        self.problem.borrow().clone()
    }

    pub(crate) async fn open(&self) -> Result<Transport, ExchangeFailure> {
        let noted = |error: io::Error| {
            *self.problem.borrow_mut() = error.to_string();
            error
        };
        let tcp = self.connect().await.map_err(noted);
        let tcp = tcp.map_err(|error| ExchangeFailure::connecting(&error))?;
        self.opened.set(self.opened.get() + 1);
        let Some((connector, name)) = &self.connector else { return Ok(Transport::Plain(tcp)) };
        let tls = connector.connect(name.clone(), tcp).await;
        tls.map(|tls| Transport::Tls(Box::new(tls)))
            .map_err(noted)
            .map_err(|_| ExchangeFailure::Tls)
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &self.target.addresses {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    return Ok(tcp);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// An open connection.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Whether the server closed the connection, or wrote into it, while nobody asked. It costs
    /// nothing while it did not.
    pub(crate) fn is_stale(&self) -> bool {
        match self {
            Self::Plain(tcp) => {
                let read = tcp.try_read(&mut [0]);
                !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(_) => false,
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
