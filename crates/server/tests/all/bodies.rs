//! Bodies that are too large, come in pieces, or never come.

use std::time::Duration;

use jitney_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{HttpResponse, Server, ask, config, raw, send};

const LIMIT: usize = 100_000;

fn check_too_large(reply: &HttpResponse) {
    let (status, kind, message) = reply.error();
    assert_eq!((status, kind.as_str()), (413, "RequestEntityTooLargeException"));
    assert_eq!(message, "The request body is larger than 100000 bytes.");
    assert_eq!(reply.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_rejected_and_the_client_can_read_why() {
    let server = Server::start().await;
    let fits = send(server.inference(), "POST", "/predictions/x", &[], &vec![7; LIMIT]).await;
    assert_eq!(fits.status, 404);
    for size in [LIMIT + 1, 20 * LIMIT] {
        let reply = send(server.inference(), "POST", "/predictions/x", &[], &vec![7; size]).await;
        check_too_large(&reply);
    }
}

#[tokio::test]
async fn a_large_body_for_nobody_does_not_cost_the_client_its_answer() {
    let server = Server::start().await;
    let reply = send(server.inference(), "POST", "/nothing", &[], &vec![7; 50 * LIMIT]).await;
    assert_eq!(reply.error().1, "ResourceNotFoundException");
}

#[tokio::test]
async fn a_chunked_body_is_counted_while_it_comes() {
    let server = Server::start().await;
    let chunk = [b"8000\r\n".as_slice(), &[7; 0x8000], b"\r\n"].concat();
    let head = b"POST /predictions/x HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let two = [head.as_slice(), &chunk, &chunk, b"0\r\n\r\n"].concat();
    assert_eq!(HttpResponse::parse(&raw(server.inference(), &two).await).status, 404);
    let four = [head.as_slice(), &chunk, &chunk, &chunk, &chunk, b"0\r\n\r\n"].concat();
    check_too_large(&HttpResponse::parse(&raw(server.inference(), &four).await));
}

#[tokio::test]
async fn a_client_that_waits_for_continue_gets_it_or_is_rejected_at_once() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    let head = b"PUT /predictions/x HTTP/1.1\r\nHost: t\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).await.unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"abc").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(HttpResponse::parse(&rest).status, 404);
    let head = b"PUT /predictions/x HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 999999\r\n\r\n";
    check_too_large(&HttpResponse::parse(&raw(server.inference(), head).await));
}

#[tokio::test]
async fn a_client_that_disconnects_within_its_body_does_no_harm() {
    let server = Server::start().await;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.inference()).await.unwrap();
        let head = b"POST /predictions/x HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\nhalf";
        stream.write_all(head).await.unwrap();
    }
    assert_eq!(ask(server.inference(), "GET", "/ping").await.status, 200);
}

#[tokio::test]
async fn a_head_or_a_body_that_does_not_come_ends_the_connection() {
    let head_timeout = Duration::from_secs(1);
    let server = Server::with(ServerConfig { head_timeout, ..config() }).await;
    for begun in [
        "",
        "POST /predictions/x HT",
        "POST /predictions/x HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\nhalf",
    ] {
        assert_eq!(raw(server.inference(), begun.as_bytes()).await, "", "{begun}");
    }
    assert_eq!(ask(server.inference(), "GET", "/ping").await.status, 200);
}
