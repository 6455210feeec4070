//! A cluster that a script plays: workers dial in over TLS with the certificate and the token of their order, their
//! output and their end are heard, and one that is lost is noticed.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::frames::{FrameKind, PROTOCOL, WorkerConnection, encode_control};
use crate::outcome::WorkerExit;
use crate::python::worker::OutputSource;

const PATIENCE: Duration = Duration::from_secs(30);

/// A placement with a cluster, and the orders that its side-car would get.
struct Scene {
    placement: Arc<Placement>,
    orders: mpsc::Receiver<Value>,
    source: Arc<OutputSource>,
    _scratch: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let here = Handle::current();
        let listener = WorkerListener::listen(scratch.path().join("s"), &here).expect("a socket");
        let (placement, orders) = Placement::new(&listener, here.clone());
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let secure = SecureListener::listen(host, 0, &listener, &here).await.expect("a port");
        assert_eq!(secure.address.ip(), host, "and no other address");
        placement.join(Arc::new(secure));
        let source = Arc::new(OutputSource {
            model: "m".to_owned(),
            version: "1".to_owned(),
            worker: 9000,
            start: 0,
            observer: Arc::new(()),
            last_error: Mutex::default(),
        });
        Self { placement, orders, source, _scratch: scratch }
    }

    /// Asks for a worker; the order is what the side-car reads.
    async fn ask(&mut self, token: &str, progress: ProgressSender) -> (Placing, Value) {
        let order = PlacementOrder {
            name: "m 1 worker 9000".to_owned(),
            resources: json!({ "num_cpus": 1.0 }),
            files: json!({}),
        };
        let output = ["stdout", "stderr"].map(|stream| WorkerStream::new(&self.source, stream));
        let (placement, token) = (Arc::clone(&self.placement), token.to_owned());
        let placing =
            tokio::spawn(async move { placement.start(order, token, output, &progress).await });
        (placing, self.order().await)
    }

    async fn order(&mut self) -> Value {
        timeout(PATIENCE, self.orders.recv()).await.expect("in time").expect("an order")
    }
}

type Placing = tokio::task::JoinHandle<Result<(WorkerProcess, NodePaths), LaunchError>>;

fn progress() -> ProgressSender {
    ProgressSender::channel().0
}

/// Dials in as an actor or a worker does.
async fn dial(order: &Value, token: &str) -> TlsStream<TcpStream> {
    let server = &order["server"];
    let mut roots = RootCertStore::empty();
    let pem = server["certificate"].as_str().expect("a certificate");
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let host: IpAddr = server["host"].as_str().expect("a host").parse().expect("an address");
    let port = u16::try_from(server["port"].as_u64().expect("a port")).expect("a port");
    let stream = TcpStream::connect((host, port)).await.expect("a listener");
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::from(host), stream).await.expect("TLS");
    let mut hello = bytes::BytesMut::new();
    encode_control(FrameKind::Hello, &json!({"protocol": PROTOCOL, "token": token}), &mut hello);
    stream.write_all(&hello).await.expect("room");
    stream
}

/// An actor that has put its files somewhere.
async fn ready(order: &Value) -> (BufReader<TlsStream<TcpStream>>, Value) {
    let token = order["token"].as_str().expect("a token");
    let mut actor = BufReader::new(dial(order, token).await);
    let mut go = String::new();
    actor.read_line(&mut go).await.expect("a line");
    let ready = json!({ "ready": { "node": "10.0.0.2", "model": "/tmp/x", "code": null } });
    actor.write_all(format!("{ready}\n").as_bytes()).await.expect("room");
    (actor, serde_json::from_str(&go).expect("JSON"))
}

