//! Which gRPC calls are traced, and what their spans say: predictions.

use std::sync::Arc;

use http::Request;
use jitney_net::connection::Peer;
use jitney_net::request_id::XRequestId;
use jitney_telemetry::trace::{RequestFacts, RequestTrace};
use tokio::time::Instant;
use tonic::Code;

use crate::state::ServerState;

const METHODS: [&str; 5] =
    ["Predictions", "StreamPredictions", "StreamPredictions2", "ModelInfer", "ModelStreamInfer"];

/// Begins the trace of a call, if it is traced.
pub(super) fn begin<T>(
    state: &ServerState,
    peer: &Peer,
    request: &Request<T>,
    id: &XRequestId,
    started: Instant,
) -> Option<Arc<RequestTrace>> {
    let tracer = state.config.meter.tracer()?;
    RequestTrace::begin(tracer, request.headers(), started, || {
        let name = request.uri().path().trim_start_matches('/');
        let (service, method) = name.split_once('/').filter(|it| METHODS.contains(&it.1))?;
        let address = peer.address.trim_start_matches('/').to_owned();
        let facts = RequestFacts::new(name.to_owned())
            .with("rpc.system", "grpc")
            .with("rpc.service", service.to_owned())
            .with("rpc.method", method.to_owned())
            .with("client.address", address)
            .with("jitney.request.id", id.text().to_owned());
        Some(facts)
    })
}

/// Notes the code of the answer. Those that blame the server are failures.
pub(super) fn end(trace: &RequestTrace, code: i32) {
    let failed = [
        Code::Unknown,
        Code::DeadlineExceeded,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
    ];
    let failed = failed.iter().any(|known| *known as i32 == code);
    trace.end("rpc.grpc.status_code", u32::try_from(code).unwrap_or_default(), failed);
}
