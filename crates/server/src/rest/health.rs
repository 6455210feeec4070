//! Health, in TorchServe's words and in the Open Inference Protocol's.
//!
//! A server that drains is unhealthy at once, so that load balancers look elsewhere while it still
//! answers what it has admitted.

use http::StatusCode;
use jitney_engine::Engine;
use serde_json::json;

use crate::respond::{self, Reply};

fn is_ready(engine: &Engine) -> bool {
    engine.healthy() && !engine.draining()
}

/// `/ping`.
pub(crate) fn ping(engine: &Engine) -> Reply {
    if is_ready(engine) {
        respond::status(StatusCode::OK, "Healthy")
    } else {
        respond::status(StatusCode::INTERNAL_SERVER_ERROR, "Unhealthy")
    }
}

/// `/v2/health/live`: whoever reads this was answered.
pub(crate) fn oip_live() -> Reply {
    respond::json(StatusCode::OK, &json!({ "live": true }))
}

/// `/v2/health/ready`: 503 when it is not, since probes look at the status only.
pub(crate) fn oip_ready(engine: &Engine) -> Reply {
    let ready = is_ready(engine);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond::json(status, &json!({ "ready": ready }))
}

/// `/v2`. The misspelt key is TorchServe's; the right one stands beside it.
pub(crate) fn oip_server(version: &str) -> Reply {
    let extensions = ["kserve", "kubeflow"];
    let body = json!({
        "name": "Torchserve",
        "version": version,
        "extenstion": extensions,
        "extensions": extensions,
    });
    respond::json(StatusCode::OK, &body)
}

/// `/v2/models/{m}/versions/…`.
pub(crate) fn oip_versions() -> Reply {
    let body = json!({ "error": "Model versioning is not yet supported." });
    respond::json(StatusCode::NOT_IMPLEMENTED, &body)
}
