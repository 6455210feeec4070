//! The one way of a REST answer: id, trace, where the request goes and whether it may, the endpoint, a failure
//! in its client's words, compression, the access log, and whether the connection ends with it.
//!
//! The carriers of `jitney_net::http` call it and differ in bytes only. Nothing here knows a socket, and no
//! endpoint is named here.

use std::borrow::Cow;
use std::pin::Pin;
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Version};
use jitney_net::connection::Peer;
use jitney_net::http::{Answered, HeadError, HttpClient, HttpRules};
use jitney_net::request_id::XRequestId;
use jitney_net::{HttpService, RequestBody};
use jitney_settings::Dialect;
use jitney_telemetry::metrics::{LOAD_METRICS, LoadFormat};
use jitney_telemetry::trace::{RequestFacts, RequestTrace};
use jitney_telemetry::{AccessRecord, AuditOutcome, RecordNames};
use tokio::time::Instant;

use super::context::RequestContext;
use super::destination::{self, ClaimedPath, Destination};
use super::endpoint::{Endpoint, EndpointCall, Handler, PredictBody};
use super::endpoints::{self, ENDPOINTS};
use super::{
    authorize, compress, cors, generate, inference, jobs, open_inference, plugins, unknown, v1,
};
use crate::audit::{AuditedAttempt, AuditedCaller};
use crate::auth::{Gate, GuardedOperation};
use crate::errors::{ErrorCode, Problem};
use crate::handles::HandleUpgrade;
use crate::listener::ServerListener;
use crate::plugins::{ApiKind, Intent, Plugins};
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::Apis;
use crate::shown_uri::ShownUri;
use crate::state::ServerState;

impl HttpService for ServerListener {
    type Upgrade = HandleUpgrade;

    async fn answer(
        &self,
        client: &HttpClient<'_, HandleUpgrade>,
        parts: &Parts,
        body: Result<RequestBody, HeadError>,
    ) -> Answered {
        let Self { state, .. } = self;
        let id = XRequestId::of(state.config.dialect, &parts.headers);
        let started = Instant::now();
        let trace = state.parts.tracer.as_ref().and_then(|tracer| {
            let facts = || facts(state, self.apis, client.peer, parts, &id);
            RequestTrace::begin(tracer, &parts.headers, started, facts)
        });
        let caller = state.parts.caller(client.peer, &parts.headers, started);
        let context =
            RequestContext::new(self, client, parts, &id, trace.as_ref(), &caller, started);
        let answered = match body {
            Ok(body) => dispatch(&context, body).await,
            Err(error) => Err(error.into()),
        };
        let mut reply = answered.unwrap_or_else(|problem| failure(&context, &problem));
        if state.config.cors.origin.is_some() {
            cors::stamp(&context, &mut reply);
        }
        if compress::is_candidate(state, &reply) {
            Box::pin(compress::compress(&mut reply, &parts.headers)).await;
        }
        let at = Instant::now();
        log(&context, reply.status(), at - started);
        if let Some(trace) = trace {
            reply.body_mut().keep(trace);
        }
        let open = &client.peer.open;
        let last = open.is_needed() || open.is_closing() || state.engine.draining();
        Answered { reply, id, at, last }
    }

    fn rules(&self) -> &HttpRules {
        &self.state.http
    }

    fn malformed(status: u16) -> HttpResponse {
        respond::malformed(status)
    }
}

/// What the trace of a request says; nothing for requests that are not traced.
pub(super) fn facts(
    state: &ServerState,
    apis: Apis,
    peer: &Peer,
    parts: &Parts,
    id: &XRequestId,
) -> Option<RequestFacts> {
    let path = parts.uri.path();
    let decoded = state.config.aliases.decode(path);
    let found = endpoints::find(apis, &parts.method, &decoded).endpoint;
    let template = found.is_traced().then(|| found.shown())?;
    let version = format!("{:?}", parts.version);
    let address = peer.address.trim_start_matches('/').to_owned();
    let facts = RequestFacts::new(format!("{} {template}", parts.method))
        .with("http.request.method", parts.method.as_str().to_owned())
        .with("http.route", template)
        .with("url.path", path.to_owned())
        .with("network.protocol.name", "http")
        .with("network.protocol.version", version.trim_start_matches("HTTP/").to_owned())
        .with("client.address", address)
        .with("jitney.request.id", id.text().to_owned());
    Some(facts)
}

/// A failure as the client's protocol names it.
pub(super) fn failure(context: &RequestContext<'_>, problem: &Problem) -> HttpResponse {
    let path = context.parts.uri.path();
    let is_method = problem.code == ErrorCode::MethodNotAllowed;
    let methods = if is_method { destination::methods(context) } else { String::new() };
    let mut reply = match context.state.config.dialect {
        Dialect::TorchServe => respond::problem(problem, None),
        Dialect::Jitney if path.starts_with("/v2/") || path.starts_with("/v1/") => {
            respond::open_problem(problem)
        }
        Dialect::Jitney => {
            let problem = unknown::explained(context, problem, &methods);
            respond::problem(&problem, Some(context.id.text()))
        }
    };
    if is_method {
        respond::allow(&mut reply, &methods);
    }
    reply
}

