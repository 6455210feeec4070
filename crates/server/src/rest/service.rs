//! HTTP on one connection: a request comes in, its route is found, an endpoint answers, the answer
//! is logged. The endpoints are in the files beside this one. hyper reads and writes what is not plain.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, EXPECT, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use super::context::{ConnectionContext, RequestContext};
use super::mounted::ClaimedPath;
use super::{
    admin, authorize, compress, dashboard, embeddings, health, inference, logs, management,
    mounted, open_inference, openapi, overview, plugins, repository, shared_memory, traced, v1,
};
use crate::access_log::{AccessRecord, RecordNames};
use crate::auth::Gate;
use crate::body::{READ_BUFFER, RequestBody};
use crate::compression::Coding;
use crate::connection::{ConnectionStage, HandleUpgrade, ListenerSignal, WatchedStream, log_end};
use crate::dialect::Dialect;
use crate::errors::{ErrorCode, Problem};
use crate::handles;
use crate::metrics::{LOAD_METRICS, LoadFormat};
use crate::plugins::{ApiKind, GuardedOperation, Intent, PluginEndpoint, Plugins};
use crate::request_id::XRequestId;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{self, ModelRef, OpenInferenceRoute, Route};
use crate::shown_uri::ShownUri;
use crate::state::ServerState;

/// Largest head of a request, and hyper's read buffer with it.
pub(super) const HEAD_BYTES_MAX: usize = READ_BUFFER;