#[tokio::test]
async fn a_worker_is_placed_dials_in_over_tls_and_tells_its_end() {
    let mut scene = Scene::new().await;
    let mut expected = scene.placement.listener.expect().unwrap();
    let (placing, order) = scene.ask(expected.token.text(), progress()).await;
    assert_eq!((&order["do"], &order["resources"]["num_cpus"]), (&json!("start"), &json!(1.0)));
    let (mut actor, go) = ready(&order).await;
    let (mut process, paths) = placing.await.expect("no panic").expect("a place");
    assert_eq!((process.id(), paths.model.as_deref()), (None, Some("/tmp/x")));
    // It does not need the side-car any more.
    scene.placement.lose_cluster("its side-car ended");
    // Its worker speaks the frames over a connection of its own.
    let worker = dial(&order, go["token"].as_str().expect("the worker's token")).await;
    let stream = (&mut expected.connection).await.expect("the worker");
    let mut connection = WorkerConnection::new(stream).expect("a socket");
    let load = json!({ "model_name": "m" });
    connection.send_control(FrameKind::Load, &load).await.expect("room");
    let mut worker = BufReader::new(worker);
    let mut head = [0; 16];
    worker.read_exact(&mut head).await.expect("a frame");
    assert_eq!(head[4], FrameKind::Load as u8);
    drop(worker);
    let end = timeout(PATIENCE, connection.receive()).await.expect("in time");
    assert!(end.is_err(), "the worker's end is seen at once");
    for line in [json!({ "stderr": "Killed\n" }), json!({ "exited": -9 })] {
        actor.write_all(format!("{line}\n").as_bytes()).await.expect("room");
    }
    let end = timeout(PATIENCE, process.wait()).await.expect("in time");
    assert_eq!(WorkerExit::of_process(end), WorkerExit::Ended { status: None, signal: Some(9) });
    assert_eq!(scene.source.last_error(), "Killed");
    assert_eq!(scene.order().await["do"], "end", "the side-car forgets the actor");
}

#[tokio::test]
async fn a_lost_node_is_noticed_by_the_connection_or_by_the_side_car() {
    let mut scene = Scene::new().await;
    for told in [false, true] {
        let (placing, order) = scene.ask("t", progress()).await;
        let (actor, _) = ready(&order).await;
        let (mut process, _) = placing.await.expect("no panic").expect("a place");
        let kept = told.then_some(actor);
        if told {
            let (id, why) = (order["id"].as_u64().expect("an id"), "its node was lost".to_owned());
            scene.placement.hear(SideCarEvent::Ended { id, why });
        }
        let end = timeout(PATIENCE, process.wait()).await.expect("in time");
        assert_eq!(WorkerExit::of_process(end), WorkerExit::Lost);
        assert_eq!(scene.order().await, json!({ "do": "end", "id": order["id"] }));
        drop(kept);
    }
}

#[tokio::test]
async fn a_worker_that_is_not_wanted_any_more_loses_its_connection() {
    let mut scene = Scene::new().await;
    let (placing, order) = scene.ask("t", progress()).await;
    let (mut actor, _) = ready(&order).await;
    drop(placing.await.expect("no panic").expect("a place"));
    let read = timeout(PATIENCE, actor.read(&mut [0; 1])).await.expect("in time");
    assert!(read.is_err() || read.is_ok_and(|read| read == 0));
}

#[tokio::test]
async fn waiting_for_a_place_is_told_and_a_start_that_fails_says_why() {
    let mut scene = Scene::new().await;
    let (progress, mut steps) = ProgressSender::channel();
    let (placing, order) = scene.ask("t", progress).await;
    let id = order["id"].as_u64().expect("an id");
    scene.placement.hear(SideCarEvent::Pending { id, why: "no node has GPU 1".to_owned() });
    assert_eq!(steps.recv().await.map(|it| it.to_string()).as_deref(), Some("no node has GPU 1"));
    scene.placement.lose_cluster("its side-car ended");
    let error = placing.await.expect("no panic").expect_err("no place");
    assert_eq!(error, LaunchError::Spawn("its side-car ended".to_owned()));
    assert_eq!(scene.order().await["do"], "end");
    assert_eq!(scene.placement.joined().await, Err("its side-car ended".to_owned()));
}

#[tokio::test]
async fn a_stranger_is_turned_away() {
    let mut scene = Scene::new().await;
    let (placing, order) = scene.ask("t", progress()).await;
    let mut stranger = dial(&order, "guessed").await;
    let read = timeout(PATIENCE, stranger.read(&mut [0; 1])).await.expect("in time");
    assert!(read.is_err() || read.is_ok_and(|read| read == 0));
    placing.abort();
}
