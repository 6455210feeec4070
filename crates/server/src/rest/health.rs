//! Health and metadata in TorchServe's words, the Open Inference Protocol's and SageMaker's.

use http::StatusCode;
use jitney_engine::Engine;
use serde_json::json;

use crate::errors::{ErrorCode, Problem};
use crate::health::{EXTENSIONS, SERVER_NAME, is_ready, status};
use crate::respond::{self, HttpResponse, HttpResult};
use crate::state::ServerState;

const MEBIBYTE: u64 = 1 << 20;

/// `/ping`.
pub(super) fn ping(engine: &Engine) -> HttpResponse {
    let code = if is_ready(engine) { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    respond::status(code, status(engine))
}

/// `/v2/health/live`: a server that answers is live.
pub(super) fn oip_live() -> HttpResponse {
    respond::json(StatusCode::OK, &json!({ "live": true }))
}

/// `/v2/health/ready`: 503 when it is not, since probes look at the status only.
pub(super) fn oip_ready(engine: &Engine) -> HttpResponse {
    let ready = is_ready(engine);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond::json(status, &json!({ "ready": ready }))
}

/// `/v2`. The misspelt key is TorchServe's; the right one stands beside it.
pub(super) fn oip_server(version: &str) -> HttpResponse {
    let body = json!({
        "name": SERVER_NAME,
        "version": version,
        "extenstion": EXTENSIONS,
        "extensions": EXTENSIONS,
    });
    respond::json(StatusCode::OK, &body)
}

/// `/v2/models/{m}/versions/…`.
pub(super) fn oip_versions() -> HttpResponse {
    let body = json!({ "error": "Model versioning is not yet supported." });
    respond::json(StatusCode::NOT_IMPLEMENTED, &body)
}

/// SageMaker's `/ping`: 503 until some worker is ready. A multi-model endpoint starts healthy, without
/// any model.
pub(super) fn sagemaker_ping(engine: &Engine) -> HttpResult {
    let models = engine.models();
    let loaded = |worker: &jitney_engine::WorkerView| worker.ready;
    let some_ready = models.iter().any(|model| model.status().workers.iter().any(loaded));
    if (models.is_empty() || some_ready) && is_ready(engine) {
        Ok(respond::status(StatusCode::OK, "Healthy"))
    } else {
        Err(Problem::new(ErrorCode::NoWorker, "Models are not loaded"))
    }
}

/// SageMaker's `/execution-parameters`: as many requests at a time as there are workers, as large as a
/// body may be.
pub(super) fn execution_parameters(state: &ServerState) -> HttpResponse {
    let models = state.engine.models();
    let workers: usize = models.iter().map(|model| model.status().workers.len()).sum();
    let body = json!({
        "MaxConcurrentTransforms": workers.max(1),
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": state.config.max_request_bytes / MEBIBYTE,
    });
    respond::json(StatusCode::OK, &body)
}
