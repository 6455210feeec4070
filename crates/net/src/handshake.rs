//! The start of a connection on an HTTPS listener: the TLS handshake, or an error for a client that
//! speaks plain HTTP. And what a failed one means, for who runs the server.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, PeerIncompatible};
use tokio_rustls::server::TlsStream;

use crate::certificate;
use crate::outgoing_body::ResponseBody;
use crate::tls::Tls;

/// How a TLS connection begins: the type of a record that carries a handshake.
const HANDSHAKE: u8 = 0x16;

/// The encrypted stream, unless the client is too slow, speaks something else or goes away.
pub async fn handshake(
    stream: TcpStream,
    tls: &Tls,
    protocols: &[&[u8]],
    timeout: Duration,
    https_only: impl Fn() -> Response<ResponseBody>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let encrypted =
        tokio::time::timeout(timeout, encrypt(stream, tls, protocols, https_only)).await;
    encrypted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn encrypt(
    stream: TcpStream,
    tls: &Tls,
    protocols: &[&[u8]],
    https_only: impl Fn() -> Response<ResponseBody>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Ok(None),
        _ if first == [HANDSHAKE] => tls.acceptor(protocols).accept(stream).await.map(Some),
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

/// The subject of the certificate that the client showed and the handshake verified, if there is one.
pub fn subject(stream: &TlsStream<TcpStream>) -> Option<String> {
    let chain = stream.get_ref().1.peer_certificates()?;
    certificate::subject(chain.first()?)
}

/// What a failed handshake means, where the client or the server needs another setting or certificate; none for
/// noise and for clients that went away.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls has many errors, and later more")]
pub fn explain(error: &io::Error) -> Option<String> {
    use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        NoCertificatesPresented => "the client showed no certificate, and one is asked for".into(),
        InvalidCertificate(why) => wrong_certificate(why),
        rustls::Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls12NotOffered,
        ) => {
            "the client speaks only versions of TLS that are too old here (tls_min_version)".into()
        }
        AlertReceived(AlertDescription::UnknownCA | AlertDescription::CertificateUnknown) => {
            "the client does not trust the server's certificate".into()
        }
        AlertReceived(AlertDescription::CertificateExpired) => {
            "the client says that the server's certificate has expired".into()
        }
        _ => return None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "rustls has many errors, and later more")]
fn wrong_certificate(why: &CertificateError) -> String {
    use CertificateError as Why;
    match why {
        Why::Expired | Why::ExpiredContext { .. } => "the client's certificate has expired".into(),
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            "the client's certificate is not valid yet".into()
        }
        Why::UnknownIssuer => {
            "the client's certificate is of none of the authorities (client_ca)".into()
        }
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => {
            "the client's certificate is not made for clients (its extended key usage)".into()
        }
        other => format!("the client's certificate cannot be trusted: {other}"),
    }
}
