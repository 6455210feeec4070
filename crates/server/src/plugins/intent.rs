//! What a request is about to do, in the words of no protocol: the plugin that authorizes is told this,
//! whichever way the request came in.

use std::sync::Arc;

use jitney_engine::{Engine, Model};
use serde::Serialize;

use crate::route::{ModelRef, MountedRoute, OpenInferenceRoute, PredictRoute, Route};

/// What can be done with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuardedOperation {
    /// A prediction.
    Predict,
    /// An explanation.
    Explain,
    /// A request through a workflow.
    RunWorkflow,
    /// A connection of Python calls; each of them is a prediction then.
    Connect,
    /// The server's health and readiness.
    Health,
    /// A model's readiness.
    Ready,
    /// What the server or a model is.
    Metadata,
    /// All models.
    List,
    /// A new model.
    Register,
    /// A model's settings, workers, batching and statistics.
    Describe,
    /// Other workers or settings of a model.
    Scale,
    /// Another default version.
    SetDefault,
    /// The end of a model or version.
    Unregister,
    /// All workflows.
    ListWorkflows,
    /// A new workflow.
    RegisterWorkflow,
    /// What a workflow is made of.
    DescribeWorkflow,
    /// The end of a workflow.
    UnregisterWorkflow,
    /// A new key in place of an old one.
    RenewToken,
    /// Memory that clients share with the server: what is registered, more of it, less of it.
    ShareMemory,
    /// The lines of the log, and what is logged.
    ReadLog,
    /// Something else is to be logged.
    SetLogLevel,
    /// A path that a plugin answers.
    Endpoint,
    /// The descriptions of gRPC's services.
    Reflect,
    /// Nothing that the server knows.
    Unknown,
}

/// An operation, and the model or workflow it is for.
pub(crate) struct Intent<'a> {
    pub(super) operation: GuardedOperation,
    /// The model as the request names it.
    target: Option<ModelRef<'a>>,
    pub(super) workflow: Option<&'a str>,
    /// The version that it is at the moment, if there is one.
    pub(crate) model: Option<Arc<Model>>,
}

impl<'a> Intent<'a> {
    /// What is for no model.
    pub(crate) fn plain(operation: GuardedOperation) -> Self {
        Self { operation, target: None, workflow: None, model: None }
    }

    /// What is for a model; `model` is the version that it comes to, if there is one.
    pub(crate) fn with_model(
        operation: GuardedOperation,
        target: ModelRef<'a>,
        model: Option<Arc<Model>>,
    ) -> Self {
        Self { target: Some(target), model, ..Self::plain(operation) }
    }

    fn with_workflow(operation: GuardedOperation, name: &'a str) -> Self {
        Self { workflow: Some(name), ..Self::plain(operation) }
    }

