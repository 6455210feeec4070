//! Health, in TorchServe's words and in the Open Inference Protocol's.
//!
//! A server that drains is unhealthy at once, so that load balancers look elsewhere while it still
//! answers what it has admitted.

use http::StatusCode;
use jitney_engine::Engine;
use serde_json::json;

use crate::respond::{self, HttpResponse};

/// What the Open Inference Protocol says about this server.
pub(crate) const SERVER_NAME: &str = "Torchserve";
/// The extensions that it names.
pub(crate) const EXTENSIONS: [&str; 2] = ["kserve", "kubeflow"];

/// Whether requests are welcome.
pub(crate) fn is_ready(engine: &Engine) -> bool {
    engine.healthy() && !engine.draining()
}

/// `/ping`.
pub(crate) fn ping(engine: &Engine) -> HttpResponse {
    if is_ready(engine) {
        respond::status(StatusCode::OK, "Healthy")
    } else {
        respond::status(StatusCode::INTERNAL_SERVER_ERROR, "Unhealthy")
    }
}

/// What `/ping` says, for gRPC, whose answer has no status of its own.
pub(crate) fn text(engine: &Engine) -> String {
    let status = if is_ready(engine) { "Healthy" } else { "Unhealthy" };
    respond::pretty(&json!({ "status": status }))
}

/// `/v2/health/live`: whoever reads this was answered.
pub(crate) fn oip_live() -> HttpResponse {
    respond::json(StatusCode::OK, &json!({ "live": true }))
}

/// `/v2/health/ready`: 503 when it is not, since probes look at the status only.
pub(crate) fn oip_ready(engine: &Engine) -> HttpResponse {
    let ready = is_ready(engine);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond::json(status, &json!({ "ready": ready }))
}

/// `/v2`. The misspelt key is TorchServe's; the right one stands beside it.
pub(crate) fn oip_server(version: &str) -> HttpResponse {
    let body = json!({
        "name": SERVER_NAME,
        "version": version,
        "extenstion": EXTENSIONS,
        "extensions": EXTENSIONS,
    });
    respond::json(StatusCode::OK, &body)
}

/// `/v2/models/{m}/versions/…`.
pub(crate) fn oip_versions() -> HttpResponse {
    let body = json!({ "error": "Model versioning is not yet supported." });
    respond::json(StatusCode::NOT_IMPLEMENTED, &body)
}
