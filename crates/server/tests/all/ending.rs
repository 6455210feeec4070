//! Listeners that end: what is under way is answered, what is idle is closed, the rest is cut off.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jitney_net::Bind;
use jitney_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::fixture::{Server, config, talk};
use crate::http2::Body;

#[tokio::test]
async fn a_request_under_way_is_answered_and_nobody_new_is_taken() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    let head = b"POST /predictions/x HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).await.unwrap();
    let mut idle = TcpStream::connect(server.inference()).await.unwrap();
    let address = server.inference();
    server.begin_end();
    let mut nothing = Vec::new();
    assert_eq!(idle.read_to_end(&mut nothing).await.unwrap_or(0), 0, "an idle one is closed");
    stream.write_all(b"abc").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 404 "), "{rest}");
    server.ended().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_when_the_grace_is_over() {
    let shutdown_grace = Duration::from_millis(50);
    let server = Server::with(ServerConfig { shutdown_grace, ..config() }).await;
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    stream
        .write_all(
            b"POST /predictions/x HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n\
              Content-Length: 3\r\n\r\n",
        )
        .await
        .unwrap();
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).await.unwrap();
    server.begin_end();
    server.ended().await;
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let server = Server::with(ServerConfig { max_connections: 2, ..config() }).await;
    let ask = b"GET /ping HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let mut streams = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(server.inference()).await.unwrap();
        stream.write_all(ask).await.unwrap();
        streams.push(stream);
    }
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn an_idle_connection_times_out() {
    let second = Duration::from_secs(1);
    let impatient = ServerConfig { head_timeout: second, idle_timeout: second, ..config() };
    let server = Server::with(impatient).await;
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn half_a_preface_of_http_2_has_as_long_as_any_head() {
    let second = Duration::from_secs(1);
    let server = Server::with(ServerConfig { head_timeout: second, ..config() }).await;
    for address in [server.inference(), server.management(), server.grpc_inference()] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"PRI * HT").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty(), "{answer:?}");
    }
}

#[tokio::test]
async fn a_unix_socket_is_served_and_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inference.sock");
    let inference = Bind::Unix(path.clone());
    let server = Server::with(ServerConfig { inference: inference.clone(), ..config() }).await;
    let stream = UnixStream::connect(&path).await.unwrap();
    let request = b"GET /ping HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let answer = talk(stream, request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "));
    let taken = jitney_net::listen::bind(&inference, 1).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    server.begin_end();
    server.ended().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_server_that_drains_closes_with_its_next_answer_on_every_carrier() {
    let plain = "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n";
    let hyper = "GET /ping HTTP/1.1\r\nHost: t\r\nTE: trailers\r\n\r\n";
    for request in [plain, hyper] {
        let server = Server::start().await;
        let mut stream = TcpStream::connect(server.inference()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut before = vec![0; 4000];
        let count = stream.read(&mut before).await.unwrap();
        let before = String::from_utf8_lossy(&before[..count]).to_ascii_lowercase();
        assert!(before.starts_with("http/1.1 200") && !before.contains("connection:"), "{before}");
        server.engine.begin_drain();
        for stream in [stream, TcpStream::connect(server.inference()).await.unwrap()] {
            let after = talk(stream, request.as_bytes()).await.to_ascii_lowercase();
            assert!(after.contains("connection: close"), "{after}");
        }
    }
}

/// The end of an HTTP/2 connection, which its client learns from GOAWAY.
async fn streams(address: SocketAddr) -> (SendRequest<Body>, JoinHandle<()>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let client = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
    let (sender, connection) = client.await.unwrap();
    (sender, tokio::spawn(async move { connection.await.unwrap() }))
}

#[tokio::test]
async fn a_server_that_drains_says_goaway_to_old_connections_and_after_the_first_answer_of_new_ones()
 {
    for listener in [Server::inference, Server::grpc_inference] {
        let server = Server::start().await;
        let address = listener(&server);
        let (used, used_ended) = streams(address).await;
        let asked = crate::http2::ask(&used, address, "POST", "/a.b/c").await;
        assert!([200, 404].contains(&asked.status));
        server.engine.begin_drain();
        used_ended.await.unwrap();
        let (new, new_ended) = streams(address).await;
        let asked = crate::http2::ask(&new, address, "POST", "/a.b/c").await;
        assert!([200, 404].contains(&asked.status));
        new_ended.await.unwrap();
    }
}
