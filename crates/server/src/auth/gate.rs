//! Which token a request needs: a pure function of the listener and the route, or of a gRPC service.
//!
//! Where one listener offers both APIs each token opens the routes of its own API; TorchServe asks
//! for both there, which no request can bring.

use crate::errors::{ErrorCode, Problem};
use crate::route::{Apis, OpenInferenceRoute, Route};

/// Which key an endpoint needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Anyone may pass.
    Open,
    /// The inference key opens it.
    Inference,
    /// The management key opens it.
    Management,
    /// Either of the two opens it.
    Either,
    /// Only the API key opens it.
    Renewal,
}

impl Gate {
    /// The gate of a route. API descriptions, metrics and the files of the dashboard
    /// are open; unknown paths need the
    /// listener's token.
    pub fn of(apis: Apis, route: &Route<'_>) -> Self {
        match route {
            Route::Description
            | Route::Home
            | Route::Dashboard(_)
            | Route::Metrics
            | Route::OpenApi
            | Route::Docs => Self::Open,
            Route::Ping
            | Route::Alive
            | Route::SagemakerPing
            | Route::OpenInference(
                OpenInferenceRoute::Live
                | OpenInferenceRoute::Ready
                | OpenInferenceRoute::ModelReady(_),
            )
            | Route::ModelReady(_)
                if apis.open_health =>
            {
                Self::Open
            }
            Route::Ping
            | Route::Alive
            | Route::Predict(_)
            | Route::Mounted(_)
            | Route::Instances(_)
            | Route::Embeddings
            | Route::ModelNames
            | Route::Invocations
            | Route::RunWorkflow(_)
            | Route::Handle
            | Route::SagemakerPing
            | Route::ExecutionParameters
            | Route::PredictDescription(_)
            | Route::OipVersions => Self::Inference,
            Route::OpenInference(route) => Self::of_open_inference(route),
            Route::RepositoryIndex
            | Route::RepositoryLoad(_)
            | Route::RepositoryUnload(_)
            | Route::Overview
            | Route::OverviewStream
            | Route::Logs
            | Route::LogStream
            | Route::LogLevel { .. }
            | Route::List
            | Route::Register
            | Route::Describe(_)
            | Route::Batching(_)
            | Route::Statistics(_)
            | Route::Scale(_)
            | Route::Unregister(_)
            | Route::SetDefault { .. }
            | Route::ListWorkflows
            | Route::RegisterWorkflow
            | Route::DescribeWorkflow(_)
            | Route::UnregisterWorkflow(_)
            | Route::ManageDescription(_) => Self::Management,
            Route::RenewToken => Self::Renewal,
            Route::ModelReady(_) | Route::MethodNotAllowed | Route::NotFound => {
                Self::of_listener(apis)
            }
        }
    }

    /// The gate of an endpoint of the Open Inference Protocol. What changes the server needs the management
    /// key, wherever it is asked for.
    fn of_open_inference(route: &OpenInferenceRoute<'_>) -> Self {
        match route {
            OpenInferenceRoute::TraceSettings { changes: true }
            | OpenInferenceRoute::LogSettings { changes: true } => Self::Management,
            OpenInferenceRoute::Config(_)
            | OpenInferenceRoute::Statistics(_)
            | OpenInferenceRoute::TraceSettings { changes: false }
            | OpenInferenceRoute::LogSettings { changes: false } => Self::Either,
            OpenInferenceRoute::Live
            | OpenInferenceRoute::Ready
            | OpenInferenceRoute::Server
            | OpenInferenceRoute::ModelReady(_)
            | OpenInferenceRoute::Metadata(_)
            | OpenInferenceRoute::SharedMemory(_)
            | OpenInferenceRoute::Infer(_)
            | OpenInferenceRoute::WrongMethod
            | OpenInferenceRoute::Unknown => Self::Inference,
        }
    }

    /// Whether a gRPC path asks for health or readiness.
    pub(crate) fn is_grpc_health(path: &str) -> bool {
        let methods = ["/ServerLive", "/ServerReady", "/ModelReady", "/Ping"];
        path.starts_with("/grpc.health.v1.Health/")
            || methods.iter().any(|method| path.ends_with(method))
    }

    /// The gate of what belongs to no API: unknown paths, and over gRPC health and reflection.
    pub(crate) fn of_listener(apis: Apis) -> Self {
        match (apis.inference, apis.management) {
            (true, true) => Self::Either,
            (true, false) => Self::Inference,
            (false, true) => Self::Management,
            (false, false) => Self::Open,
        }
    }

    /// The error for a request that does not pass, in TorchServe's words.
    pub(crate) fn closed(self) -> Problem {
        let what = if self == Self::Renewal { "Authentication" } else { "Authorization" };
        let why = "Token either incorrect, expired, or not provided correctly";
        Problem::new(ErrorCode::InvalidKey, format!("Token {what} failed. {why}"))
    }
}
