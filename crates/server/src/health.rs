//! Whether the server is healthy, and what it calls itself.

use jitney_engine::Engine;
use jitney_settings::Dialect;
use serde::Serialize;

use crate::state::ServerState;

/// The server's name in the Open Inference Protocol. Clients of a repository of Triton's may ask for its name.
pub(crate) fn server_name(state: &ServerState) -> &'static str {
    match state.config.dialect {
        Dialect::Jitney if state.engine.repository().is_triton() => "triton",
        Dialect::Jitney => "jitney",
        Dialect::TorchServe => "Torchserve",
    }
}

/// The extensions of the protocol that it names.
pub(crate) fn extensions(state: &ServerState) -> Vec<&'static str> {
    match state.config.dialect {
        Dialect::Jitney => {
            let mut extensions = vec![
                "classification",
                "sequence",
                "model_repository",
                "schedule_policy",
                "model_configuration",
                "binary_tensor_data",
                "parameters",
                "statistics",
                "generate",
            ];
            extensions.extend(state.shared_memory.as_ref().map(|_| "system_shared_memory"));
            extensions
        }
        Dialect::TorchServe => vec!["kserve", "kubeflow"],
    }
}

/// The answer to a ping: TorchServe calls a server healthy whose workers are still being started. A
/// server that drains is unhealthy at once, so that load balancers send requests to others while it
/// still answers those it has admitted.
pub(crate) fn is_healthy(state: &ServerState) -> bool {
    match state.config.dialect {
        Dialect::Jitney => state.engine.is_ready(),
        Dialect::TorchServe => state.engine.healthy() && !state.engine.draining(),
    }
}

/// The state as TorchServe names it.
pub(crate) fn status(state: &ServerState) -> &'static str {
    if is_healthy(state) { "Healthy" } else { "Unhealthy" }
}

/// Whether a model can serve; none can while the server drains.
pub(crate) fn is_model_ready(engine: &Engine, model: &jitney_engine::Model) -> bool {
    model.can_be_asked() && !engine.draining()
}

/// A model in a verbose answer.
#[derive(Debug, Serialize)]
pub(crate) struct ModelHealth {
    name: String,
    version: String,
    ready: bool,
    /// Why, or why not.
    state: String,
}

/// What is ready and what is missing, model by model.
pub(crate) fn models(engine: &Engine) -> Vec<ModelHealth> {
    let health = |model: &std::sync::Arc<jitney_engine::Model>| {
        let readiness = model.readiness();
        ModelHealth {
            name: model.name().to_owned(),
            version: model.version().to_owned(),
            ready: readiness.is_ready(),
            state: readiness.to_string(),
        }
    };
    engine.models().iter().map(health).collect()
}
