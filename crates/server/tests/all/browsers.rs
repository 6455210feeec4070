//! Web pages of other sites against the management API, over real sockets.

use jitney_net::Bind;
use jitney_proto::management::ListModelsRequest;
use jitney_proto::management::management_ap_is_service_client::ManagementApIsServiceClient;
use jitney_server::{Cors, ServerConfig};
use tokio::net::UnixStream;
use tonic::{Code, Request};

use crate::fixture::{HttpResponse, Server, config, raw, talk};
use crate::grpc_client::channel;

/// A request with these headers, whose body never comes.
fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing_on_management() {
    let server = Server::start().await.with_magika().await;
    for headers in [
        "Host: attacker.example:8081\r\n",
        "Host: localhost\r\nOrigin: https://attacker.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
        "Host: localhost\r\nSec-Fetch-Site: same-site\r\n",
    ] {
        for (method, path) in [
            ("POST", "/models?url=a.mar"),
            ("POST", "/workflows?url=a.war"),
            ("PUT", "/models/magika?min_worker=0"),
            ("PUT", "/models/magika/1.0/set-default"),
            ("DELETE", "/models/magika"),
            ("DELETE", "/workflows/a"),
            ("GET", "/token?type=management"),
        ] {
            // With 100-continue a body that was asked for would show.
            let unread = format!("{headers}Content-Length: 9\r\nExpect: 100-continue\r\n");
            let answer = raw(server.management(), head(method, path, &unread).as_bytes()).await;
            let (status, kind, _) = HttpResponse::parse(&answer).error();
            assert_eq!((status, kind.as_str()), (403, "ForeignOriginException"), "{method} {path}");
        }
    }
    assert_eq!(server.engine.models().len(), 1);
}

#[tokio::test]
async fn on_loopback_another_host_reads_nothing_of_management() {
    let server = Server::start().await.with_magika().await;
    for path in [
        "/models",
        "/models/magika",
        "/models/magika/batching",
        "/models/magika/statistics",
        "/workflows",
    ] {
        for (host, status) in [
            ("attacker.example:8081", 403),
            ("localhost.attacker.example", 403),
            ("localhost:8081", 200),
            ("[::1]:8081", 200),
            ("127.0.0.1", 200),
            ("", 200),
        ] {
            let request = head("GET", path, &format!("Host: {host}\r\n"));
            let answer = raw(server.management(), request.as_bytes()).await;
            assert_eq!(HttpResponse::parse(&answer).status, status, "{path} of {host}");
        }
    }
    let old = raw(server.management(), b"GET /models HTTP/1.0\r\n\r\n").await;
    assert_eq!(HttpResponse::parse(&old).status, 200);
    let ping = head("GET", "/ping", "Host: any.example\r\nOrigin: https://b.example\r\n");
    let ping = raw(server.inference(), ping.as_bytes()).await;
    assert_eq!(HttpResponse::parse(&ping).status, 200, "only management looks");
}

#[tokio::test]
async fn the_servers_own_pages_and_the_operators_may_change_things() {
    let cors = Cors { origin: Some("https://ops.example".to_owned()), ..Cors::default() };
    let server = Server::with(ServerConfig { cors, ..config() }).await.with_magika().await;
    let own = format!("Host: {0}\r\nOrigin: http://{0}\r\n", server.management());
    for headers in [
        own.as_str(),
        "Host: localhost\r\nOrigin: https://ops.example\r\nSec-Fetch-Site: cross-site\r\n",
        "Host: ops.example\r\nOrigin: https://ops.example\r\nSec-Fetch-Site: same-origin\r\n",
    ] {
        let request = head("PUT", "/models/magika?max_latency_ms=50", headers);
        let answer = raw(server.management(), request.as_bytes()).await;
        assert_eq!(HttpResponse::parse(&answer).status, 200, "{headers}: {answer}");
    }
}

#[tokio::test]
async fn a_page_reaches_management_over_grpc_no_more_than_over_rest() {
    let server = Server::start().await;
    let mut client = ManagementApIsServiceClient::new(channel(server.grpc_management()).await);
    assert!(client.list_models(ListModelsRequest::default()).await.is_ok());
    let mut request = Request::new(ListModelsRequest::default());
    request.metadata_mut().insert("origin", "https://attacker.example".parse().unwrap());
    let refused = client.list_models(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn where_both_apis_share_a_socket_management_is_still_looked_after() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("both.sock");
    let both = Bind::Unix(path.clone());
    let both = ServerConfig { inference: both.clone(), management: both, ..config() };
    let server = Server::with(both).await.with_magika().await;
    for (method, target, status) in
        [("DELETE", "/models/magika", 403), ("GET", "/models", 200), ("POST", "/ping", 200)]
    {
        let headers = "Host: any\r\nOrigin: https://attacker.example\r\n";
        let stream = UnixStream::connect(&path).await.unwrap();
        let answer = talk(stream, head(method, target, headers).as_bytes()).await;
        assert_eq!(HttpResponse::parse(&answer).status, status, "{method} {target}");
    }
    drop(server);
}
