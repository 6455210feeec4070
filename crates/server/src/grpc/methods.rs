//! The methods of gRPC: one row each, with the key that opens it and what it does. The key check, the
//! operator's plugins, traces and the reference page read them.
//!
//! Which services a listener has, and who answers their calls, is in `services`.

use crate::auth::{Gate, GuardedOperation as Op};
use crate::route::Apis;

/// A method of a service.
pub(crate) struct GrpcMethod {
    /// As calls name it.
    pub(crate) path: &'static str,
    /// The key that opens it; the listener's where it belongs to no API.
    pub(crate) key: Option<Gate>,
    pub(crate) operation: Op,
}

/// A prediction of TorchServe's, which nearly all calls are.
pub(super) const PREDICTIONS: &str =
    "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions";

const USE: Option<Gate> = Some(Gate::Inference);
const MANAGE: Option<Gate> = Some(Gate::Management);

const fn row(path: &'static str, key: Option<Gate>, operation: Op) -> GrpcMethod {
    GrpcMethod { path, key, operation }
}

/// A method that nobody has declared.
static UNKNOWN: GrpcMethod = row("", None, Op::Unknown);

/// The busiest first.
#[rustfmt::skip]
pub(crate) static METHODS: &[GrpcMethod] = &[
    row(PREDICTIONS, USE, Op::Predict),
    row("/inference.GRPCInferenceService/ModelInfer", USE, Op::Predict),
    row("/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelInfer", USE, Op::Predict),
    row("/inference.GRPCInferenceService/ModelStreamInfer", USE, Op::Predict),
    row("/org.pytorch.serve.grpc.inference.InferenceAPIsService/StreamPredictions", USE, Op::Predict),
    row("/org.pytorch.serve.grpc.inference.InferenceAPIsService/StreamPredictions2", USE, Op::Predict),
    row("/org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping", USE, Op::Health),

    row("/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ServerLive", USE, Op::Health),
    row("/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ServerReady", USE, Op::Health),
    row("/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelReady", USE, Op::Ready),
    row("/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ServerMetadata", USE, Op::Metadata),
    row("/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelMetadata", USE, Op::Metadata),

    row("/inference.GRPCInferenceService/ServerLive", USE, Op::Health),
    row("/inference.GRPCInferenceService/ServerReady", USE, Op::Health),
    row("/inference.GRPCInferenceService/ModelReady", USE, Op::Ready),
    row("/inference.GRPCInferenceService/ServerMetadata", USE, Op::Metadata),
    row("/inference.GRPCInferenceService/ModelMetadata", USE, Op::Metadata),
    row("/inference.GRPCInferenceService/ModelConfig", USE, Op::Metadata),
    row("/inference.GRPCInferenceService/ModelStatistics", USE, Op::Describe),
    row("/inference.GRPCInferenceService/RepositoryIndex", MANAGE, Op::List),
    row("/inference.GRPCInferenceService/RepositoryModelLoad", MANAGE, Op::Register),
    row("/inference.GRPCInferenceService/RepositoryModelUnload", MANAGE, Op::Unregister),
    row("/inference.GRPCInferenceService/SystemSharedMemoryStatus", USE, Op::ShareMemory),
    row("/inference.GRPCInferenceService/SystemSharedMemoryRegister", USE, Op::ShareMemory),
    row("/inference.GRPCInferenceService/SystemSharedMemoryUnregister", USE, Op::ShareMemory),
    row("/inference.GRPCInferenceService/CudaSharedMemoryStatus", USE, Op::ShareMemory),
    row("/inference.GRPCInferenceService/CudaSharedMemoryRegister", USE, Op::ShareMemory),
    row("/inference.GRPCInferenceService/CudaSharedMemoryUnregister", USE, Op::ShareMemory),
    row("/inference.GRPCInferenceService/TraceSetting", USE, Op::Metadata),
    row("/inference.GRPCInferenceService/LogSettings", USE, Op::Metadata),

    row("/org.pytorch.serve.grpc.management.ManagementAPIsService/DescribeModel", MANAGE, Op::Describe),
    row("/org.pytorch.serve.grpc.management.ManagementAPIsService/ListModels", MANAGE, Op::List),
    row("/org.pytorch.serve.grpc.management.ManagementAPIsService/RegisterModel", MANAGE, Op::Register),
    row("/org.pytorch.serve.grpc.management.ManagementAPIsService/ScaleWorker", MANAGE, Op::Scale),
    row("/org.pytorch.serve.grpc.management.ManagementAPIsService/SetDefault", MANAGE, Op::SetDefault),
    row("/org.pytorch.serve.grpc.management.ManagementAPIsService/UnregisterModel", MANAGE, Op::Unregister),

    row("/grpc.health.v1.Health/Check", None, Op::Health),
    row("/grpc.health.v1.Health/Watch", None, Op::Health),
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", None, Op::Reflect),
    row("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", None, Op::Reflect),
];

impl GrpcMethod {
    /// The method of a call.
    pub(super) fn find(path: &str) -> &'static Self {
        METHODS.iter().find(|method| method.path == path).unwrap_or(&UNKNOWN)
    }

    /// The key that opens it on a listener.
    pub(super) fn gate(&self, apis: Apis) -> Gate {
        match self.key {
            _ if apis.open_health && self.operation.tells_health() => Gate::Open,
            Some(gate) => gate,
            None => Gate::of_listener(apis),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_method_of_our_services_has_a_row() {
        let mut declared = BTreeSet::new();
        let methods = regex::Regex::new(r"rpc (\w+)\(").unwrap();
        for name in ["inference", "kserve", "management", "openinference"] {
            let path = format!("{}/../proto/proto/{name}.proto", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let first = |pattern: &str| {
                regex::Regex::new(pattern).unwrap().captures(&text).unwrap()[1].to_owned()
            };
            let (package, service) =
                (first(r"(?m)^package ([\w.]+);"), first(r"(?m)^service (\w+)"));
            let path = |found: regex::Captures<'_>| format!("/{package}.{service}/{}", &found[1]);
            declared.extend(methods.captures_iter(&text).map(path));
        }
        let rows = METHODS.iter().map(|row| row.path).filter(|path| !path.starts_with("/grpc."));
        assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), declared);
    }

    #[test]
    fn health_is_open_where_the_listener_says_so_and_nothing_else_is() {
        let apis = Apis { inference: true, open_health: true, ..Apis::default() };
        let open: Vec<_> = METHODS.iter().filter(|row| row.gate(apis) == Gate::Open).collect();
        assert_eq!(open.len(), 9);
        assert!(open.iter().all(|row| row.operation.tells_health()));
        let unknown = GrpcMethod::find("/inference.GRPCInferenceService/Ping");
        assert_eq!((unknown.operation, unknown.gate(apis)), (Op::Unknown, Gate::Inference));
        let closed = Apis { open_health: false, management: true, ..apis };
        assert_eq!(GrpcMethod::find("/grpc.health.v1.Health/Check").gate(closed), Gate::Either);
    }
}
