//! A listener's way from a request to its answer: find the endpoint, let it answer, stamp, note.
//!
//! Apart from `accept`, which moves bytes, and from `rest`, where each endpoint lives. All server of a
//! server share one [`ServerState`].

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use http::header::{AUTHORIZATION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use jitney_engine::Engine;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::access::AccessRecord;
use crate::auth::Gate;
use crate::body::RequestBody;
use crate::config::{ConnectionAge, ServerConfig};
use crate::connection::{ConnectionStage, Peer};
use crate::errors::Problem;
use crate::grpc::GrpcServices;
use crate::handles;
use crate::plugins::Plugins;
use crate::query::RequestFields;
use crate::request_id::RequestUuid;
use crate::respond::{self, CorsHeaders, HttpResponse};
use crate::rest::{
    definitions, describe_api, health, inference, management, metrics, plugged, sagemaker, token,
    workflow,
};
use crate::route::{self, Apis, Route};

/// What all server share.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) engine: Arc<Engine>,
    /// Connections so far.
    pub(crate) peers: AtomicU64,
    /// How handles share the queues of models.
    pub(crate) rooms: handles::Rooms,
    cors: CorsHeaders,
}

impl ServerState {
    pub(crate) fn new(config: ServerConfig, engine: Arc<Engine>) -> Self {
        let cors = CorsHeaders::new(&config.cors);
        Self { config, engine, peers: AtomicU64::new(1), rooms: handles::Rooms::default(), cors }
    }
}

/// One listener's view of the state.
pub(crate) struct Listener {
    pub(crate) state: Arc<ServerState>,
    pub(crate) apis: Apis,
    /// Room for connections, shared by the listeners of a plane.
    pub(crate) connections: Arc<Semaphore>,
    /// What the listener offers when it speaks gRPC instead of HTTP/1.1.
    pub(crate) grpc: Option<GrpcListener>,
}

/// A listener's gRPC side.
pub(crate) struct GrpcListener {
    pub(crate) services: Arc<GrpcServices>,
    pub(crate) age: ConnectionAge,
}

impl Listener {
    /// Answers a request, whatever becomes of it.
    pub(crate) async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> HttpResponse {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let id = RequestUuid::fresh();
        let body = RequestBody::new(body, parts.headers.contains_key(EXPECT));
        let context = RequestContext {
            state: &self.state,
            apis: self.apis,
            peer,
            parts: &parts,
            id,
            started,
        };
        let mut reply = match context.dispatch(body).await {
            Ok(reply) => reply,
            Err(problem) => respond::problem(&problem),
        };
        respond::stamp(&mut reply, id.header(), &self.state.cors);
        self.note(peer, &parts, reply.status(), started);
        reply
    }

    fn note(&self, peer: &Peer, parts: &Parts, status: StatusCode, started: Instant) {
        if status != StatusCode::SWITCHING_PROTOCOLS {
            self.state.config.meter.responded(status);
        }
        if let Some(log) = &self.state.config.access_log {
            log.write(&AccessRecord {
                address: &peer.address,
                method: &parts.method,
                uri: &parts.uri,
                version: parts.version,
                status: status.as_u16(),
                took: started.elapsed(),
            });
        }
    }
}

/// One request while it is being answered.
pub(crate) struct RequestContext<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) apis: Apis,
    pub(crate) peer: &'a Peer,
    pub(crate) parts: &'a Parts,
    pub(crate) id: RequestUuid,
    /// When its head had arrived.
    pub(crate) started: Instant,
}

impl RequestContext<'_> {
    /// Predictions stay in this future; what is rare and waits is boxed, so that it stays small.
    async fn dispatch(&self, body: RequestBody) -> Result<HttpResponse, Problem> {
        let path: Cow<'_, str> = route::decode(self.parts.uri.path());
        let route = self.route(&path);
        self.pass(&route)?;
        if let Some(plugins) = &self.state.config.plugins {
            Box::pin(plugged::authorize(self, plugins, &route)).await?;
        }
        match route {
            Route::Predict(route) => inference::predict(self, body, route).await,
            Route::Invocations => Box::pin(inference::invoke(self, body)).await,
            Route::RunWorkflow(name) => Box::pin(workflow::run(self, body, name)).await,
            Route::Handle => handles::upgrade(self),
            Route::SagemakerPing => sagemaker::ping(&self.state.engine),
            Route::ExecutionParameters => Ok(sagemaker::execution_parameters(self)),
            Route::Ping => Ok(health::ping(&self.state.engine)),
            Route::Description => Ok(describe_api::listener(self)),
            Route::PredictDescription(target) => describe_api::predictions(self, target),
            Route::ManageDescription(target) => describe_api::management(self, target),
            Route::OipLive => Ok(health::oip_live()),
            Route::OipReady => Ok(health::oip_ready(&self.state.engine)),
            Route::OipServer => Ok(health::oip_server(&self.state.config.server_version)),
            Route::OipVersions => Ok(health::oip_versions()),
            Route::List => Ok(management::list(self)),
            Route::Register => Box::pin(management::register(self, body)).await,
            Route::Describe(target) => Box::pin(management::describe(self, target)).await,
            Route::Batching(target) => Box::pin(management::batching(self, target)).await,
            Route::Scale(target) => Box::pin(management::scale(self, target)).await,
            Route::Unregister(target) => Box::pin(management::unregister(self, target)).await,
            Route::SetDefault { model, version } => management::set_default(self, model, version),
            Route::ListWorkflows => Ok(management::list_workflows(self)),
            Route::RegisterWorkflow => Box::pin(management::register_workflow(self, body)).await,
            Route::DescribeWorkflow(name) => management::describe_workflow(self, name),
            Route::UnregisterWorkflow(name) => {
                Box::pin(management::unregister_workflow(self, name)).await
            }
            Route::ModelReady(model) => management::ready(self, model),
            Route::RenewToken => token::renew(self),
            Route::OpenApi => Ok(definitions::document(self)),
            Route::Docs => Ok(definitions::page()),
            Route::Metrics => Ok(metrics::page(self)),
            Route::MethodNotAllowed => Err(Problem::method_not_allowed()),
            Route::NotFound => Box::pin(plugged::answer(self, &path, body)).await,
        }
    }

    /// Where the path leads. A plugin's own goes before a model's bare name.
    fn route<'path>(&self, path: &'path str) -> Route<'path> {
        let plugged = |plugins: &Plugins| plugins.endpoint(self.apis, path).is_some();
        match &self.state.config.plugins {
            Some(plugins) if self.apis.natural && plugged(plugins) => Route::NotFound,
            _ => route::route(self.apis, &self.parts.method, path),
        }
    }

    /// Whether the request's token opens this route; no body has been read yet.
    fn pass(&self, route: &Route<'_>) -> Result<(), Problem> {
        let Some(tokens) = &self.state.config.tokens else { return Ok(()) };
        let authorization = self.parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        tokens.admit(Gate::of(self.apis, route), authorization)
    }

    /// The whole body, within the limit and the client's pace.
    pub(crate) async fn read(&self, body: RequestBody) -> Result<Bytes, Problem> {
        self.peer.enter(ConnectionStage::Body);
        let read = body.read(self.state.config.max_request_bytes).await;
        self.peer.enter(ConnectionStage::Busy);
        read
    }

    /// The fields of the query.
    pub(crate) fn query(&self) -> RequestFields {
        RequestFields::from_query(self.parts.uri.query())
    }
}
