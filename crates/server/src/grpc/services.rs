//! The gRPC services of one listener: finds the service by the request's path, checks the key that the
//! method needs, hands the request over and logs how it ended.
//!
//! hyper serves HTTP/2 here and tonic only reads the messages: its own server would bring a router and a
//! second accept loop.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use jitney_engine::admission::CutReason;
use jitney_net::connection::{Peer, counted_head};
use jitney_net::request_id::XRequestId;
use jitney_proto::inference::inference_ap_is_service_server::InferenceApIsServiceServer;
use jitney_proto::kserve::grpc_inference_service_server as kserve;
use jitney_proto::management::management_ap_is_service_server::ManagementApIsServiceServer;
use jitney_proto::openinference::grpc_inference_service_server as openinference;
use jitney_telemetry::AuditOutcome;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use super::call_log::{self, CallBody, CallLog, LoggedBody};
use super::compression::{self, choose_answer, take_encoding};
use super::message_body::MessageBody;
use super::methods::GrpcMethod;
use super::request::GrpcCaller;
use super::{health, inference, management, oip, status, traced, unary};
use crate::audit::{AuditedAttempt, AuditedCaller};
use crate::auth::{BrowserRule, Gate, GuardedOperation as Op};
use crate::errors::Problem;
use crate::keys::Caller;
use crate::plugins::{ApiKind, CallGuard, Intent, Plugins};
use crate::route::{Apis, PathNames};
use crate::state::ServerState;

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
type ServiceFn = Box<dyn Fn(Request<MessageBody>) -> Answering + Send + Sync>;

/// The services of one listener, the busiest first.
pub(crate) struct GrpcServices {
    state: Arc<ServerState>,
    apis: Apis,
    browsers: BrowserRule,
    services: Vec<GrpcService>,
}

/// A service and who answers its calls.
struct GrpcService {
    name: &'static str,
    /// Whether its messages name models, and are authorized one by one.
    by_message: bool,
    answer: ServiceFn,
}

impl GrpcServices {
    /// The services of these APIs; health and reflection are always among them.
    pub(crate) fn new(state: &Arc<ServerState>, apis: Apis, browsers: BrowserRule) -> Self {
        let mut services = Self { state: Arc::clone(state), apis, browsers, services: Vec::new() };
        let limit = usize::try_from(state.config.max_request_bytes).unwrap_or(usize::MAX);
        // Each service has a type of its own, and no trait has these methods.
        macro_rules! tuned {
            ($service:expr) => {
                compression::ANSWERS
                    .into_iter()
                    .fold($service.max_decoding_message_size(limit), |it, e| it.send_compressed(e))
            };
        }
        if apis.inference {
            let service = inference::TorchServeInference::new(Arc::clone(state));
            let service = InferenceApIsServiceServer::new(service);
            services.add(true, tuned!(service));
        }
        if apis.inference && apis.oip {
            let service = Arc::new(oip::OpenInferenceService::new(Arc::clone(state)));
            let ours = openinference::GrpcInferenceServiceServer::from_arc(Arc::clone(&service));
            services.add(true, tuned!(ours));
            let original = kserve::GrpcInferenceServiceServer::from_arc(service);
            services.add(true, tuned!(original));
        }
        if apis.management {
            let service = management::TorchServeManagement::new(Arc::clone(state));
            let service = ManagementApIsServiceServer::new(service);
            services.add(true, tuned!(service));
        }
        let names: Vec<_> = services.services.iter().map(|service| service.name).collect();
        let health = health::HealthService::new(Arc::clone(&state.engine), names.clone());
        services.add(false, HealthServer::new(health));
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
        self.add(false, builder().build_v1()?);
        self.add(false, builder().build_v1alpha()?);
        Ok(())
    }