/// Counts the answer and writes its line of the access log.
fn log(context: &RequestContext<'_>, status: StatusCode, took: Duration) {
    let RequestContext { state, peer, parts, id, trace, .. } = context;
    if status != StatusCode::SWITCHING_PROTOCOLS {
        state.parts.meter.responded(status);
    }
    if let Some(trace) = trace {
        trace.end("http.response.status_code", status.as_u16().into(), status.is_server_error());
    }
    if let Some(log) = &state.parts.access_log {
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
async fn dispatch(context: &RequestContext<'_>, body: RequestBody) -> HttpResult {
    check_host(context.parts)?;
    if context.parts.method == Method::OPTIONS
        && let Some(reply) = cors::preflight(context)
    {
        return Ok(reply);
    }
    let path: Cow<'_, str> = context.path();
    let claimed = ClaimedPath::of(context, &path);
    let destination = Destination::of(context, &path, claimed.as_ref());
    let gate = destination.gate(context.apis);
    let audited = context.state.parts.audit.is_some();
    let change = audited && destination.endpoint.operation.changes();
    let attempt = change.then(|| attempt(context, gate, &destination));
    let answered = enter(context, gate, destination, body).await;
    match attempt {
        Some(mut attempt) => note(&mut attempt, &answered),
        None if audited && answered.is_err() => {
            note(&mut self::attempt(context, gate, &destination), &answered);
        }
        None => {}
    }
    match LoadFormat::asked(&context.parts.headers).filter(|_| gate == Gate::Inference) {
        None => answered,
        Some(format) => Ok(with_load(context, answered, format)),
    }
}

/// Answers a prediction that was let in and kept before.
pub(super) async fn again(context: &RequestContext<'_>, body: RequestBody) -> HttpResult {
    let path: Cow<'_, str> = context.path();
    let claimed = ClaimedPath::of(context, &path);
    let destination = Destination::of(context, &path, claimed.as_ref());
    let model = destination.names.model.or(destination.names.workflow);
    context.caller.check(Gate::Inference, destination.endpoint.operation, model)?;
    call(context, destination, body).await
}

/// Lets the request in, and calls its endpoint.
async fn enter(
    context: &RequestContext<'_>,
    gate: Gate,
    destination: Destination<'_>,
    body: RequestBody,
) -> HttpResult {
    if matches!(gate, Gate::Management | Gate::Renewal) {
        check_browser(context, gate, destination.endpoint)?;
    }
    let names = destination.names;
    context.admit(gate, destination.operation(), names.model.or(names.workflow))?;
    match context.state.parts.plugins.as_deref() {
        Some(plugins) if plugins.guarded() => {
            Box::pin(call_authorized(context, plugins, gate, destination, body)).await
        }
        Some(_) | None => call(context, destination, body).await,
    }
}

/// What the audit log is told of a request, once it has ended.
#[cold]
fn attempt<'a>(
    context: &RequestContext<'a>,
    gate: Gate,
    destination: &Destination<'a>,
) -> Box<AuditedAttempt<'a>> {
    let RequestContext { state, peer, id, caller, .. } = *context;
    let by = AuditedCaller { peer, request_id: id.text(), caller, gate };
    AuditedAttempt::begin(state, destination.endpoint.operation, by, destination.names)
}

#[cold]
fn note(attempt: &mut AuditedAttempt<'_>, answered: &HttpResult) {
    let changes = attempt.before.is_some();
    attempt.ended = Some(match answered {
        Ok(reply) => (reply.status().as_u16(), AuditOutcome::Done),
        Err(problem) if problem.is_denial(changes) => (problem.status, AuditOutcome::Denied),
        Err(problem) => (problem.status, AuditOutcome::Failed),
    });
}

/// The answer with a report of how loaded the server is. Who is rejected wants it most.
#[cold]
fn with_load(
    context: &RequestContext<'_>,
    answered: HttpResult,
    format: LoadFormat,
) -> HttpResponse {
    let mut reply = answered.unwrap_or_else(|problem| failure(context, &problem));
    if let Some(report) = context.state.parts.meter.load_report(&context.state.engine, format) {
        reply.headers_mut().insert(LOAD_METRICS, report);
    }
    reply
}

