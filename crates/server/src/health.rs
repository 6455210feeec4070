//! Whether the server is healthy, and what it calls itself.

use jitney_engine::Engine;

/// The server's name in the Open Inference Protocol.
pub(crate) const SERVER_NAME: &str = "Torchserve";
/// The extensions that it names.
pub(crate) const EXTENSIONS: [&str; 2] = ["kserve", "kubeflow"];

/// Whether the server takes requests. A server that drains is unhealthy at once, so that load
/// balancers send requests to others while it still answers those it has admitted.
pub(crate) fn is_ready(engine: &Engine) -> bool {
    engine.healthy() && !engine.draining()
}

/// The state as TorchServe names it.
pub(crate) fn status(engine: &Engine) -> &'static str {
    if is_ready(engine) { "Healthy" } else { "Unhealthy" }
}