    /// Adds a service. One whose messages are authorized one by one opens each as a `GrpcRequest`.
    fn add<S>(&mut self, by_message: bool, service: S)
    where
        S: Service<Request<MessageBody>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let service = move |request| Box::pin(service.clone().call(request)) as Answering;
        self.services.push(GrpcService { name: S::NAME, by_message, answer: Box::new(service) });
    }

    /// Answers a request, whatever becomes of it.
    pub(crate) async fn answer(
        &self,
        peer: &Arc<Peer>,
        mut request: Request<Incoming>,
    ) -> Result<Response<LoggedBody>, Infallible> {
        let dialect = self.state.config.dialect;
        let method = GrpcMethod::find(request.uri().path());
        let mut caller = GrpcCaller::new(dialect, request.headers(), peer.number, method.operation);
        caller.trace = traced::begin(&self.state, peer, &request, &caller);
        let log = CallLog::new(&self.state, peer, request.uri(), caller.started, caller.id.clone());
        let log = log.traced(caller.trace.clone());
        caller.who = self.state.parts.caller(peer, request.headers(), caller.started);
        let audited = self.state.parts.audit.is_some();
        let known = audited.then(|| (caller.id.clone(), caller.who.clone()));
        let attempt = known.as_ref().filter(|_| method.operation.changes());
        let attempt = attempt.map(|known| self.attempt(method, peer, known));
        caller.named = attempt.as_ref().map(|attempt| Arc::clone(&attempt.named));
        let response = match self.find(request.uri().path()) {
            None => failed(status::unknown_service(request.uri().path())),
            Some(service) => match self.admit(service, method, peer, caller, &mut request).await {
                Ok(()) => match self.by_message(request) {
                    Ok(request) => self.call(service, request).await?,
                    Err(status) => failed(status),
                },
                Err(closed) => failed(closed.into()),
            },
        };
        if let Some(known) = &known {
            self.note(attempt, method, peer, known, response.headers());
        }
        if self.state.engine.draining() {
            // The client goes to another server with its next call.
            peer.open.ask_to_close();
        }
        Ok(log.attach(response))
    }

    /// What the audit log is told of a call, once it has ended.
    #[cold]
    fn attempt<'a>(
        &'a self,
        method: &GrpcMethod,
        peer: &'a Peer,
        (id, caller): &'a (XRequestId, Caller),
    ) -> Box<AuditedAttempt<'a>> {
        let gate = method.gate(self.apis);
        let by = AuditedCaller { peer, request_id: id.text(), caller, gate };
        AuditedAttempt::begin(&self.state, method.operation, by, PathNames::default())
    }

    #[cold]
    fn note<'a>(
        &'a self,
        attempt: Option<Box<AuditedAttempt<'a>>>,
        method: &GrpcMethod,
        peer: &'a Peer,
        known: &'a (XRequestId, Caller),
        headers: &HeaderMap,
    ) {
        // A call that went well has its code behind its message.
        let code = call_log::code(headers).unwrap_or_default();
        let denied = [Code::PermissionDenied, Code::Unauthenticated].contains(&Code::from(code));
        let attempt = attempt.or_else(|| denied.then(|| self.attempt(method, peer, known)));
        let Some(mut attempt) = attempt else { return };
        let outcome = match code {
            0 => AuditOutcome::Done,
            _ if denied => AuditOutcome::Denied,
            _ => AuditOutcome::Failed,
        };
        attempt.ended = Some((code as u16, outcome));
    }

    async fn call(
        &self,
        service: &GrpcService,
        mut request: Request<MessageBody>,
    ) -> Result<Response<CallBody>, Infallible> {
        Ok(match unary::message(&mut request).await {
            Some(message) => {
                unary::answer(&self.state, request, message).await.unwrap_or_else(failed)
            }
            None => {
                choose_answer(request.body().encoding(), request.headers_mut());
                (service.answer)(request).await?.map(CallBody::Tonic)
            }
        })
    }

    /// The request with a body that takes its memory as it comes.
    fn by_message(&self, mut request: Request<Incoming>) -> Result<Request<MessageBody>, Status> {
        let limit = usize::try_from(self.state.config.max_request_bytes).unwrap_or(usize::MAX);
        let encoding = take_encoding(request.headers_mut())?;
        let admission = self.state.engine.admission();
        let head = counted_head(request.headers()).map(|bytes| admission.hold(bytes)).transpose();
        let head = head.map_err(|_| Problem::cut(CutReason::Room))?;
        let caller = self.state.parts.keys.as_ref().and_then(|_| request.extensions().get());
        let quota = caller.and_then(|caller: &GrpcCaller| caller.who.quota()).cloned();
        let body = |body| MessageBody::new(body, admission, limit, encoding).behind(head);
        Ok(request.map(|incoming| body(incoming).charged(quota)))
    }

    /// Keeps web pages away from management, checks the key or the token, if the server asks for one, then asks the
    /// operator's plugin, if one authorizes requests. What comes in messages is asked about message by
    /// message: they name the model.
    async fn admit(
        &self,
        service: &GrpcService,
        method: &GrpcMethod,
        peer: &Peer,
        mut caller: GrpcCaller,
        request: &mut Request<Incoming>,
    ) -> Result<(), Problem> {
        let (config, parts) = (&self.state.config, &self.state.parts);
        let gate = method.gate(self.apis);
        if gate == Gate::Management {
            self.browsers.check(request.headers(), true, config.cors.origin.as_deref())?;
        }
        // Messages that name models are checked one by one.
        let operation = if service.by_message { Op::Unknown } else { method.operation };
        parts.admit(&caller.who, gate, (operation, None), request.headers())?;
        caller.gate = gate;
        if let Some(plugins) = parts.plugins.as_ref().filter(|plugins| plugins.guarded()) {
            let api = ApiKind::behind(method.key.unwrap_or_else(|| Gate::of_listener(self.apis)));
            let guard = call_guard(plugins, api, peer, &caller, request);
            if service.by_message {
                caller.guard = Some(Arc::new(guard));
            } else {
                let intent = Intent::plain(caller.operation);
                Box::pin(guard.authorize(caller.id.text(), &intent)).await?;
            }
        }
        request.extensions_mut().insert(caller);
        Ok(())
    }

    fn find(&self, path: &str) -> Option<&GrpcService> {
        let (service, _method) = path.strip_prefix('/')?.split_once('/')?;
        self.services.iter().find(|it| it.name == service)
    }
}

fn failed(status: Status) -> Response<CallBody> {
    status.into_http().map(CallBody::Tonic)
}

/// Who authorizes a call or its messages.
fn call_guard(
    plugins: &Arc<Plugins>,
    listener: ApiKind,
    peer: &Peer,
    caller: &GrpcCaller,
    request: &Request<Incoming>,
) -> CallGuard {
    CallGuard {
        plugins: Arc::clone(plugins),
        listener,
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: None,
        headers: request.headers().clone(),
        client: peer.address.clone(),
        origin: caller.origin(),
    }
}
