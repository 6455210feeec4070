//! A server on free ports with the embedded model, and a client that speaks raw HTTP, so that tests
//! can also say what no honest client would.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jitney_engine::settings::{ModelDefaults, RegisterOptions};
use jitney_engine::store::StoreConfig;
use jitney_engine::{Engine, EngineConfig, python};
use jitney_net::Bind;
use jitney_server::{ServerAddresses, ServerConfig, ServerParts};
use jitney_settings::model::MAX_BATCH_SIZE;
use jitney_settings::{LogFormat, SettingSource, Values};
use jitney_telemetry::{AccessLog, WriteTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running server.
pub struct Server {
    pub engine: Arc<Engine>,
    pub addresses: ServerAddresses,
    pub log: Sink,
    end: watch::Sender<bool>,
    planes: Vec<JoinHandle<std::io::Result<()>>>,
    scratch: tempfile::TempDir,
}

/// What the access log wrote.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn any_port() -> Bind {
    Bind::Tcp(([127, 0, 0, 1], 0).into())
}

/// A configuration for tests: free ports, the model API on, impatient.
pub fn config() -> ServerConfig {
    ServerConfig {
        inference: any_port(),
        management: any_port(),
        metrics: Some(any_port()),
        grpc_inference: Some(any_port().into()),
        grpc_management: Some(any_port().into()),
        max_request_bytes: 100_000,
        model_api: true,
        shutdown_grace: Duration::from_secs(5),
        ..ServerConfig::default()
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::with(config()).await
    }

    pub async fn with(config: ServerConfig) -> Self {
        Self::with_parts(config, ServerParts::default()).await
    }

    pub async fn with_parts(config: ServerConfig, mut parts: ServerParts) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let engine = engine(scratch.path().to_owned());
        let log = Sink::default();
        parts.access_log = Some(Arc::new(
            AccessLog::new(Box::new(log.clone()), WriteTime::Soon, LogFormat::Text).unwrap(),
        ));
        let server = jitney_server::Server::new(config, parts, Arc::clone(&engine), 2).unwrap();
        server.bind(&mut Default::default()).unwrap();
        let server = Arc::new(server);
        let (end, ended) = watch::channel(false);
        let mut planes = Vec::new();
        for index in 0..2 {
            let (server, ended) = (Arc::clone(&server), over(ended.clone()));
            planes.push(tokio::spawn(async move { server.run_data(index, ended).await }));
        }
        let (theirs, ended) = (Arc::clone(&server), over(ended));
        planes.push(tokio::spawn(async move { theirs.run_admin(ended).await }));
        let addresses = server.addresses().clone();
        Self { engine, addresses, log, end, planes, scratch }
    }

    /// Registers the embedded model and waits for its worker.
    pub async fn with_magika(self) -> Self {
        let model = jitney_onnx::embedded::magika().unwrap();
        let options = RegisterOptions {
            url: "magika".to_owned(),
            at_startup: true,
            // Before it is ready it runs at every size.
            settings: Values::default().with(&MAX_BATCH_SIZE, 8_u32, SettingSource::Default),
            ..RegisterOptions::default()
        };
        let registered = self.engine.register_local(model, options).await.unwrap();
        registered.model.scale(1, 1).await.unwrap();
        self
    }

    /// The path of a model directory that is not started.
    pub fn model_dir(&self, name: &str, version: &str) -> String {
        let dir = self.scratch.path().join("store").join(format!("{name}_{version}"));
        std::fs::create_dir_all(dir.join("MAR-INF")).unwrap();
        std::fs::write(dir.join("handler.py"), "def handle(data, context):\n    return data\n")
            .unwrap();
        let manifest = format!(
            r#"{{"runtime": "python", "model": {{"modelName": "{name}", "handler": "handler.py",
                "modelVersion": "{version}"}}}}"#
        );
        std::fs::write(dir.join("MAR-INF/MANIFEST.json"), manifest).unwrap();
        dir.to_str().unwrap().to_owned()
    }

    pub fn inference(&self) -> SocketAddr {
        tcp(&self.addresses.inference)
    }

    pub fn management(&self) -> SocketAddr {
        tcp(&self.addresses.management)
    }

    pub fn metrics(&self) -> SocketAddr {
        tcp(self.addresses.metrics.as_ref().unwrap())
    }

    pub fn grpc_inference(&self) -> SocketAddr {
        tcp(self.addresses.grpc_inference.as_ref().unwrap())
    }

    pub fn grpc_management(&self) -> SocketAddr {
        tcp(self.addresses.grpc_management.as_ref().unwrap())
    }

    /// Tells every listener to end.
    pub fn begin_end(&self) {
        self.end.send_replace(true);
    }

    /// Waits until every listener has ended.
    pub async fn ended(self) {
        for plane in self.planes {
            plane.await.unwrap().unwrap();
        }
    }
}

async fn over(mut ended: watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

fn engine(scratch: PathBuf) -> Arc<Engine> {
    let store = StoreConfig {
        model_store: Some(scratch.join("store")),
        scratch,
        cache: None,
        limits: Default::default(),
        url_allowed: Box::new(|_| false),
        remote: None,
    };
    // Kept between tests: hundreds of files for each would cost more than most of the tests.
    let packages = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages"));
    let python = python::PythonConfig {
        package_cache: packages,
        ..python::PythonConfig::bare("python3".into())
    };
    let config = EngineConfig {
        defaults: ModelDefaults::default(),
        limits: Default::default(),
        memory: u64::MAX,
        gpu_memory: None,
        store,
        workflow_store: None,
        repository: Default::default(),
        python,
        program: None,
        local: Some(jitney_onnx::RUNTIME),
        local_options: Default::default(),
        first_worker_id: 9000,
    };
    Engine::start(config, vec![tokio::runtime::Handle::current()]).unwrap()
}

fn tcp(bind: &Bind) -> SocketAddr {
    match bind {
        Bind::Tcp(address) | Bind::Tls(address) => *address,
        Bind::Unix(path) => panic!("{} is no TCP address", path.display()),
    }
}

/// An answer, read to the end of its connection.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl HttpResponse {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// Status, type and message of an error.
    pub fn error(&self) -> (u16, String, String) {
        let json = self.json();
        assert_eq!(json["code"], self.status);
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        (self.status, text("type"), text("message"))
    }
}

/// Sends these very bytes and reads until the server closes.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    talk(TcpStream::connect(address).await.unwrap(), bytes).await
}

/// Sends these very bytes on this connection and reads until the server closes it.
pub async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is still an answer.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// One request on a connection of its own.
pub async fn ask(address: SocketAddr, method: &str, path: &str) -> HttpResponse {
    send(address, method, path, &[], b"").await
}

/// One request with headers and a body on a connection of its own.
pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    bytes += &format!("Content-Length: {}\r\n\r\n", body.len());
    let bytes = [bytes.as_bytes(), body].concat();
    HttpResponse::parse(&raw(address, &bytes).await)
}
