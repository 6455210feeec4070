//! What a request is about to do, in the words of no protocol: the plugin that authorizes is told this,
//! whichever way the request came in.

use std::sync::Arc;

use jitney_engine::{Engine, Model};
use serde::Serialize;

use crate::route::{ModelRef, PathNames};

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
    /// Jobs of one's own: which there are, how far they are, their results, their ends.
    Job,
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
    /// Reading what everybody may read: plugins are not asked.
    Public,
}

impl GuardedOperation {
    /// Whether it changes the server.
    pub(crate) fn changes(self) -> bool {
        matches!(
            self,
            Self::Register
                | Self::Scale
                | Self::SetDefault
                | Self::Unregister
                | Self::RegisterWorkflow
                | Self::UnregisterWorkflow
                | Self::RenewToken
                | Self::SetLogLevel
        )
    }

    /// Whether it runs a model, for which shares may choose the version.
    pub(crate) fn predicts(self) -> bool {
        matches!(self, Self::Predict | Self::Explain)
    }

    /// Whether it asks for health or readiness, which may need no key.
    pub(crate) fn tells_health(self) -> bool {
        matches!(self, Self::Health | Self::Ready)
    }
}

/// An operation, and the model or workflow it is for.
pub(crate) struct Intent<'a> {
    pub(crate) operation: GuardedOperation,
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

    /// What a REST request is about to do, as far as its path tells. Nothing for what everybody may read.
    pub(crate) fn of(
        operation: GuardedOperation,
        names: &PathNames<'a>,
        engine: &Engine,
    ) -> Option<Self> {
        if operation == GuardedOperation::Public {
            return None;
        }
        let target = names.model.map(|_| names.target());
        let model = target.and_then(|it| engine.model(it.model, it.version).ok());
        Some(Self { operation, target, workflow: names.workflow, model })
    }

    pub(crate) fn model_name(&self) -> Option<&str> {
        self.target.map(|target| target.model)
    }

    /// The version that would answer; the one that is named where there is none.
    pub(crate) fn version(&self) -> Option<&str> {
        let found = self.model.as_ref().map(|model| model.version());
        found.or_else(|| self.target.and_then(|target| target.version))
    }
}
