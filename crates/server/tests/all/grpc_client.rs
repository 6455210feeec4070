//! A gRPC channel for tests: one HTTP/2 connection under tonic's generated clients.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tonic::body::Body;

/// A connection; clients made from its clones share it.
#[derive(Clone)]
pub struct Channel {
    sender: SendRequest<Body>,
    origin: String,
}

/// Connects; the second value ends with the connection.
pub async fn connect(address: SocketAddr) -> (Channel, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(address).await.unwrap();
    over(stream, format!("http://{address}")).await
}

async fn over<S>(stream: S, origin: String) -> (Channel, JoinHandle<hyper::Result<()>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.unwrap();
    (Channel { sender, origin }, tokio::spawn(connection))
}

pub async fn channel(address: SocketAddr) -> Channel {
    connect(address).await.0
}

/// A connection through a Unix socket.
pub async fn unix_channel(path: &Path) -> Channel {
    let stream = UnixStream::connect(path).await.unwrap();
    over(stream, "http://localhost".to_owned()).await.0
}

impl tower_service::Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        *request.uri_mut() = format!("{}{}", self.origin, request.uri().path()).parse().unwrap();
        Box::pin(self.sender.send_request(request))
    }
}
