//! What a request is about to do, in the words of no protocol: the plugin that authorizes is told this,
//! whichever way the request came in.

use std::sync::Arc;

use jitney_engine::{Engine, Model};

use crate::auth::GuardedOperation;
use crate::route::{ModelRef, PathNames};

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
