//! HTTP/1.1 on one connection: a request comes in, its route is found, an endpoint answers, the answer
//! is logged. The endpoints are in the files beside this one.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use http::header::{AUTHORIZATION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use super::context::RequestContext;
use super::{admin, health, inference, management, openapi, plugins};
use crate::access_log::AccessRecord;
use crate::auth::Gate;
use crate::body::RequestBody;
use crate::connection::{ConnectionStage, ListenerSignal, Peer, WatchedStream, log_end};
use crate::errors::Problem;
use crate::handles;
use crate::plugins::Plugins;
use crate::request_id::RequestUuid;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{self, Apis, Route};
use crate::shown_uri::ShownUri;
use crate::state::ServerState;

/// Largest head of a request, and hyper's read buffer with it.
const HEAD_BYTES_MAX: usize = 128 << 10;

/// Serves a connection until it ends or its listener does. Returns the connection if its last request
/// upgraded it to a handle.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: &Arc<Peer>,
    state: &Arc<ServerState>,
    apis: Apis,
    signals: &mut watch::Receiver<ListenerSignal>,
) -> Option<OnUpgrade> {
    let watched = WatchedStream::new(TokioIo::new(stream), Arc::clone(peer));
    let service = service_fn(|request: Request<Incoming>| answer(state, apis, peer, request));
    let connection = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(watched, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut seen = None;
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
    state: &ServerState,
    apis: Apis,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    peer.enter(ConnectionStage::Busy);
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let id = RequestUuid::fresh();
    let body = RequestBody::new(body, parts.headers.contains_key(EXPECT));
    let context = RequestContext { state, apis, peer, parts: &parts, id, started };
    let mut reply = match dispatch(&context, body).await {
        Ok(reply) => reply,
        Err(problem) => respond::problem(&problem),
    };
    respond::stamp(&mut reply, id.header(), &state.cors);
    log(state, peer, &parts, reply.status(), started);
    if !reply.body_mut().keep_busy(peer) {
        peer.enter(ConnectionStage::Idle);
    }
    Ok(reply)
}

/// Counts the answer and writes its line of the access log.
fn log(state: &ServerState, peer: &Peer, parts: &Parts, status: StatusCode, started: Instant) {
    if status != StatusCode::SWITCHING_PROTOCOLS {
        state.config.meter.responded(status);
    }
    if let Some(log) = &state.config.access_log {
        log.write(&AccessRecord {
            address: &peer.address,
            method: &parts.method,
            uri: &ShownUri(&parts.uri),
            version: parts.version,
            status: status.as_u16(),
            took: started.elapsed(),
        });
    }
}

/// Calls the endpoint of the request's route. Predictions stay in this future; what is rare and waits
/// is boxed, so that the future stays small.
async fn dispatch(context: &RequestContext<'_>, body: RequestBody) -> HttpResult {
    let (state, engine) = (context.state, &context.state.engine);
    let path: Cow<'_, str> = route::decode(context.parts.uri.path());
    let route = route_of(context, &path);
    check_token(context, &route)?;
    if let Some(plugins) = &state.config.plugins {
        Box::pin(plugins::authorize(context, plugins, &route)).await?;
    }
    match route {
        Route::Predict(route) => inference::predict(context, body, route).await,
        Route::Invocations => Box::pin(inference::invoke(context, body)).await,
        Route::RunWorkflow(name) => Box::pin(inference::run_workflow(context, body, name)).await,
        Route::Handle => handles::upgrade(context.parts, context.peer),
        Route::SagemakerPing => health::sagemaker_ping(engine),
        Route::ExecutionParameters => Ok(health::execution_parameters(state)),
        Route::Ping => Ok(health::ping(context)),
        Route::OipLive => Ok(health::oip_live()),
        Route::OipReady => Ok(health::oip_ready(context)),
        Route::OipModelReady(model) => health::oip_model_ready(context, model),
        Route::OipServer => Ok(health::oip_server(&state.config.server_version)),
        Route::OipVersions => Ok(health::oip_versions()),
        Route::Description => Ok(openapi::listener(context)),
        Route::PredictDescription(target) => openapi::predictions(engine, target),
        Route::ManageDescription(target) => openapi::management(engine, target),
        Route::OpenApi => Ok(openapi::models(engine)),
        Route::Docs => Ok(openapi::docs_page()),
        Route::List => Ok(management::list(context)),
        Route::Register => Box::pin(management::register(context, body)).await,
        Route::Describe(target) => Box::pin(management::describe(context, target)).await,
        Route::Batching(target) => Box::pin(management::batching(context, target)).await,
        Route::Scale(target) => Box::pin(management::scale(context, target)).await,
        Route::Unregister(target) => Box::pin(management::unregister(context, target)).await,
        Route::SetDefault { model, version } => management::set_default(context, model, version),
        Route::ListWorkflows => Ok(management::list_workflows(context)),
        Route::RegisterWorkflow => Box::pin(management::register_workflow(context, body)).await,
        Route::DescribeWorkflow(name) => management::describe_workflow(context, name),
        Route::UnregisterWorkflow(name) => {
            Box::pin(management::unregister_workflow(context, name)).await
        }
        Route::ModelReady(model) => health::model_ready(context, model),
        Route::RenewToken => admin::renew_token(context),
        Route::Metrics => Ok(admin::metrics(context)),
        Route::MethodNotAllowed => Err(Problem::method_not_allowed()),
        Route::NotFound => Box::pin(plugins::answer(context, &path, body)).await,
    }
}

/// The route of a path. A plugin's path goes before a model's bare name.
fn route_of<'path>(context: &RequestContext<'_>, path: &'path str) -> Route<'path> {
    let plugged = |plugins: &Plugins| plugins.endpoint(context.apis, path).is_some();
    match &context.state.config.plugins {
        Some(plugins) if context.apis.natural && plugged(plugins) => Route::NotFound,
        _ => route::route(context.apis, &context.parts.method, path),
    }
}

/// Checks the request's token against its route, before its body is read.
fn check_token(context: &RequestContext<'_>, route: &Route<'_>) -> Result<(), Problem> {
    let Some(tokens) = &context.state.config.tokens else { return Ok(()) };
    let authorization = context.parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    tokens.admit(Gate::of(context.apis, route), authorization)
}
