//! Plain requests and others on one connection: a client does not notice who reads them.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::fixture::{Server, raw, talk};

const PING: &str = "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n";
const LAST: &str = "GET /ping HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
const UNKNOWN: &str = "POST /predictions/x HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nGET /";
const CHUNKED: &str = "POST /predictions/x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n";

/// The statuses of the answers to requests that are sent at once.
async fn statuses(address: SocketAddr, requests: &[&str]) -> Vec<u16> {
    read(&raw(address, requests.concat().as_bytes()).await)
}

fn read(answers: &str) -> Vec<u16> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect()
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_order() {
    let server = Server::start().await;
    let address = server.inference();
    assert_eq!(statuses(address, &[PING, UNKNOWN, PING, LAST]).await, [200, 404, 200, 200]);
    assert_eq!(statuses(address, &[PING, CHUNKED, UNKNOWN, LAST]).await, [200, 404, 404, 200]);
    assert_eq!(statuses(address, &[LAST, PING]).await, [200], "the first one ended it");
}

#[tokio::test]
async fn a_request_may_come_byte_by_byte_or_cut_anywhere() {
    let server = Server::start().await;
    for cut in [1, 20, UNKNOWN.len() - 3] {
        let mut stream = TcpStream::connect(server.inference()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&UNKNOWN.as_bytes()[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        let rest = [&UNKNOWN[cut..], LAST].concat();
        assert_eq!(read(&talk(stream, rest.as_bytes()).await), [404, 200], "{cut}");
    }
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in UNKNOWN.bytes() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&talk(stream, LAST.as_bytes()).await), [404, 200]);
}

#[tokio::test]
async fn what_is_not_http_is_told_so_on_a_connection_that_was_fine() {
    let server = Server::start().await;
    let answers = raw(server.inference(), [PING, "nonsense\r\n\r\n"].concat().as_bytes()).await;
    assert_eq!(read(&answers), [200, 400]);
    assert!(answers.ends_with("\"message\": \"Invalid HTTP message.\"\n}\n"), "{answers}");
}
