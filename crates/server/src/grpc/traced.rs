//! Which gRPC calls are traced, and what their spans say: predictions.

use std::sync::Arc;

use http::Request;
use jitney_net::connection::Peer;
use jitney_telemetry::trace::{RequestFacts, RequestTrace};
use tonic::Code;

use super::request::GrpcCaller;
use crate::auth::GuardedOperation;
use crate::state::ServerState;

/// Begins the trace of a call, if it is traced.
pub(super) fn begin<T>(
    state: &ServerState,
    peer: &Peer,
    request: &Request<T>,
    caller: &GrpcCaller,
) -> Option<Arc<RequestTrace>> {
    let tracer = state.parts.tracer.as_ref()?;
    RequestTrace::begin(tracer, request.headers(), caller.started, || {
        let name = request.uri().path().trim_start_matches('/');
        let predicts = caller.operation == GuardedOperation::Predict;
        let (service, method) = name.split_once('/').filter(|_| predicts)?;
        let address = peer.address.trim_start_matches('/').to_owned();
        let facts = RequestFacts::new(name.to_owned())
            .with("rpc.system", "grpc")
            .with("rpc.service", service.to_owned())
            .with("rpc.method", method.to_owned())
            .with("client.address", address)
            .with("jitney.request.id", caller.id.text().to_owned());
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
