//! Predictions through the engine: routes, timings, rejections, clients that disconnect.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{HttpResponse, Server, ask, send};

const TEXT: &[u8] = b"# Title\n\nSome words in *Markdown*, and `code`.\n\n- one\n- two\n";

#[tokio::test]
async fn every_route_reaches_the_model_and_brings_a_timing() {
    let server = Server::start().await.with_magika().await;
    for path in [
        "/predictions/magika",
        "/predictions/magika/",
        "/explanations/magika",
        "/v2/models/magika/explain",
        "/invocations",
        "/invocations?model_name=magika",
        "/models/magika/invoke",
        "/magika/predict",
    ] {
        let plain = [("Content-Type", "text/plain")];
        let reply = send(server.inference(), "PUT", path, &plain, TEXT).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        let timing = reply.header("server-timing").unwrap();
        let shape = r#"^queue;dur=[0-9]+\.[0-9]{3}, compute;dur=[0-9]+\.[0-9]{3}, batch;desc="1 of [0-9]+, [a-z]+"$"#;
        assert!(regex::Regex::new(shape).unwrap().is_match(timing), "{timing}");
    }
}

#[tokio::test]
async fn unknown_models_and_versions_are_named() {
    let server = Server::start().await.with_magika().await;
    let (status, kind, message) =
        ask(server.inference(), "POST", "/predictions/ghost").await.error();
    assert_eq!((status, kind.as_str()), (404, "ModelNotFoundException"));
    assert_eq!(message, "Model not found: ghost");
    let (_, kind, message) = ask(server.inference(), "POST", "/predictions/magika/9").await.error();
    assert_eq!(kind, "ModelVersionNotFoundException");
    assert_eq!(message, "Model version: 9 does not exist for model: magika");
}

#[tokio::test]
async fn a_request_that_names_no_model_is_rejected() {
    let server = Server::start().await;
    let (status, _, message) = ask(server.inference(), "POST", "/invocations").await.error();
    assert_eq!((status, message.as_str()), (400, "Parameter model_name is required."));
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let named = send(server.inference(), "POST", "/invocations", &form, b"model_name=ghost").await;
    assert_eq!(named.error().2, "Model not found: ghost");
}

#[tokio::test]
async fn a_model_without_workers_says_so_and_when_to_come_again() {
    let server = Server::start().await;
    let dir = server.model_dir("idle", "1.0");
    ask(server.management(), "POST", &format!("/models?url={dir}")).await;
    let reply = send(server.inference(), "POST", "/predictions/idle", &[], b"x").await;
    let (status, kind, message) = reply.error();
    assert_eq!((status, kind.as_str()), (503, "ServiceUnavailableException"));
    assert!(message.starts_with("Model \"idle\" has no worker to serve inference request."));
    assert_eq!(reply.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn deadlines_and_priorities_are_read_or_rejected() {
    let server = Server::start().await.with_magika().await;
    for (name, value, status) in [
        ("x-jitney-timeout-ms", "60000", 200),
        ("x-jitney-timeout-ms", "0", 408),
        ("x-jitney-timeout-ms", "soon", 400),
        ("x-jitney-priority", "bulk", 200),
        ("x-jitney-priority", "vip", 400),
    ] {
        let path = "/predictions/magika";
        let reply = send(server.inference(), "POST", path, &[(name, value)], TEXT).await;
        assert_eq!(reply.status, status, "{name}: {value}: {}", reply.body);
    }
}

/// A model whose batches wait a minute for company.
async fn patient() -> Server {
    let server = Server::start().await.with_magika().await;
    let change = "/models/magika?policy=window&batch_size=8&max_batch_delay=60000";
    assert_eq!(ask(server.management(), "PUT", change).await.status, 200);
    server
}

#[tokio::test]
async fn a_request_whose_time_is_over_is_told_so() {
    let server = patient().await;
    let soon = [("x-jitney-timeout-ms", "0")];
    let reply = send(server.inference(), "POST", "/predictions/magika", &soon, TEXT).await;
    let (status, kind, message) = reply.error();
    assert_eq!((status, kind.as_str()), (408, "RequestTimeoutException"));
    assert!(message.ends_with("[reason: expired]"), "{message}");
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_request() {
    let server = patient().await;
    let model = server.engine.model("magika", None).unwrap();
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    let request = b"POST /predictions/magika HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";
    stream.write_all(request).await.unwrap();
    while model.status().waiting == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    while model.status().counters.abandoned == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(model.status().waiting, 0);
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = Server::start().await.with_magika().await;
    let mut stream = TcpStream::connect(server.inference()).await.unwrap();
    for _ in 0..3 {
        let head = format!(
            "POST /predictions/magika HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
            TEXT.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(TEXT).await.unwrap();
        assert_eq!(read_one(&mut stream).await.status, 200);
    }
}

/// Reads one answer of known length and leaves the connection open.
async fn read_one(stream: &mut TcpStream) -> HttpResponse {
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize =
                HttpResponse::parse(head).header("content-length").unwrap().parse().unwrap();
            if body.len() == length {
                return HttpResponse::parse(&text);
            }
        }
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "cut off: {text}");
    }
}
