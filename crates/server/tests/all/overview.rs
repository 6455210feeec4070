//! The overview and the dashboard: on an address that management and inference share, and as files.

use std::time::Duration;

use jitney_net::Bind;
use jitney_server::ServerConfig;
use jitney_settings::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::fixture::{HttpResponse, Server, ask, config, send, talk};

#[tokio::test]
async fn on_a_shared_address_browsers_find_the_dashboard_and_streams_end_with_the_listener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let bind = Bind::Unix(path.clone());
    let shared = ServerConfig {
        inference: bind.clone(),
        management: bind,
        natural: true,
        dialect: Dialect::Jitney,
        ..config()
    };
    let server = Server::with(shared).await;
    let get = async |path_and_headers: &str| {
        let stream = UnixStream::connect(&path).await.unwrap();
        let head = format!("GET {path_and_headers}\r\nHost: t\r\nConnection: close\r\n\r\n");
        HttpResponse::parse(&talk(stream, head.as_bytes()).await)
    };
    let page = get("/ HTTP/1.1\r\nAccept: text/html").await;
    assert_eq!((page.status, page.header("location")), (303, Some("dashboard")));
    let alive = get("/ HTTP/1.1\r\nAccept: */*").await;
    assert_eq!((alive.status, alive.json()["status"].as_str()), (200, Some("alive")));
    assert_eq!(get("/overview HTTP/1.1").await.json()["server"]["state"], "ready");
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /overview/stream HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    server.begin_end();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("event: history\n") && rest.contains("event: overview\n"), "{rest}");
    assert!(rest.ends_with("event: end\ndata: \n\n\r\n0\r\n\r\n"), "{rest}");
    tokio::time::timeout(Duration::from_secs(60), server.ended()).await.unwrap();
}

#[tokio::test]
async fn a_file_is_sent_packed_to_those_who_take_it_and_not_again_to_those_who_have_it() {
    let server = Server::start().await;
    let management = server.management();
    let plain = ask(management, "GET", "/dashboard/app.js").await;
    assert_eq!(plain.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(plain.header("cache-control"), Some("no-cache"));
    assert_eq!(plain.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(plain.header("content-encoding"), None);
    let asked = [("Accept-Encoding", "br, gzip")];
    let packed = send(management, "GET", "/dashboard/app.js", &asked, b"").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let known = [("If-None-Match", plain.header("etag").unwrap())];
    let again = send(management, "GET", "/dashboard/app.js", &known, b"").await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(ask(management, "POST", "/dashboard").await.status, 405);
    assert_eq!(ask(management, "GET", "/").await.status, 405, "TorchServe has no page here");
    assert_eq!(ask(server.inference(), "GET", "/overview").await.status, 404);
}
