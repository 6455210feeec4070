//! The gRPC services of one listener: finds the service by the request's path, checks the token, hands the
//! request over and logs how it ended.
//!
//! hyper serves HTTP/2 here and tonic only reads the messages: its own server would bring a router and a
//! second accept loop.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use jitney_proto::inference::inference_ap_is_service_server::InferenceApIsServiceServer;
use jitney_proto::kserve::grpc_inference_service_server as kserve;
use jitney_proto::management::management_ap_is_service_server::ManagementApIsServiceServer;
use jitney_proto::openinference::grpc_inference_service_server as openinference;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use super::call_log::{CallLog, LoggedBody};
use super::request::GrpcCaller;
use super::{health, inference, management, oip, status};
use crate::auth::Gate;
use crate::connection::Peer;
use crate::errors::Problem;
use crate::plugins::{ApiKind, PluginRequest, Plugins};
use crate::route::Apis;
use crate::state::ServerState;

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
type ServiceFn = Box<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// The services of one listener, the busiest first.
pub(crate) struct GrpcServices {
    state: Arc<ServerState>,
    gate: Gate,
    /// Whether health and readiness need no token.
    open_health: bool,
    services: Vec<(&'static str, ServiceFn)>,
}

impl GrpcServices {
    /// The services of these APIs; health and reflection are always among them.
    pub(crate) fn new(state: &Arc<ServerState>, apis: Apis) -> Self {
        let gate = match (apis.inference, apis.management) {
            (true, true) => Gate::Either,
            (true, false) => Gate::Inference,
            (false, _) => Gate::Management,
        };
        let open_health = apis.open_health;
        let mut services =
            Self { state: Arc::clone(state), gate, open_health, services: Vec::new() };
        let limit = usize::try_from(state.config.max_request_bytes).unwrap_or(usize::MAX);
        if apis.inference {
            let service = inference::TorchServeInference::new(Arc::clone(state));
            services.add(InferenceApIsServiceServer::new(service).max_decoding_message_size(limit));
        }
        if apis.inference && apis.oip {
            let service = Arc::new(oip::OpenInferenceService::new(Arc::clone(state)));
            let ours = openinference::GrpcInferenceServiceServer::from_arc(Arc::clone(&service));
            services.add(ours.max_decoding_message_size(limit));
            let original = kserve::GrpcInferenceServiceServer::from_arc(service);
            services.add(original.max_decoding_message_size(limit));
        }
        if apis.management {
            let service = management::TorchServeManagement::new(Arc::clone(state));
            services
                .add(ManagementApIsServiceServer::new(service).max_decoding_message_size(limit));
        }
        let names: Vec<_> = services.services.iter().map(|(name, _)| *name).collect();
        let health = health::HealthService::new(Arc::clone(&state.engine), names.clone());
        services.add(HealthServer::new(health));
        services.add_reflection(&names);
        services
    }

    /// Adds both versions of reflection, with which grpcurl and its like need no `.proto` files.
    fn add_reflection(&mut self, names: &[&'static str]) {
        if let Err(error) = self.try_add_reflection(names) {
            tracing::error!(%error, "gRPC reflection is not available");
        }
    }

    fn try_add_reflection(&mut self, names: &[&'static str]) -> Result<(), Error> {
        let builder = || {
            let builder = Builder::configure()
                .register_encoded_file_descriptor_set(jitney_proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .with_service_name("grpc.health.v1.Health");
            names.iter().fold(builder, |builder, name| builder.with_service_name(*name))
        };
        self.add(builder().build_v1()?);
        self.add(builder().build_v1alpha()?);
        Ok(())
    }

    fn add<S>(&mut self, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let service = move |request| Box::pin(service.clone().call(request)) as Answering;
        self.services.push((S::NAME, Box::new(service)));
    }

    /// Answers a request, whatever becomes of it.
    pub(crate) async fn answer(
        &self,
        peer: &Arc<Peer>,
        mut request: Request<Incoming>,
    ) -> Result<Response<LoggedBody>, Infallible> {
        let caller = GrpcCaller::new(peer.number);
        let log = CallLog::new(&self.state, peer, request.uri(), caller.started);
        let service = self.find(request.uri().path());
        request.extensions_mut().insert(caller);
        let admitted = match &self.state.config.plugins {
            Some(plugins) if service.is_some() => {
                Box::pin(self.authorize(plugins, peer, &request, &caller)).await
            }
            Some(_) | None => self.check_token(request.uri().path(), request.headers()),
        };
        let response = match (service, admitted) {
            (None, _) => status::unknown_service(request.uri().path()).into_http(),
            (Some(_), Err(closed)) => Status::from(closed).into_http(),
            (Some(service), Ok(())) => service(request).await?,
        };
        Ok(log.attach(response, caller.id))
    }

    /// Checks the token, if the server asks for one.
    fn check_token(&self, path: &str, metadata: &HeaderMap) -> Result<(), Problem> {
        let Some(tokens) = &self.state.config.tokens else { return Ok(()) };
        if self.open_health && Gate::is_grpc_health(path) {
            return Ok(());
        }
        tokens.admit(self.gate, metadata.get(AUTHORIZATION).map(HeaderValue::as_bytes))
    }

    /// Checks the token, then asks the operator's plugin, if one authorizes requests.
    async fn authorize(
        &self,
        plugins: &Plugins,
        peer: &Peer,
        request: &Request<Incoming>,
        caller: &GrpcCaller,
    ) -> Result<(), Problem> {
        self.check_token(request.uri().path(), request.headers())?;
        let listener = match self.gate {
            Gate::Management | Gate::Renewal => ApiKind::Management,
            Gate::Open | Gate::Inference | Gate::Either => ApiKind::Inference,
        };
        let plugin_request = PluginRequest {
            id: caller.id.text(),
            method: request.method(),
            path: request.uri().path(),
            query: None,
            headers: request.headers(),
            client: &peer.address,
            origin: caller.origin(),
        };
        plugins.authorize(plugin_request, listener).await
    }

    fn find(&self, path: &str) -> Option<&ServiceFn> {
        let (service, _method) = path.strip_prefix('/')?.split_once('/')?;
        self.services.iter().find(|(name, _)| *name == service).map(|(_, service)| service)
    }
}
