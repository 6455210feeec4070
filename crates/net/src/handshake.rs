//! The start of a connection on an HTTPS listener: the TLS handshake, or an error for a client that
//! speaks plain HTTP.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::outgoing_body::ResponseBody;
use crate::tls::Tls;

/// How a TLS connection begins: the type of a record that carries a handshake.
const HANDSHAKE: u8 = 0x16;

/// The encrypted stream, unless the client is too slow, speaks something else or goes away.
pub async fn handshake(
    stream: TcpStream,
    tls: &Tls,
    timeout: Duration,
    https_only: impl Fn() -> Response<ResponseBody>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let encrypted = tokio::time::timeout(timeout, encrypt(stream, tls, https_only)).await;
    encrypted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn encrypt(
    stream: TcpStream,
    tls: &Tls,
    https_only: impl Fn() -> Response<ResponseBody>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Ok(None),
        _ if first == [HANDSHAKE] => tls.acceptor().accept(stream).await.map(Some),
        _ => answer_https_only(stream, https_only).await.map(|()| None),
    }
}

/// Answers any plain HTTP request in the same way and ends the connection.
async fn answer_https_only(
    stream: TcpStream,
    https_only: impl Fn() -> Response<ResponseBody>,
) -> io::Result<()> {
    let service =
        service_fn(|_: Request<Incoming>| std::future::ready(Ok::<_, Infallible>(https_only())));
    let mut plain = http1::Builder::new();
    let plain = plain.title_case_headers(true).keep_alive(false);
    plain.serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
}
