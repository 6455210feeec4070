//! Listeners that end: what is under way is answered, what is idle is closed, the rest is cut off.

use std::time::Duration;

use jitney_net::Bind;
use jitney_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::fixture::{Server, config, talk};

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
