//! Which metrics there are: TorchServe's `metrics.yaml` as plain values.
//!
//! The default is TorchServe's own file; the cli reads another one. A metric that is not declared is
//! neither shown nor logged.

/// How values of a metric add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// The last value stands.
    Gauge,
    /// How often values were how large.
    Histogram,
}

impl MetricKind {
    /// Its name in the Prometheus text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDeclaration {
    /// Its name.
    pub name: String,
    /// Its unit, as it is shown.
    pub unit: String,
    /// How its values add up.
    pub kind: MetricKind,
    /// The names of its labels, in order.
    pub dimensions: Vec<String>,
}

impl MetricDeclaration {
    /// A declaration.
    pub fn new(kind: MetricKind, name: &str, unit: &str, dimensions: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            kind,
            dimensions: dimensions.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// All metrics of TorchServe's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDeclarations {
    /// What the server measures (`ts_metrics`).
    pub server: Vec<MetricDeclaration>,
    /// What handlers report (`model_metrics`); the host's name is added to their labels.
    pub model: Vec<MetricDeclaration>,
}

impl MetricDeclarations {
    /// Nothing at all.
    pub fn nothing() -> Self {
        Self { server: Vec::new(), model: Vec::new() }
    }
}

/// TorchServe 0.12's `metrics.yaml`.
impl Default for MetricDeclarations {
    fn default() -> Self {
        let model = ["ModelName", "Level"];
        Self {
            server: server_defaults(),
            model: ["HandlerTime", "PredictionTime"]
                .map(|name| MetricDeclaration::new(MetricKind::Gauge, name, "ms", &model))
                .into(),
        }
    }
}

fn server_defaults() -> Vec<MetricDeclaration> {
    use MetricKind::{Counter, Gauge};
    let host: &[&str] = &["Level", "Hostname"];
    let model: &[&str] = &["model_name", "model_version", "hostname"];
    let worker: &[&str] = &["WorkerName", "Level", "Hostname"];
    let device: &[&str] = &["Level", "DeviceId", "Hostname"];
    let table = [
        (Counter, "Requests2XX", "Count", host),
        (Counter, "Requests4XX", "Count", host),
        (Counter, "Requests5XX", "Count", host),
        (Counter, "ts_inference_requests_total", "Count", model),
        (Counter, "ts_inference_latency_microseconds", "Microseconds", model),
        (Counter, "ts_queue_latency_microseconds", "Microseconds", model),
        (Gauge, "QueueTime", "Milliseconds", host),
        (Gauge, "WorkerThreadTime", "Milliseconds", host),
        (Gauge, "WorkerLoadTime", "Milliseconds", worker),
        (Gauge, "CPUUtilization", "Percent", host),
        (Gauge, "MemoryUsed", "Megabytes", host),
        (Gauge, "MemoryAvailable", "Megabytes", host),
        (Gauge, "MemoryUtilization", "Percent", host),
        (Gauge, "DiskUsage", "Gigabytes", host),
        (Gauge, "DiskUtilization", "Percent", host),
        (Gauge, "DiskAvailable", "Gigabytes", host),
        (Gauge, "GPUMemoryUtilization", "Percent", device),
        (Gauge, "GPUMemoryUsed", "Megabytes", device),
        (Gauge, "GPUUtilization", "Percent", device),
    ];
    let declare =
        |(kind, name, unit, dimensions)| MetricDeclaration::new(kind, name, unit, dimensions);
    table.into_iter().map(declare).collect()
}
