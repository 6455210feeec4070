//! Which REST requests are traced, and what their spans say: predictions, in all their forms. Health checks,
//! metrics and management would only hide them.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use jitney_net::request_id::XRequestId;
use jitney_telemetry::trace::{RequestFacts, RequestTrace};
use tokio::time::Instant;

use super::context::ConnectionContext;
use super::endpoints;
use crate::route;

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
    let found = endpoints::find(connection.apis, &parts.method, &decoded).endpoint;
    let template = found.is_traced().then(|| found.shown())?;
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

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::route::Apis;

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
