//! HTTPS over real sockets, with a certificate made for the test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jitney_net::{Bind, ClientRules, Tls};
use jitney_server::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::fixture::{HttpResponse, Server, any_port, ask, config, raw, talk};

fn secure_port() -> Bind {
    Bind::Tls(([127, 0, 0, 1], 0).into())
}

/// A server whose APIs speak HTTPS and whose metrics do not, and a client that trusts it alone.
async fn server() -> (Server, TlsConnector) {
    server_with(config()).await
}

async fn server_with(config: ServerConfig) -> (Server, TlsConnector) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls =
        Tls::from_pem(certificate.as_bytes(), key.as_bytes(), ClientRules::default()).unwrap();
    let config = ServerConfig {
        inference: secure_port(),
        management: secure_port(),
        metrics: Some(any_port()),
        tls: Some(tls),
        ..config
    };
    (Server::with(config).await.with_magika().await, client(made.cert.der()))
}

fn client(trusted: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn ask_secretly(
    client: &TlsConnector,
    address: SocketAddr,
    path: &str,
    body: &str,
) -> HttpResponse {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = client.connect(name, stream).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    HttpResponse::parse(&talk(stream, request.as_bytes()).await)
}

#[tokio::test]
async fn https_listeners_serve_as_plain_ones_do() {
    let (server, client) = server().await;
    assert!(server.addresses.inference.to_string().starts_with("https://127.0.0.1:"));
    let predicted =
        ask_secretly(&client, server.inference(), "/predictions/magika", "#!/bin/sh\n").await;
    assert_eq!(predicted.status, 200, "{}", predicted.body);
    let listed = ask_secretly(&client, server.management(), "/models/none", "").await;
    assert_eq!(listed.status, 405);
    assert_eq!(ask(server.metrics(), "GET", "/metrics").await.status, 200, "plain as configured");
}

#[tokio::test]
async fn plain_http_to_an_https_listener_is_told_so() {
    let (server, _) = server().await;
    let reply = ask(server.inference(), "GET", "/ping").await;
    assert_eq!(reply.status, 403);
    let message = "This TorchServe instance only accepts HTTPS requests";
    assert_eq!(reply.json(), serde_json::json!({ "status": message }));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("connection"), Some("close"));
}

#[tokio::test]
async fn noise_instead_of_a_handshake_does_no_harm() {
    let (server, client) = server().await;
    for noise in [b"\x16\x03\x01\x00\x05hello".as_slice(), b"\x16", b"\x00\xff\x00\xff\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.inference()).await.unwrap();
        stream.write_all(noise).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(!raw(server.management(), b"\x16\x03\x01\x00\x05hello").await.contains("HTTP"));
    let reply = ask_secretly(&client, server.inference(), "/ping", "").await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_client_that_never_greets_is_let_go() {
    let impatient = ServerConfig { head_timeout: Duration::from_millis(50), ..config() };
    let (server, _) = server_with(impatient).await;
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    let mut nothing = Vec::new();
    stream.read_to_end(&mut nothing).await.unwrap();
    assert!(nothing.is_empty(), "the server closed first");
}

#[tokio::test]
async fn a_client_that_never_greets_does_not_hold_up_the_end() {
    let patient = ServerConfig { shutdown_grace: Duration::from_secs(3600), ..config() };
    let (server, _) = server_with(patient).await;
    let silent = TcpStream::connect(server.inference()).await.unwrap();
    server.begin_end();
    server.ended().await;
    drop(silent);
}

#[tokio::test]
async fn an_https_address_without_a_certificate_is_an_error_of_the_start() {
    let server = Server::start().await;
    let config = ServerConfig { inference: secure_port(), ..config() };
    let rejected =
        jitney_server::Server::new(config, Default::default(), Arc::clone(&server.engine), 1)
            .err()
            .unwrap();
    assert!(rejected.to_string().contains("needs a certificate and a key"), "{rejected}");
}
