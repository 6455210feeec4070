//! Tokens over real sockets: who is let in where, and how keys are renewed.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use jitney_net::Bind;
use jitney_proto::inference::inference_ap_is_service_client::InferenceApIsServiceClient;
use jitney_proto::kserve::ServerLiveRequest;
use jitney_proto::management::ListModelsRequest;
use jitney_proto::management::management_ap_is_service_client::ManagementApIsServiceClient;
use jitney_proto::openinference::grpc_inference_service_client::GrpcInferenceServiceClient;
use jitney_server::auth::{KeyStore, KeyStrength, TokenClock, Tokens};
use jitney_server::{ServerConfig, ServerParts};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::fixture::{HttpResponse, Server, ask, config, send, talk};
use crate::grpc_client::unix_channel;

/// What was written down last.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<String>>);

impl KeyStore for Notes {
    fn save(&self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
}

impl Notes {
    fn bearer(&self, name: &str) -> String {
        let keys: serde_json::Value = serde_json::from_str(&self.0.lock().unwrap()).unwrap();
        format!("Bearer {}", keys[name]["key"].as_str().unwrap())
    }
}

fn clock() -> TokenClock {
    let start = Instant::now();
    TokenClock { wall: Box::new(SystemTime::now), steady: Box::new(move || start.elapsed()) }
}

async fn locked(config: ServerConfig) -> (Server, Notes) {
    let (notes, hour) = (Notes::default(), Duration::from_secs(3600));
    let tokens =
        Tokens::new(KeyStrength::TorchServe, hour, Box::new(notes.clone()), clock()).unwrap();
    tokens.issue().unwrap();
    let parts = ServerParts { tokens: Some(Arc::new(tokens)), ..ServerParts::default() };
    let config = ServerConfig { oip: true, ..config };
    (Server::with_parts(config, parts).await.with_magika().await, notes)
}

async fn get(address: std::net::SocketAddr, path: &str, bearer: &str) -> HttpResponse {
    send(address, "GET", path, &[("Authorization", bearer)], b"").await
}

const DENIED: &str =
    "Token Authorization failed. Token either incorrect, expired, or not provided correctly";

#[tokio::test]
async fn without_a_token_nothing_is_open_but_descriptions_and_metrics() {
    let (server, _) = locked(config()).await;
    let (inference, management) = (server.inference(), server.management());
    for (address, path) in [
        (inference, "/ping"),
        (inference, "/predictions/magika"),
        (inference, "/v2/health/live"),
        (inference, "/no/such/path"),
        (management, "/models"),
        (management, "/models/magika"),
        (management, "/no/such/path"),
    ] {
        let rejected = ask(address, "GET", path).await.error();
        assert_eq!(rejected, (400, "InvalidKeyException".into(), DENIED.into()), "{path}");
    }
    assert_eq!(ask(inference, "OPTIONS", "/").await.status, 200);
    assert_eq!(ask(management, "OPTIONS", "/").await.status, 200);
    assert_eq!(ask(server.metrics(), "GET", "/metrics").await.status, 200);
}

#[tokio::test]
async fn each_token_opens_its_own_port() {
    let (server, notes) = locked(config()).await;
    for (name, inference, management) in
        [("inference", 200, 400), ("management", 400, 200), ("API", 400, 400)]
    {
        let bearer = notes.bearer(name);
        assert_eq!(get(server.inference(), "/ping", &bearer).await.status, inference, "{name}");
        assert_eq!(get(server.management(), "/models", &bearer).await.status, management, "{name}");
    }
    let bearer = notes.bearer("inference");
    let headers = [("Authorization", bearer.as_str())];
    let predicted =
        send(server.inference(), "POST", "/predictions/magika", &headers, b"#!/bin/sh\n").await;
    assert_eq!(predicted.status, 200, "{}", predicted.body);
}

#[tokio::test]
async fn on_one_address_each_token_opens_its_own_routes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("both.sock");
    let both = Bind::Unix(path.clone());
    let both = ServerConfig { inference: both.clone(), management: both, ..config() };
    let (_server, notes) = locked(both).await;
    for (name, ping, models) in [("inference", 200, 400), ("management", 400, 200)] {
        for (asked, status) in [("/ping", ping), ("/models", models), ("/no/such", 404)] {
            let stream = UnixStream::connect(&path).await.unwrap();
            let request = format!(
                "GET {asked} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Authorization: {}\r\n\r\n",
                notes.bearer(name)
            );
            let reply = HttpResponse::parse(&talk(stream, request.as_bytes()).await);
            assert_eq!(reply.status, status, "{name} at {asked}");
        }
    }
}

#[tokio::test]
async fn the_api_key_renews_the_others() {
    let (server, notes) = locked(config()).await;
    let old = notes.bearer("inference");
    let renewed = get(server.management(), "/token?type=inference", &notes.bearer("API")).await;
    assert_eq!((renewed.status, renewed.body.as_str()), (200, "\n"));
    assert_eq!(get(server.inference(), "/ping", &old).await.status, 400);
    assert_eq!(get(server.inference(), "/ping", &notes.bearer("inference")).await.status, 200);
    for (name, query) in [("management", "?type=inference"), ("API", "?type=other"), ("API", "")] {
        let path = format!("/token{query}");
        let (status, kind, message) =
            get(server.management(), &path, &notes.bearer(name)).await.error();
        assert_eq!((status, kind.as_str()), (400, "InvalidKeyException"));
        assert!(message.starts_with("Token Authentication failed. "), "{message}");
    }
}

#[tokio::test]
async fn without_tokens_there_is_nothing_to_renew() {
    let server = Server::start().await;
    assert_eq!(ask(server.management(), "GET", "/token?type=inference").await.status, 404);
}

#[tokio::test]
async fn on_one_grpc_port_each_token_opens_its_own_services() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("grpc.sock");
    let both = Some(Bind::Unix(path.clone()).into());
    let both = ServerConfig { grpc_inference: both.clone(), grpc_management: both, ..config() };
    let (_server, notes) = locked(both).await;
    let channel = unix_channel(&path).await;
    for (name, inference, management, either) in [
        ("inference", true, false, true),
        ("management", false, true, true),
        ("API", false, false, false),
    ] {
        let bearer = notes.bearer(name);
        let mut client = InferenceApIsServiceClient::new(channel.clone());
        assert_opens(client.ping(keyed(&bearer, ())).await, inference);
        let mut client = GrpcInferenceServiceClient::new(channel.clone());
        let live = client.server_live(keyed(&bearer, ServerLiveRequest {})).await;
        assert_opens(live, inference);
        let mut client = ManagementApIsServiceClient::new(channel.clone());
        let listed = client.list_models(keyed(&bearer, ListModelsRequest::default())).await;
        assert_opens(listed, management);
        let mut client = HealthClient::new(channel.clone());
        let healthy = client.check(keyed(&bearer, HealthCheckRequest::default())).await;
        assert_opens(healthy, either);
    }
}

fn keyed<T>(bearer: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", bearer.parse().unwrap());
    request
}

#[track_caller]
fn assert_opens<T>(answer: Result<Response<T>, Status>, opens: bool) {
    let code = answer.map(drop).map_err(|status| status.code());
    assert_eq!(code, if opens { Ok(()) } else { Err(Code::PermissionDenied) });
}