/// Asks the operator's plugin first, unless the endpoint asks by itself.
async fn call_authorized(
    context: &RequestContext<'_>,
    plugins: &Plugins,
    gate: Gate,
    destination: Destination<'_>,
    body: RequestBody,
) -> HttpResult {
    let Destination { endpoint, names, plugin } = destination;
    if let (Handler::Asks(answer), None) = (&endpoint.handler, plugin) {
        return answer(EndpointCall { context, names, body, plugins: Some(plugins) }).await;
    }
    let query = context.query();
    let intent = match plugin {
        Some(_) => Some(Intent::plain(GuardedOperation::Endpoint)),
        None => authorize::intent(context, endpoint.operation, names, &query),
    };
    let Some(intent) = intent else { return call(context, destination, body).await };
    let listener = ApiKind::behind(gate);
    let authorized = authorize::authorize(context, plugins, listener, intent).await?;
    call(&authorized.context(context), destination, body).await
}

/// Calls the endpoint. Predictions stay in this future; what is rare and waits is boxed, so that the
/// future stays small.
async fn call(
    context: &RequestContext<'_>,
    Destination { endpoint, names, plugin }: Destination<'_>,
    body: RequestBody,
) -> HttpResult {
    if let Some(plugin) = plugin {
        return Box::pin(plugins::answer(context, plugin, body)).await;
    }
    if endpoint.is_traced() && jobs::is_asked(&context.parts.headers) {
        return Box::pin(jobs::submit(context, names, body)).await;
    }
    match &endpoint.handler {
        Handler::Predict(form) => {
            let route = form.route(&names);
            match form.body {
                PredictBody::Any => inference::predict(context, body, route).await,
                PredictBody::Tensors => {
                    Box::pin(open_inference::predict(context, body, route)).await
                }
                PredictBody::Instances => Box::pin(v1::predict(context, body, route)).await,
                PredictBody::Fields => Box::pin(generate::one(context, body, route)).await,
                PredictBody::FieldsForStream => {
                    Box::pin(generate::several(context, body, route)).await
                }
            }
        }
        Handler::Now(answer) => answer(context, names),
        Handler::Stream(answer) => {
            let (mut caller, gate) = (context.caller.clone(), endpoint.gate(context.apis));
            let operation = endpoint.operation;
            let allowed = move || caller.check_again(gate, operation, None).is_ok();
            Ok(answer(context, names)?.map(|body| body.while_allowed(allowed)))
        }
        Handler::Waits(answer) | Handler::Asks(answer) => {
            answer(EndpointCall { context, names, body, plugins: None }).await
        }
        Handler::Tries => try_out(context, body).await,
        Handler::Rows(answer) => answer(context, names, ENDPOINTS),
        Handler::Nothing => Err(unknown::unknown_path(context)),
    }
}

/// A request of the dashboard's form. It needs what it would need on the inference port, which pages cannot reach
/// where that is another origin; this port has no pages but the server's own.
fn try_out<'a>(
    context: &'a RequestContext<'a>,
    body: RequestBody,
) -> Pin<Box<dyn Future<Output = HttpResult> + Send + 'a>> {
    Box::pin(async move {
        let mut parts = context.parts.clone();
        let allowed = context.state.config.cors.origin.as_deref();
        context.browsers.check(&parts.headers, true, allowed)?;
        let whole = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
        let tried = whole.strip_prefix("/dashboard/try").and_then(|tried| tried.parse().ok());
        parts.uri = tried.ok_or_else(Problem::not_found)?;
        let context = RequestContext { parts: &parts, apis: Apis::PREDICTIONS, ..*context };
        dispatch(&context, body).await
    })
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

/// Keeps web pages of other sites away from management, before the body is read. A renewal is a change
/// although it is a GET, and a stream takes one of few places.
fn check_browser(
    context: &RequestContext<'_>,
    gate: Gate,
    endpoint: &Endpoint,
) -> Result<(), Problem> {
    let Parts { method, headers, .. } = context.parts;
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
        && gate != Gate::Renewal
        && !matches!(endpoint.handler, Handler::Stream(_));
    let allowed = context.state.config.cors.origin.as_deref();
    context.browsers.check(headers, !reads, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_have_names_without_models_and_all_else_none() {
        let apis = Apis { inference: true, oip: true, natural: true, ..Apis::default() };
        let name = |path: &str| {
            let found = endpoints::find(apis, &Method::POST, path).endpoint;
            found.is_traced().then(|| found.shown())
        };
        for (path, expected) in [
            ("/predictions/m", "/predictions/{model}"),
            ("/predictions/m/2.0", "/predictions/{model}/{version}"),
            ("/v2/models/m/infer", "/v2/models/{model}/infer"),
            ("/v1/models/m:predict", "/v1/models/{model}:predict"),
            ("/wfpredict/w/x", "/wfpredict/{workflow}"),
            ("/m", "/{model}"),
        ] {
            assert_eq!(name(path).as_deref(), Some(expected));
        }
        assert_eq!(name("/ping"), None);
        assert_eq!(name("/v2/health/ready"), None);
    }
}
