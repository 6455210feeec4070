//! The metrics of a server, as flags and files set them.

use std::time::Duration;

use jitney_server::metrics::{MetricDeclarations, MetricsMode};

use crate::machine;

/// How often the machine is sampled by default.
const SAMPLE_EVERY: Duration = Duration::from_secs(60);

/// The metrics of a server.
pub struct MetricsPlan {
    /// How TorchServe's metrics are published.
    pub mode: MetricsMode,
    /// The declared metrics.
    pub declared: MetricDeclarations,
    /// Whether undeclared metrics of handlers are accepted.
    pub auto_detect: bool,
    /// The host name in labels and log lines.
    pub hostname: String,
    /// How often the machine is sampled, if at all.
    pub sample_every: Option<Duration>,
}

/// Metrics are on the Prometheus page and not in a log.
impl Default for MetricsPlan {
    fn default() -> Self {
        Self {
            mode: MetricsMode::Prometheus,
            declared: MetricDeclarations::default(),
            auto_detect: false,
            hostname: machine::hostname(),
            sample_every: Some(SAMPLE_EVERY),
        }
    }
}
