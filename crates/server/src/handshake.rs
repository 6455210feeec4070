//! The start of a connection on an HTTPS listener: the TLS handshake, or an error for a client that
//! speaks plain HTTP.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::respond;
use crate::tls::Tls;

/// How a TLS connection begins: the type of a record that carries a handshake.
const HANDSHAKE: u8 = 0x16;

const HTTPS_ONLY: &str = "This TorchServe instance only accepts HTTPS requests";

/// The encrypted stream, unless the client is too slow, speaks something else or goes away.
pub(crate) async fn handshake(
    stream: TcpStream,
    tls: &Tls,
    timeout: Duration,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let encrypted = tokio::time::timeout(timeout, encrypt(stream, tls)).await;
    encrypted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn encrypt(stream: TcpStream, tls: &Tls) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Ok(None),
        _ if first == [HANDSHAKE] => tls.acceptor().accept(stream).await.map(Some),
        _ => answer_https_only(stream).await.map(|()| None),
    }
}

/// Answers any plain HTTP request in the same way and ends the connection.
async fn answer_https_only(stream: TcpStream) -> io::Result<()> {
    let service = service_fn(|_: Request<Incoming>| {
        std::future::ready(Ok::<_, Infallible>(respond::status(StatusCode::FORBIDDEN, HTTPS_ONLY)))
    });
    let mut plain = http1::Builder::new();
    let plain = plain.title_case_headers(true).keep_alive(false);
    plain.serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
}
