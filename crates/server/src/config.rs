//! Everything that can be set about the server, as plain values that the cli fills in. What lives is in `ServerParts`.

use std::time::Duration;

use jitney_jobs::JobsConfig;
use jitney_net::tls::Tls;
use jitney_net::{Bind, ConnectionAge};
use jitney_settings::Dialect;
use jitney_settings::server::{
    DRAIN_TIMEOUT, FullStatus, IDLE_TIMEOUT, JOBS_COUNT, JOBS_DIR, JOBS_KEEP, JOBS_PARALLEL,
    JOBS_SIZE, MAX_CONNECTIONS, MAX_REQUEST_SIZE,
};

use crate::route::RouteAliases;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where predictions are asked for.
    pub inference: Bind,
    /// A second address for predictions, if there is one.
    pub also_inference: Option<Bind>,
    /// Where models are managed; one listener serves both when it equals `inference`.
    pub management: Bind,
    /// Where Prometheus reads, if anywhere.
    pub metrics: Option<Bind>,
    /// Where predictions are asked for over gRPC, if anywhere.
    pub grpc_inference: Option<GrpcBind>,
    /// A second address for predictions over gRPC, by the Open Inference Protocol, if there is one.
    pub also_grpc: Option<GrpcBind>,
    /// Where models are managed over gRPC, if anywhere; one listener serves both when they are equal.
    pub grpc_management: Option<GrpcBind>,
    /// Largest body of a request, or message of a gRPC client.
    pub max_request_bytes: u64,
    /// Connections at a time, for the data plane and for the admin plane each; one more for each of
    /// their listeners may slip in. The longest idle one is closed for a further client, which waits in the
    /// system's backlog if there is none.
    pub max_connections: usize,
    /// How many files and sockets the process may have open, if that is limited; connections stay below.
    pub open_files: Option<u64>,
    /// How long a connection may be open without a request.
    pub idle_timeout: Duration,
    /// How long a request's head may take to arrive, and its body may stand still.
    pub head_timeout: Duration,
    /// How long requests under way may take once the server ends.
    pub shutdown_grace: Duration,
    /// Whether models are managed where predictions are asked for, whichever port that is; else by the addresses.
    pub one_port: bool,
    /// Whether models may be registered and unregistered over the network.
    pub model_api: bool,
    /// Whether the Open Inference Protocol's health and metadata endpoints exist.
    pub oip: bool,
    /// Whether clients that load a model may set sizes and counts of it.
    pub client_config: bool,
    /// Whether clients may pass tensors in shared memory.
    pub client_shared_memory: bool,
    /// Whether models answer under their own names, with `/docs` and `/openapi.json` beside them.
    pub natural: bool,
    /// Whether SageMaker's health and execution parameters exist.
    pub sagemaker: bool,
    /// Paths of predictions and of health that the server's platform chose.
    pub aliases: RouteAliases,
    /// Whose messages and health rules it follows.
    pub dialect: Dialect,
    /// Whether answers have a content type where their handler set none.
    pub content_types: bool,
    /// Whether compressed bodies of requests are decompressed; else they reach the model as they came.
    pub decompress_requests: bool,
    /// Whether answers are compressed where the client asks for it.
    pub compress_answers: bool,
    /// The status of a request that finds a full queue.
    pub full_status: FullStatus,
    /// Headers for scripts of other origins.
    pub cors: Cors,
    /// The certificate of the listeners that speak HTTPS.
    pub tls: Option<Tls>,
    /// Where requests are kept that are answered later.
    pub jobs: JobsConfig,
    /// The version that the API description and `/v2` tell.
    pub server_version: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let loopback = |port| Bind::Tcp(([127, 0, 0, 1], port).into());
        Self {
            inference: loopback(8080),
            also_inference: None,
            management: loopback(8081),
            metrics: Some(loopback(8082)),
            grpc_inference: None,
            also_grpc: None,
            grpc_management: None,
            max_request_bytes: MAX_REQUEST_SIZE.default_value(),
            max_connections: MAX_CONNECTIONS.default_value(),
            open_files: None,
            idle_timeout: IDLE_TIMEOUT.default_value(),
            head_timeout: Duration::from_secs(30),
            shutdown_grace: DRAIN_TIMEOUT.default_value(),
            one_port: false,
            model_api: false,
            oip: false,
            client_config: false,
            client_shared_memory: false,
            natural: false,
            sagemaker: false,
            aliases: RouteAliases::default(),
            dialect: Dialect::default(),
            content_types: false,
            decompress_requests: false,
            compress_answers: false,
            full_status: FullStatus::default(),
            cors: Cors::default(),
            tls: None,
            jobs: JobsConfig {
                folder: JOBS_DIR.default_value(),
                database: None,
                count_max: JOBS_COUNT.default_value(),
                bytes_max: JOBS_SIZE.default_value(),
                keep: JOBS_KEEP.default_value(),
                parallel: JOBS_PARALLEL.default_value(),
            },
            server_version: "0.12.0".to_owned(),
        }
    }
}

/// A gRPC listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcBind {
    /// Where it listens.
    pub bind: Bind,
    /// How old its connections get.
    pub age: ConnectionAge,
}

impl From<Bind> for GrpcBind {
    fn from(bind: Bind) -> Self {
        Self { bind, age: ConnectionAge::default() }
    }
}

/// What pages of other origins may do; nothing by default. Under `jitney torchserve` these are the values of the
/// `Access-Control-Allow-*` headers of every answer.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    /// The origins, separated by commas.
    pub origin: Option<String>,
    /// The methods that they may use.
    pub methods: Option<String>,
    /// The headers that they may send.
    pub headers: Option<String>,
}
