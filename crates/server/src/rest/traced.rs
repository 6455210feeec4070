//! Which REST requests are traced, and what their spans say: predictions, in all their forms. Health checks,
//! metrics and management would only hide them.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use tokio::time::Instant;

use super::context::ConnectionContext;
use crate::request_id::XRequestId;
use crate::route::{self, PredictRoute, Route};
use crate::trace::{RequestFacts, RequestTrace};

/// Begins the trace of a request, if it is traced.
pub(super) fn begin(
    connection: ConnectionContext<'_>,
    parts: &Parts,
    id: &XRequestId,
    started: Instant,
) -> Option<Arc<RequestTrace>> {
    let tracer = connection.state.config.meter.tracer()?;
    RequestTrace::begin(tracer, &parts.headers, started, || facts(connection, parts, id))
}

/// Notes the status of the answer.
pub(super) fn end(trace: &RequestTrace, status: StatusCode) {
    let failed = status.is_server_error();
    trace.end("http.response.status_code", status.as_u16().into(), failed);
}

fn facts(
    connection: ConnectionContext<'_>,
    parts: &Parts,
    id: &XRequestId,
) -> Option<RequestFacts> {
    let path = parts.uri.path();
    let decoded = route::decode(path);
    let template = template(&route::route(connection.apis, &parts.method, &decoded), path)?;
    let version = format!("{:?}", parts.version);
    let address = connection.peer.address.trim_start_matches('/').to_owned();
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

/// The path with placeholders, so that all requests of one kind have one name; nothing for requests that are
/// not traced.
fn template(route: &Route<'_>, path: &str) -> Option<&'static str> {
    if let Route::Predict(route) = route {
        return Some(predict_template(route, path));
    }
    if matches!(route, Route::Instances(_)) {
        return Some("/v1/models/{model}:predict");
    }
    if matches!(route, Route::RunWorkflow(_)) {
        return Some("/wfpredict/{workflow}");
    }
    let others = [(Route::Embeddings, "/v1/embeddings"), (Route::Invocations, "/invocations")];
    others.iter().find(|(known, _)| known == route).map(|(_, name)| *name)
}

fn predict_template(route: &PredictRoute<'_>, path: &str) -> &'static str {
    let first = path.split('/').nth(1).unwrap_or_default();
    match (first, route.target.version.is_some()) {
        ("predictions", false) => "/predictions/{model}",
        ("predictions", true) => "/predictions/{model}/{version}",
        ("explanations", false) => "/explanations/{model}",
        ("explanations", true) => "/explanations/{model}/{version}",
        ("models", _) => "/models/{model}/invoke",
        ("v1", _) => "/v1/models/{model}:predict",
        ("v2", false) => "/v2/models/{model}/infer",
        ("v2", true) => "/v2/models/{model}/versions/{version}/infer",
        _ if route.url_path.is_some_and(|path| !path.is_empty()) => "/{model}/{endpoint}",
        _ => "/{model}",
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::route::Apis;

    #[test]
    fn predictions_have_names_without_models_and_all_else_none() {
        let apis = Apis { inference: true, oip: true, natural: true, ..Apis::default() };
        let name = |path: &str| template(&route::route(apis, &Method::POST, path), path);
        assert_eq!(name("/predictions/m"), Some("/predictions/{model}"));
        assert_eq!(name("/predictions/m/2.0"), Some("/predictions/{model}/{version}"));
        assert_eq!(name("/v2/models/m/infer"), Some("/v2/models/{model}/infer"));
        assert_eq!(name("/v1/models/m:predict"), Some("/v1/models/{model}:predict"));
        assert_eq!(name("/m"), Some("/{model}"));
        assert_eq!(name("/ping"), None);
        assert_eq!(name("/v2/health/ready"), None);
    }
}