/// Serves a connection, of which `ahead` was read before, until it ends or its listener does. Returns the
/// connection if its last request upgraded it to a handle.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    ahead: Bytes,
    context: ConnectionContext<'_>,
    signals: &mut watch::Receiver<ListenerSignal>,
) -> Option<HandleUpgrade> {
    let peer = context.peer;
    let watched = WatchedStream::new(TokioIo::new(stream), ahead, Arc::clone(peer));
    let service = service_fn(|request: Request<Incoming>| answer(context, request));
    let connection = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(watched, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let (mut seen, mut closing) = (None, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                log_end(peer, ended);
                return peer.upgraded();
            }
            signal = signals.changed() => match (signal, *signals.borrow_and_update()) {
                (Ok(()), ListenerSignal::Tick) if !peer.stalled(&mut seen) => {}
                (Ok(()), ListenerSignal::Tick) => {
                    tracing::debug!(peer = peer.address, "the client sends too slowly");
                    return None;
                }
                (Ok(()), ListenerSignal::End) | (Err(_), _) => break,
            },
            () = peer.open.close_asked(), if !closing => {
                tracing::debug!(peer = peer.address, "closed, idle for long");
                if peer.awaits_head() {
                    return None;
                }
                connection.as_mut().graceful_shutdown();
                closing = true;
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    log_end(peer, connection.await);
    None
}

/// Answers a request, whatever becomes of it. This future lives inside hyper's connection: it is
/// dropped when the client goes away, and the call to the model with it.
async fn answer(
    connection: ConnectionContext<'_>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    let ConnectionContext { state, peer, .. } = connection;
    peer.enter(ConnectionStage::Busy);
    let (mut parts, body) = request.into_parts();
    let body = RequestBody::new(body, parts.headers.contains_key(EXPECT));
    let body = coded(state, &mut parts.headers, body);
    let mut reply = respond(connection, &parts, Ok(body)).await;
    // A server that is about to end lets its clients go to another one between two requests.
    if peer.open.is_needed() || state.engine.draining() {
        respond::close(&mut reply);
    }
    if !reply.body_mut().keep_busy(peer) {
        peer.enter(ConnectionStage::Idle);
    }
    Ok(reply)
}

/// The body with what the headers say of how it is compressed, which they then say no more.
pub(super) fn coded(
    state: &ServerState,
    headers: &mut HeaderMap,
    body: RequestBody,
) -> RequestBody {
    if state.config.decompress_requests && headers.contains_key(CONTENT_ENCODING) {
        body.coded(Coding::take(headers))
    } else {
        body
    }
}

/// The answer to a request, with all its headers. The body is an error where the head is not valid.
pub(super) async fn respond(
    connection: ConnectionContext<'_>,
    parts: &Parts,
    body: Result<RequestBody, Problem>,
) -> HttpResponse {
    let state = connection.state;
    let id = XRequestId::of(state.config.dialect, &parts.headers);
    let started = Instant::now();
    let trace = traced::begin(connection, parts, &id, started);
    let context = RequestContext::new(connection, parts, &id, trace.as_ref(), started);
    let answered = match body {
        Ok(body) => dispatch(&context, body).await,
        Err(problem) => Err(problem),
    };
    let mut reply = answered.unwrap_or_else(|problem| failure(&context, &problem));
    respond::stamp(&mut reply, context.id.header(), &state.default_headers);
    if compress::is_candidate(state, &reply) {
        Box::pin(compress::compress(&mut reply, &parts.headers)).await;
    }
    log(&context, reply.status(), context.started.elapsed());
    if let Some(trace) = trace {
        reply.body_mut().keep_trace(trace);
    }
    reply
}

/// A failure as the client's protocol names it.
pub(super) fn failure(context: &RequestContext<'_>, problem: &Problem) -> HttpResponse {
    let path = context.parts.uri.path();
    let mut reply = match context.state.config.dialect {
        Dialect::TorchServe => respond::problem(problem, None),
        Dialect::Jitney if path.starts_with("/v2/") || path.starts_with("/v1/") => {
            respond::open_problem(problem)
        }
        Dialect::Jitney => respond::problem(problem, Some(context.id.text())),
    };
    if problem.code == ErrorCode::MethodNotAllowed {
        let engine = &context.state.engine;
        let without_body = |target: ModelRef<'_>| {
            engine.model(target.model, target.version).is_ok_and(|model| model.tag().python)
        };
        let path = route::decode(path);
        let methods = match mounted::find(context, &path) {
            Some(claimed) => claimed.allowed(),
            None => route::allowed(context.apis, &path, without_body),
        };
        respond::allow(&mut reply, &methods);
    }
    reply
}

/// Counts the answer and writes its line of the access log.
pub(super) fn log(context: &RequestContext<'_>, status: StatusCode, took: Duration) {
    let RequestContext { state, peer, parts, id, trace, .. } = context;
    if status != StatusCode::SWITCHING_PROTOCOLS {
        state.config.meter.responded(status);
    }
    if let Some(trace) = trace {
        traced::end(trace, status);
    }
    if let Some(log) = &state.config.access_log {
        log.write(&AccessRecord {
            address: &peer.address,
            method: &parts.method,
            uri: &ShownUri(&parts.uri),
            version: parts.version,
            status: status.as_u16(),
            took,
            names: RecordNames::of(state.config.dialect, id, *trace),
        });
    }
}

/// Finds where the request goes and whether it may, before its body is read.
pub(super) async fn dispatch(context: &RequestContext<'_>, body: RequestBody) -> HttpResult {
    check_host(context.parts)?;
    let path: Cow<'_, str> = route::decode(context.parts.uri.path());
    let claimed = mounted::find(context, &path);
    let (route, endpoint) = destination(context, &path, claimed.as_ref());
    let gate = endpoint.map_or_else(|| Gate::of(context.apis, &route), PluginEndpoint::gate);
    if matches!(gate, Gate::Management | Gate::Renewal) {
        check_browser(context, gate, &route)?;
    }
    check_token(context, gate)?;
    let answered = match context.state.config.plugins.as_deref() {
        Some(plugins) if plugins.guarded() => {
            Box::pin(call_authorized(context, plugins, gate, route, endpoint, body)).await
        }
        Some(_) | None => call(context, route, endpoint, body).await,
    };
    match LoadFormat::asked(&context.parts.headers).filter(|_| gate == Gate::Inference) {
        None => answered,
        Some(format) => Ok(with_load(context, answered, format)),
    }
}

/// The answer with a report of how loaded the server is. Who is rejected wants it most.
#[cold]
fn with_load(
    context: &RequestContext<'_>,
    answered: HttpResult,
    format: LoadFormat,
) -> HttpResponse {
    let mut reply = answered.unwrap_or_else(|problem| failure(context, &problem));
    if let Some(report) = context.state.config.meter.load_report(&context.state.engine, format) {
        reply.headers_mut().insert(LOAD_METRICS, report);
    }
    reply
}

/// Asks the operator's plugin first. For `/invocations` and embeddings the body may have to name the model,
/// so those endpoints ask by themselves.
async fn call_authorized(
    context: &RequestContext<'_>,
    plugins: &Plugins,
    gate: Gate,
    route: Route<'_>,
    endpoint: Option<&PluginEndpoint>,
    body: RequestBody,
) -> HttpResult {
    if route == Route::Invocations {
        return inference::invoke(context, Some(plugins), body).await;
    }
    if route == Route::Embeddings {
        return embeddings::create(context, Some(plugins), body).await;
    }
    let query = context.query();
    let intent = match endpoint {
        Some(_) => Some(Intent::plain(GuardedOperation::Endpoint)),
        None => authorize::intent(context, &route, &query),
    };
    let Some(intent) = intent else { return call(context, route, endpoint, body).await };
    let listener = ApiKind::behind(gate);
    let authorized = authorize::authorize(context, plugins, listener, intent).await?;
    call(&authorized.context(context), route, endpoint, body).await
}

/// Calls the endpoint of the request's route. Predictions stay in this future; what is rare and waits
/// is boxed, so that the future stays small.
async fn call(
    context: &RequestContext<'_>,
    route: Route<'_>,
    endpoint: Option<&PluginEndpoint>,
    body: RequestBody,
) -> HttpResult {
    let (state, engine) = (context.state, &context.state.engine);
    match route {
        Route::Predict(route) if route.open_inference => {
            Box::pin(open_inference::predict(context, body, route)).await
        }
        Route::Predict(route) => inference::predict(context, body, route).await,
        Route::Mounted(route) => Box::pin(mounted::call(context, body, route)).await,
        Route::Instances(route) => Box::pin(v1::predict(context, body, route)).await,
        Route::Embeddings => Box::pin(embeddings::create(context, None, body)).await,
        Route::Invocations => Box::pin(inference::invoke(context, None, body)).await,
        Route::RunWorkflow(name) => Box::pin(inference::run_workflow(context, body, name)).await,
        Route::Handle => {
            handles::upgrade(context.parts, context.peer, authorize::call_guard(context))
        }
        Route::SagemakerPing => health::sagemaker_ping(engine),
        Route::ExecutionParameters => Ok(health::execution_parameters(state)),
        Route::Ping => Ok(health::ping(context)),
        Route::OpenInference(OpenInferenceRoute::SharedMemory(route)) => {
            Box::pin(shared_memory::answer(context, route, body)).await
        }
        Route::OpenInference(route) => open_inference::answer(context, route),
        Route::OipVersions => Ok(health::oip_versions()),
        Route::Home => dashboard::home(context),
        Route::Dashboard(file) => dashboard::file(context, file),
        Route::Overview => Ok(overview::document(context)),
        Route::OverviewStream => overview::stream(context),
        Route::Logs => logs::last(context),
        Route::LogStream => logs::follow(context),
        Route::LogLevel { changes } => Box::pin(logs::level(context, changes, body)).await,
        Route::Description => Ok(openapi::listener(context)),
        Route::PredictDescription(target) => openapi::predictions(engine, target),
        Route::ManageDescription(target) => openapi::management(engine, target),
        Route::OpenApi => Ok(openapi::models(engine)),
        Route::Docs => Ok(openapi::docs_page()),
        Route::RepositoryIndex => Box::pin(repository::index(context, body)).await,
        Route::RepositoryLoad(model) => Box::pin(repository::load(context, body, model)).await,
        Route::RepositoryUnload(model) => Box::pin(repository::unload(context, body, model)).await,
        Route::List => Ok(management::list(context)),
        Route::Register => Box::pin(management::register(context, body)).await,
        Route::Describe(target) => Box::pin(management::describe(context, target)).await,
        Route::Batching(target) => Box::pin(management::batching(context, target)).await,
        Route::Statistics(target) => management::statistics(context, target),
        Route::Scale(target) => Box::pin(management::scale(context, target)).await,
        Route::Unregister(target) => Box::pin(management::unregister(context, target)).await,
        Route::SetDefault { model, version } => management::set_default(context, model, version),
        Route::ListWorkflows => Ok(management::list_workflows(context)),
        Route::RegisterWorkflow => Box::pin(management::register_workflow(context, body)).await,
        Route::DescribeWorkflow(name) => management::describe_workflow(context, name),
        Route::UnregisterWorkflow(name) => {
            Box::pin(management::unregister_workflow(context, name)).await
        }
        Route::Alive => Ok(v1::alive()),
        Route::ModelNames => Ok(v1::models(state)),
        Route::ModelReady(target) => v1::model(context, target),
        Route::RenewToken => admin::renew_token(context),
        Route::Metrics => Ok(admin::metrics(context)),
        Route::MethodNotAllowed => Err(Problem::method_not_allowed()),
        Route::NotFound => Box::pin(plugins::answer(context, endpoint, body)).await,
    }
}

/// One Host header, or none before HTTP/1.1: with two, this server and a proxy before it could believe
/// different ones.
fn check_host(parts: &Parts) -> Result<(), Problem> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => Ok(()),
        (None, _) if parts.version != Version::HTTP_11 => Ok(()),
        (None, _) => Err(invalid_head("An HTTP/1.1 request needs a Host header.")),
        (Some(_), Some(_)) => Err(invalid_head("A request has one Host header, not several.")),
    }
}

