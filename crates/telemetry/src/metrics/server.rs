//! What the server itself measures: TorchServe's `ts_metrics`.

use std::sync::atomic::AtomicU64;

use jitney_engine::Traffic;

use super::family::{MetricDeclaration, MetricFamily};

/// The declared metrics, in order; the log names them by their index.
#[derive(Debug)]
pub(super) struct ServerMetrics {
    pub(super) families: Vec<MetricFamily>,
    pub(super) answers: [Option<usize>; 3],
    pub(super) requests: Option<usize>,
    pub(super) latency: Option<usize>,
    pub(super) queue: Option<usize>,
    pub(super) queue_time: Option<usize>,
    pub(super) worker_thread_time: Option<usize>,
    pub(super) worker_load_time: Option<usize>,
}

/// Where the values of a metric are.
pub(super) enum MetricSource {
    /// The models count it.
    Traffic(fn(&Traffic) -> &AtomicU64),
    /// The meter counts answers by the class of their status.
    Answers(usize),
    /// The family's own series.
    Series,
}

impl ServerMetrics {
    pub(super) fn new(declared: Vec<MetricDeclaration>) -> Self {
        let families: Vec<_> = declared.into_iter().map(MetricFamily::new).collect();
        let at = |name: &str| families.iter().position(|known| known.declaration.name == name);
        Self {
            answers: ["Requests2XX", "Requests4XX", "Requests5XX"].map(at),
            requests: at("ts_inference_requests_total"),
            latency: at("ts_inference_latency_microseconds"),
            queue: at("ts_queue_latency_microseconds"),
            queue_time: at("QueueTime"),
            worker_thread_time: at("WorkerThreadTime"),
            worker_load_time: at("WorkerLoadTime"),
            families,
        }
    }

    /// The index of a metric, if it is declared.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.families.iter().position(|known| known.declaration.name == name)
    }

    pub(super) fn source(&self, index: usize) -> MetricSource {
        let this = Some(index);
        if this == self.requests {
            MetricSource::Traffic(|traffic| &traffic.requests)
        } else if this == self.latency {
            MetricSource::Traffic(|traffic| &traffic.latency_us)
        } else if this == self.queue {
            MetricSource::Traffic(|traffic| &traffic.queue_us)
        } else if let Some(class) = self.answers.iter().position(|at| *at == this) {
            MetricSource::Answers(class)
        } else {
            MetricSource::Series
        }
    }
}
