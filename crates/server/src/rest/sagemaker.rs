//! What SageMaker asks of a container beside predictions: whether models are loaded, and how batch
//! transforms should ask. TorchServe's image has these as plugins; here they are a switch.

use http::StatusCode;
use jitney_engine::Engine;
use serde_json::json;

use crate::errors::{ErrorCode, Problem};
use crate::listener::RequestContext;
use crate::respond::{self, HttpResponse};
use crate::rest::health;

const MEBIBYTE: u64 = 1 << 20;

/// `/ping`: 503 until some worker is ready. A multi-model endpoint starts without any model, and healthy.
pub(crate) fn ping(engine: &Engine) -> Result<HttpResponse, Problem> {
    let models = engine.models();
    let loaded = |worker: &jitney_engine::WorkerView| worker.ready;
    let some_ready = models.iter().any(|model| model.status().workers.iter().any(loaded));
    if (models.is_empty() || some_ready) && health::is_ready(engine) {
        Ok(respond::status(StatusCode::OK, "Healthy"))
    } else {
        Err(Problem::new(ErrorCode::NoWorker, "Models are not loaded"))
    }
}

/// `/execution-parameters`: as many requests at a time as there are workers, as large as a body may be.
pub(crate) fn execution_parameters(context: &RequestContext<'_>) -> HttpResponse {
    let models = context.state.engine.models();
    let workers: usize = models.iter().map(|model| model.status().workers.len()).sum();
    let megabytes = context.state.config.max_request_bytes / MEBIBYTE;
    let body = json!({
        "MaxConcurrentTransforms": workers.max(1),
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": megabytes,
    });
    respond::json(StatusCode::OK, &body)
}