fn invalid_head(message: &str) -> Problem {
    Problem::new(ErrorCode::InvalidHead, message)
}

/// Where a path leads: to a route, or to a plugin that answers it. A plugin's path goes before a model's
/// bare name, and so does what models claim for themselves.
fn destination<'a>(
    context: &RequestContext<'a>,
    path: &'a str,
    claimed: Option<&'a ClaimedPath>,
) -> (Route<'a>, Option<&'a PluginEndpoint>) {
    let route = route::route(context.apis, &context.parts.method, path);
    let plugins = context.state.config.plugins.as_ref();
    let plugins = plugins.filter(|_| route == Route::NotFound || context.apis.natural);
    match plugins.and_then(|plugins| plugins.endpoint(context.apis, path)) {
        Some(endpoint) => (Route::NotFound, Some(endpoint)),
        None => (claimed.map_or(route, ClaimedPath::route), None),
    }
}

/// Keeps web pages of other sites away from management, before the body is read. A renewal is a change
/// although it is a GET, and a stream takes one of few places.
fn check_browser(
    context: &RequestContext<'_>,
    gate: Gate,
    route: &Route<'_>,
) -> Result<(), Problem> {
    let Parts { method, headers, .. } = context.parts;
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
        && gate != Gate::Renewal
        && !matches!(route, Route::OverviewStream | Route::LogStream);
    let allowed = context.state.config.cors.origin.as_deref();
    context.browsers.check(headers, !reads, allowed)
}

/// Checks the request's token, before its body is read.
fn check_token(context: &RequestContext<'_>, gate: Gate) -> Result<(), Problem> {
    let Some(tokens) = &context.state.config.tokens else { return Ok(()) };
    let authorization = context.parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    tokens.admit(gate, authorization)
}
