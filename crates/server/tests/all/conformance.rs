//! Every endpoint of the reference page, which is made from the table, over every carrier: plain requests, those
//! that hyper reads, and HTTP/2. Status, headers and body are the same but for what belongs to the carrier.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use jitney_server::ServerConfig;
use jitney_settings::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{HttpResponse, Server, config};
use crate::http2;

const PAGE: &str = include_str!("../../../../docs/reference/endpoints.md");
/// What the carriers write themselves, and what differs between any two answers.
const OWN: [&str; 6] =
    ["connection", "content-length", "date", "server-timing", "transfer-encoding", "x-request-id"];
/// Answers that tell the state of the moment.
const MOVING: [&str; 2] = ["/metrics", "/overview"];

/// A request for each method of each row.
fn requests() -> Vec<(String, String)> {
    let (mut section, mut requests) = ("", Vec::new());
    let (rest, _grpc) = PAGE.split_once("## gRPC").unwrap();
    for line in rest.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        }
        let Some((path, cells)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | "))
        else {
            continue;
        };
        for method in cells.split(" | ").next().unwrap().split(", ") {
            let method = if method == "any" { "GET" } else { method };
            // What would change the server is asked about a model that is not there.
            let changes = section.starts_with('M') && method != "GET";
            let path = path.replace("{model}", if changes { "nobody" } else { "magika" });
            let path = path.replace("{version}", "1.0");
            let path = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
            let path: Vec<_> = path.collect();
            requests.push((method.to_owned(), path.join("/")));
        }
    }
    requests
}

#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Seen {
    fn new(path: &str, reply: HttpResponse) -> Self {
        let lines = reply.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let headers = lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        let headers = headers.filter(|(name, _)| !OWN.contains(&name.as_str())).collect();
        let moving = MOVING.iter().any(|start| path.starts_with(start));
        let body = if moving { String::new() } else { fixed(&reply.body) };
        Self { status: reply.status, headers, body }
    }
}

/// A body without its digits, which may be times and ids.
fn fixed(body: &str) -> String {
    let letter = |letter: char| !letter.is_ascii_digit() && !('a'..='f').contains(&letter);
    body.chars().filter(|it| letter(*it)).collect()
}

/// Asks over HTTP/1; hyper reads what has this header.
async fn ask(address: SocketAddr, method: &str, path: &str, header: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let request = format!("{head}{header}Content-Length: 5\r\n\r\nhello");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let streams = path.ends_with("/stream");
    while !(streams && answer.ends_with(b"\r\n\r\n")) {
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(_) => break,
        }
    }
    HttpResponse::parse(&String::from_utf8_lossy(&answer))
}

async fn check(config: ServerConfig) {
    let server = Server::with(config).await.with_magika().await;
    let requests = requests();
    assert!(requests.len() > 80, "{} rows", requests.len());
    for address in [server.inference(), server.management(), server.metrics()] {
        let client = http2::connect(address).await;
        for (method, path) in &requests {
            let plain = Seen::new(path, ask(address, method, path, "").await);
            let hyper = Seen::new(path, ask(address, method, path, "TE: trailers\r\n").await);
            let streams = Seen::new(path, http2::ask(&client, address, method, path).await);
            assert_eq!(plain, hyper, "hyper: {method} {path}");
            assert_eq!(plain, streams, "HTTP/2: {method} {path}");
        }
    }
}

#[tokio::test]
async fn every_endpoint_answers_alike_over_every_carrier() {
    check(ServerConfig { natural: true, oip: true, dialect: Dialect::Jitney, ..config() }).await;
    check(ServerConfig { oip: true, sagemaker: true, ..config() }).await;
}
