//! What is measured and how it is told, as flags and files decide it.

use std::time::Duration;

use jitney_server::metrics::{MetricDeclarations, MetricsMode};

use crate::machine;

/// How often the machine is looked at unless said otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The metrics of a server to be.
pub struct MetricsPlan {
    /// How TorchServe's metrics are told.
    pub mode: MetricsMode,
    /// Which there are.
    pub declared: MetricDeclarations,
    /// Whether undeclared metrics of handlers are taken as they come.
    pub auto_detect: bool,
    /// The host's name in labels and lines.
    pub hostname: String,
    /// How often the machine is looked at, if at all.
    pub look_every: Option<Duration>,
}

/// Everything on the page, nothing in a log.
impl Default for MetricsPlan {
    fn default() -> Self {
        Self {
            mode: MetricsMode::Prometheus,
            declared: MetricDeclarations::default(),
            auto_detect: false,
            hostname: machine::hostname(),
            look_every: Some(LOOK_EVERY),
        }
    }
}
