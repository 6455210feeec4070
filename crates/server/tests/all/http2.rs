//! HTTP/2 on the REST ports, by hyper's own client.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jitney_server::ServerConfig;
use tokio::net::TcpStream;
use tokio_stream::StreamExt;

use crate::fixture::{HttpResponse, Server, config};

pub type Body = BoxBody<Bytes, std::convert::Infallible>;

pub async fn connect(address: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(address).await.unwrap();
    let client = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
    let (sender, connection) = client.await.unwrap();
    tokio::spawn(connection);
    sender
}

fn whole(body: &[u8]) -> Body {
    Full::new(Bytes::copy_from_slice(body)).boxed()
}

/// A body of which only the beginning comes.
fn half() -> Body {
    let begin = tokio_stream::once(Ok(Frame::data(Bytes::from_static(b"begin"))));
    BodyExt::boxed(StreamBody::new(begin.chain(tokio_stream::pending())))
}

fn request(address: SocketAddr, path: &str, body: Body) -> Request<Body> {
    let uri = format!("http://{address}{path}");
    Request::builder().method("POST").uri(uri).body(body).unwrap()
}

/// One request with a small body; of a stream only the head.
pub async fn ask(
    client: &SendRequest<Body>,
    address: SocketAddr,
    method: &str,
    path: &str,
) -> HttpResponse {
    let uri = format!("http://{address}{path}");
    let request = Request::builder().method(method).uri(uri).body(whole(b"hello")).unwrap();
    let reply = client.clone().send_request(request).await.unwrap();
    let (parts, body) = reply.into_parts();
    let mut head = format!("HTTP/2 {}", parts.status.as_u16());
    for (name, value) in &parts.headers {
        head += &format!("\r\n{name}: {}", value.to_str().unwrap());
    }
    let body = match path.ends_with("/stream") {
        true => Bytes::new(),
        false => body.collect().await.unwrap().to_bytes(),
    };
    HttpResponse {
        status: parts.status.as_u16(),
        head,
        body: String::from_utf8_lossy(&body).into(),
    }
}

async fn read(reply: Response<Incoming>) -> (u16, serde_json::Value) {
    assert_eq!(reply.version(), Version::HTTP_2);
    let status = reply.status().as_u16();
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let server = Server::start().await;
    let address = server.inference();
    let client = connect(address).await;
    let mut asked = Vec::new();
    for number in 0..20 {
        let body = vec![7; 5000 * number];
        let asking = client.clone().send_request(request(address, "/predictions/x", whole(&body)));
        asked.push(asking);
    }
    for asking in asked {
        let (status, error) = read(asking.await.unwrap()).await;
        assert_eq!((status, &error["type"]), (404, &"ModelNotFoundException".into()));
    }
    let last = request(address, "/predictions/x", whole(b""));
    let reply = client.clone().send_request(last).await.unwrap();
    assert!(reply.headers().contains_key("x-request-id"));
    assert!(!reply.headers().contains_key("connection"));
    server.begin_end();
    let log = server.log.clone();
    drop(client);
    server.ended().await;
    assert!(log.text().contains("\"POST /predictions/x HTTP/2.0\" 404 "), "{}", log.text());
}

#[tokio::test]
async fn a_body_that_stands_still_ends_its_stream_alone() {
    let second = Duration::from_secs(1);
    let server = Server::with(ServerConfig { head_timeout: second, ..config() }).await;
    let address = server.inference();
    let mut client = connect(address).await;
    let (status, error) =
        read(client.send_request(request(address, "/predictions/x", half())).await.unwrap()).await;
    assert_eq!((status, &error["type"]), (408, &"RequestTimeoutException".into()));
    let reply = client.send_request(request(address, "/predictions/x", whole(b"all"))).await;
    assert_eq!(read(reply.unwrap()).await.0, 404);
}

#[tokio::test]
async fn a_body_that_is_too_large_ends_its_stream_alone() {
    let server = Server::start().await;
    let address = server.inference();
    let mut client = connect(address).await;
    for path in ["/predictions/x", "/nothing"] {
        let reply = client.send_request(request(address, path, whole(&vec![7; 5_000_000]))).await;
        let expected = if path == "/nothing" { 404 } else { 413 };
        assert_eq!(read(reply.unwrap()).await.0, expected);
    }
}