    /// What a REST request is about to do, as far as its path tells. Nothing for API descriptions and
    /// metrics, which everybody may read.
    pub(crate) fn of(route: &Route<'a>, engine: &Engine) -> Option<Self> {
        let to_model = |operation, target: ModelRef<'a>| {
            let model = engine.model(target.model, target.version).ok();
            Self::with_model(operation, target, model)
        };
        Some(match *route {
            Route::Description
            | Route::Home
            | Route::Dashboard(_)
            | Route::OpenApi
            | Route::Docs
            | Route::Metrics => return None,
            Route::Predict(PredictRoute { target, explain: Some(true), .. })
            | Route::Instances(PredictRoute { target, explain: Some(true), .. }) => {
                to_model(GuardedOperation::Explain, target)
            }
            Route::Predict(PredictRoute { target, .. })
            | Route::Instances(PredictRoute { target, .. })
            | Route::Mounted(MountedRoute { target, .. }) => {
                to_model(GuardedOperation::Predict, target)
            }
            Route::Invocations | Route::Embeddings => Self::plain(GuardedOperation::Predict),
            Route::RunWorkflow(name) => Self::with_workflow(GuardedOperation::RunWorkflow, name),
            Route::Handle => Self::plain(GuardedOperation::Connect),
            Route::Ping
            | Route::Alive
            | Route::SagemakerPing
            | Route::OpenInference(OpenInferenceRoute::Live | OpenInferenceRoute::Ready) => {
                Self::plain(GuardedOperation::Health)
            }
            Route::OpenInference(
                OpenInferenceRoute::Metadata(target) | OpenInferenceRoute::Config(target),
            ) => to_model(GuardedOperation::Metadata, target),
            Route::OpenInference(OpenInferenceRoute::Statistics(Some(target))) => {
                to_model(GuardedOperation::Describe, target)
            }
            Route::OpenInference(OpenInferenceRoute::Statistics(None)) => {
                Self::plain(GuardedOperation::List)
            }
            Route::OpenInference(OpenInferenceRoute::ModelReady(target)) => {
                to_model(GuardedOperation::Ready, target)
            }
            Route::OpenInference(OpenInferenceRoute::SharedMemory(_)) => {
                Self::plain(GuardedOperation::ShareMemory)
            }
            Route::ExecutionParameters
            | Route::ModelNames
            | Route::OipVersions
            | Route::OpenInference(
                OpenInferenceRoute::Server
                | OpenInferenceRoute::TraceSettings { .. }
                | OpenInferenceRoute::LogSettings { .. }
                | OpenInferenceRoute::Infer(_)
                | OpenInferenceRoute::WrongMethod
                | OpenInferenceRoute::Unknown,
            ) => Self::plain(GuardedOperation::Metadata),
            Route::PredictDescription(target) | Route::ManageDescription(target) => {
                to_model(GuardedOperation::Metadata, target)
            }
            Route::ModelReady(target) => to_model(GuardedOperation::Ready, target),
            Route::List | Route::Overview | Route::OverviewStream | Route::RepositoryIndex => {
                Self::plain(GuardedOperation::List)
            }
            Route::Logs | Route::LogStream | Route::LogLevel { changes: false } => {
                Self::plain(GuardedOperation::ReadLog)
            }
            Route::LogLevel { changes: true } => Self::plain(GuardedOperation::SetLogLevel),
            Route::RepositoryLoad(model) => {
                to_model(GuardedOperation::Register, ModelRef { model, version: None })
            }
            Route::RepositoryUnload(model) => {
                to_model(GuardedOperation::Unregister, ModelRef { model, version: None })
            }
            Route::Register => Self::plain(GuardedOperation::Register),
            Route::Describe(target) | Route::Batching(target) | Route::Statistics(target) => {
                to_model(GuardedOperation::Describe, target)
            }
            Route::Scale(target) => to_model(GuardedOperation::Scale, target),
            Route::Unregister(target) => to_model(GuardedOperation::Unregister, target),
            Route::SetDefault { model, version } => {
                to_model(GuardedOperation::SetDefault, ModelRef { model, version: Some(version) })
            }
            Route::ListWorkflows => Self::plain(GuardedOperation::ListWorkflows),
            Route::RegisterWorkflow => Self::plain(GuardedOperation::RegisterWorkflow),
            Route::DescribeWorkflow(name) => {
                Self::with_workflow(GuardedOperation::DescribeWorkflow, name)
            }
            Route::UnregisterWorkflow(name) => {
                Self::with_workflow(GuardedOperation::UnregisterWorkflow, name)
            }
            Route::RenewToken => Self::plain(GuardedOperation::RenewToken),
            Route::MethodNotAllowed | Route::NotFound => Self::plain(GuardedOperation::Unknown),
        })
    }

    pub(super) fn model_name(&self) -> Option<&str> {
        self.target.map(|target| target.model)
    }

    /// The version that would answer; the one that is named where there is none.
    pub(super) fn version(&self) -> Option<&str> {
        let found = self.model.as_ref().map(|model| model.version());
        found.or_else(|| self.target.and_then(|target| target.version))
    }
}
