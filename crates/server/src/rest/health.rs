//! Health and metadata in TorchServe's words, the Open Inference Protocol's and SageMaker's.

use http::StatusCode;
use jitney_engine::Engine;
use jitney_settings::Dialect;
use jitney_telemetry::RegistrationsView;
use serde_json::{Value, json};

use super::context::RequestContext;
use crate::auth::{Gate, GuardedOperation};
use crate::errors::{ErrorCode, Problem};
use crate::health::{self, is_healthy, is_model_ready, status};
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::ModelRef;
use crate::state::ServerState;

const MEBIBYTE: u64 = 1 << 20;
/// The most that a batch transform may send as one body, by SageMaker's own rule.
const TRANSFORM_MEBIBYTES_MAX: u64 = 100;

/// `/ping`.
pub(super) fn ping(context: &RequestContext<'_>) -> HttpResponse {
    let state = context.state;
    let healthy = is_healthy(state);
    let code = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let body = json!({ "status": status(state) });
    let asked = state.config.dialect == Dialect::Jitney;
    respond::json(code, &if asked { verbose(context, body) } else { body })
}

/// Adds every model and what it lacks, if that is asked for. Where tokens are needed, names and errors
/// of models are told only to those who bring one.
fn verbose(context: &RequestContext<'_>, mut body: Value) -> Value {
    let state = context.state;
    let mut fields = context.parts.uri.query().unwrap_or_default().split('&');
    let asked = fields.any(|field| field == "verbose" || field.starts_with("verbose="));
    let may_know = || context.admit(Gate::Either, GuardedOperation::List, None).is_ok();
    if asked && may_know() {
        body["models"] = json!(health::models(&state.engine));
        body["draining"] = json!(state.engine.draining());
        if let Some(list) = RegistrationsView::of(&state.parts.registrations) {
            body["registrations"] = json!(list);
        }
    }
    body
}

/// `/v2/health/ready`: 503 when it is not, since probes look at the status only.
pub(super) fn oip_ready(context: &RequestContext<'_>) -> HttpResponse {
    let ready = context.state.engine.is_ready();
    respond::json(ready_code(ready), &verbose(context, json!({ "ready": ready })))
}

fn ready_code(ready: bool) -> StatusCode {
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// `/v2/models/{m}/ready`: 503 when it is not.
pub(super) fn oip_model_ready(context: &RequestContext<'_>, target: ModelRef<'_>) -> HttpResult {
    let (engine, name) = (&context.state.engine, target.model);
    let ready = is_model_ready(engine, &*engine.model(name, target.version)?);
    Ok(respond::json(ready_code(ready), &json!({ "name": name, "ready": ready })))
}

/// `/v2`. The misspelt key is TorchServe's; the right one stands beside it.
pub(super) fn oip_server(state: &ServerState) -> HttpResponse {
    let extensions = health::extensions(state);
    let mut body = json!({
        "name": health::server_name(state),
        "version": state.config.server_version,
        "extensions": extensions,
    });
    if state.config.dialect == Dialect::TorchServe {
        body["extenstion"] = json!(extensions);
    }
    respond::json(StatusCode::OK, &body)
}

/// `/v2/models/{m}/versions/…`, in a body of its own as TorchServe has it.
pub(super) fn oip_versions() -> HttpResponse {
    let problem = Problem::new(ErrorCode::NotServed, "Model versioning is not yet supported.");
    respond::problem_as(&problem, &json!({ "error": problem.message }))
}

/// SageMaker's `/ping`: 503 until some worker is ready. A multi-model endpoint starts healthy, without
/// any model.
pub(super) fn sagemaker_ping(engine: &Engine) -> HttpResult {
    let models = engine.models();
    let some_ready = models.iter().any(|model| model.readiness().is_ready());
    if (models.is_empty() || some_ready) && engine.is_ready() {
        Ok(respond::status(StatusCode::OK, "Healthy"))
    } else {
        Err(Problem::new(ErrorCode::NoWorker, "Models are not loaded"))
    }
}

/// SageMaker's `/execution-parameters`: as many requests at a time as there are workers, as large as a
/// body may be. Batch transforms take no more than 100 MiB, or 0 for bodies of any size, sent in chunks.
pub(super) fn execution_parameters(state: &ServerState) -> HttpResponse {
    let models = state.engine.models();
    let workers: usize = models.iter().map(|model| model.status().workers.len()).sum();
    let payload = state.config.max_request_bytes / MEBIBYTE;
    let payload = if payload > TRANSFORM_MEBIBYTES_MAX { 0 } else { payload };
    let body = json!({
        "MaxConcurrentTransforms": workers.max(1),
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": payload,
    });
    respond::json(StatusCode::OK, &body)
}
