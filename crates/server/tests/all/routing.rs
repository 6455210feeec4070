//! Health, descriptions, unknown paths and what every answer carries.

use jitney_net::Bind;
use jitney_server::{Cors, ServerConfig};
use tokio::net::UnixStream;

use crate::fixture::{HttpResponse, Server, ask, config, talk};

#[tokio::test]
async fn ping_answers_any_method_and_spelling() {
    let server = Server::start().await;
    for (method, path) in
        [("GET", "/ping"), ("DELETE", "/ping/"), ("POST", "/%70ing"), ("PUT", "/ping?verbose=1")]
    {
        let reply = ask(server.inference(), method, path).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "{\n  \"status\": \"Healthy\"\n}\n"));
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    let head = ask(server.inference(), "HEAD", "/ping").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn a_draining_server_is_unhealthy() {
    let server = Server::start().await;
    server.engine.begin_drain();
    let reply = ask(server.inference(), "GET", "/ping").await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (500, Some("Unhealthy")));
}

#[tokio::test]
async fn every_answer_forbids_caching_and_has_an_id_of_its_own() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for path in ["/ping", "/nothing", "/ping"] {
        let reply = ask(server.inference(), "GET", path).await;
        assert_eq!(reply.header("pragma"), Some("no-cache"));
        assert!(reply.header("cache-control").unwrap().contains("no-store"));
        assert!(reply.header("expires").unwrap().contains("1970"));
        assert!(reply.head.contains("\r\nX-Request-Id: "), "{}", reply.head);
        ids.push(reply.header("x-request-id").unwrap().to_owned());
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_apart() {
    let server = Server::start().await;
    let (i, m, x) = (server.inference(), server.management(), server.metrics());
    for (address, path) in
        [(i, "/nothing"), (i, "/predictions"), (m, "/predictions/a"), (x, "/ping")]
    {
        let (status, kind, message) = ask(address, "GET", path).await.error();
        assert_eq!((status, kind.as_str()), (404, "ResourceNotFoundException"));
        assert_eq!(message, "Requested resource is not found, please refer to API document.");
    }
    for (address, method, path) in [(i, "GET", "/"), (m, "PATCH", "/models"), (m, "GET", "/")] {
        let (status, kind, _) = ask(address, method, path).await.error();
        assert_eq!((status, kind.as_str()), (405, "MethodNotAllowedException"));
    }
}

#[tokio::test]
async fn each_listener_describes_itself() {
    let server = Server::start().await;
    for (address, path) in [
        (server.inference(), "/predictions/{model_name}"),
        (server.management(), "/models/{model_name}"),
        (server.metrics(), "/metrics"),
    ] {
        let document = ask(address, "OPTIONS", "/").await.json();
        assert_eq!(document["openapi"], "3.0.1");
        assert_eq!(document["info"]["title"], "TorchServe APIs");
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

#[tokio::test]
async fn one_address_serves_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("all.sock");
    let (inference, management) = (Bind::Unix(path.clone()), Bind::Unix(path.clone()));
    let server = Server::with(ServerConfig { inference, management, ..config() }).await;
    for target in ["/ping", "/models", "/metrics"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        let stream = UnixStream::connect(&path).await.unwrap();
        let reply = HttpResponse::parse(&talk(stream, request.as_bytes()).await);
        assert_eq!(reply.status, 200, "{target}");
    }
    assert_eq!(ask(server.metrics(), "GET", "/metrics").await.status, 200);
}

#[tokio::test]
async fn open_inference_health_is_a_switch() {
    let server = Server::start().await;
    assert_eq!(ask(server.inference(), "GET", "/v2/health/ready").await.status, 404);
    let server = Server::with(ServerConfig { oip: true, ..config() }).await;
    let ready = ask(server.inference(), "GET", "/v2/health/ready").await;
    assert_eq!((ready.status, ready.json()), (200, serde_json::json!({ "ready": true })));
    let name = ask(server.inference(), "GET", "/v2").await.json();
    assert_eq!(
        (name["name"].as_str(), name["version"].as_str()),
        (Some("Torchserve"), Some("0.12.0"))
    );
    let versions = ask(server.inference(), "POST", "/v2/models/m/versions/1/infer").await;
    assert_eq!(versions.status, 501);
    server.engine.begin_drain();
    assert_eq!(ask(server.inference(), "GET", "/v2/health/ready").await.status, 503);
    assert_eq!(ask(server.inference(), "GET", "/v2/health/live").await.status, 200);
}

#[tokio::test]
async fn cross_origin_headers_go_with_every_answer() {
    let cors = Cors { origin: Some("https://a.example".to_owned()), ..Cors::default() };
    let server = Server::with(ServerConfig { cors, ..config() }).await;
    for path in ["/ping", "/nothing"] {
        let reply = ask(server.inference(), "GET", path).await;
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://a.example"));
        assert_eq!(reply.header("access-control-allow-methods"), None);
    }
}

#[tokio::test]
async fn the_access_log_and_the_metrics_have_seen_it() {
    let server = Server::start().await;
    ask(server.inference(), "POST", "/ping?mark=1").await;
    ask(server.inference(), "GET", "/nothing").await;
    let page = ask(server.metrics(), "GET", "/metrics?name[]=Requests4XX").await;
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(page.body.contains("Requests4XX{Level=\"Host\",Hostname=\"localhost\",} 1.0\n"));
    assert!(!page.body.contains("Requests2XX"), "{}", page.body);
    let log = server.log.clone();
    server.begin_end();
    server.ended().await;
    let text = log.text();
    let line = text.lines().find(|line| line.contains("mark=1")).expect("a line per request");
    let shape = regex::Regex::new(
        r#"^[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9],[0-9]{3} - /127\.0\.0\.1:[0-9]+ "POST /ping\?mark=1 HTTP/1\.1" 200 [0-9]+$"#,
    );
    assert!(shape.unwrap().is_match(line), "{line}");
}
