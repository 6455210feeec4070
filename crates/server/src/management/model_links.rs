//! Which models a model calls, and which applications it is a part of.

use std::sync::Arc;

use jitney_engine::{Engine, Model};
use jitney_telemetry::{ModelLink, called_models};
use serde::Serialize;

/// What is said of them; only what there is to say.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModelLinks {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<ModelLink>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    part_of: Vec<ModelLink>,
}

impl ModelLinks {
    pub(super) fn of(engine: &Engine, model: &Arc<Model>) -> Self {
        let link = |root: Arc<Model>| ModelLink {
            model: root.name().to_owned(),
            version: Some(root.version().to_owned()),
        };
        let part_of = engine.applications_of(model).into_iter().map(link).collect();
        Self { depends_on: called_models(model), part_of }
    }
}
