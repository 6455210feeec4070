//! What the engine reports to the meter: workers, batches, and metrics that handlers print.

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::ModelTag;
use jitney_engine::observer::BatchFinished;

use super::family::MetricFamily;
use super::log::{MetricLogEntry, MetricSubject, metric_text, millis};
use super::printed::PrintedMetric;
use super::{Meter, MetricKind, MetricsMode};

/// What the engine reports.
impl Meter {
    /// A worker has loaded its model.
    pub(crate) fn worker_loaded(&self, model: &Arc<ModelTag>, worker: u32, took: Duration) {
        let subject = MetricSubject::Worker { model: Arc::clone(model), worker };
        self.record(self.server.worker_load_time, millis(took), subject);
    }

    /// A batch was answered.
    pub(crate) fn batch_finished(&self, batch: &BatchFinished<'_>) {
        self.record_host(self.server.worker_thread_time, millis(batch.handling));
        if !batch.model.python {
            return;
        }
        let (name, millis) = (&batch.model.name, millis(batch.compute));
        // Gauges are read from the models when the page is requested.
        if self.mode == MetricsMode::Prometheus {
            let not_read = |known: &&Arc<MetricFamily>| known.declaration.kind != MetricKind::Gauge;
            for family in self.handlers.timed.iter().filter(not_read) {
                family.record(vec![name.clone(), "Model".to_owned()], millis);
            }
        } else if let Some(log) = &self.log {
            let ids: Vec<&str> = batch.request_ids().collect();
            let (model, requests) = (Arc::clone(batch.model), ids.join(","));
            log.push(MetricLogEntry::Batch { model, millis, requests });
        }
    }

    /// The metrics of handlers, for workers.
    pub(crate) fn model_metrics(&self) -> serde_json::Value {
        self.handlers.declarations()
    }

    /// Only lines of the log name requests.
    pub(crate) fn wants_metric_ids(&self) -> bool {
        self.mode != MetricsMode::Prometheus && self.log.is_some()
    }

    /// Adds what a definition counts for itself.
    pub(crate) fn own_metric_printed(&self, model: &str, version: &str, line: &str) {
        if let Err(why) = self.custom.update(model, version, line) {
            tracing::debug!(model, version, why, "a metric was not taken");
        }
    }

    /// Records a metric that a worker printed, if it is declared or detected.
    pub(crate) fn metric_printed(&self, line: &str) {
        let Some(metric) = PrintedMetric::parse(line) else {
            tracing::debug!(line, "not a metric");
            return;
        };
        let reserved = |name: &str| name.starts_with("jitney_") || self.server.find(name).is_some();
        let Some(family) = self.handlers.family(&metric, reserved) else { return };
        let value = |name: &String| metric.dimensions.iter().find(|(known, _)| known == name);
        let found = family.declaration.dimensions.iter().map(|name| value(name).map(|(_, v)| *v));
        match found.collect::<Option<Vec<&str>>>() {
            Some(labels) => self.handler_value(&family, labels, &metric),
            None => tracing::debug!(metric = metric.name, "metric without its dimensions"),
        }
    }

    fn handler_value(&self, family: &MetricFamily, labels: Vec<&str>, metric: &PrintedMetric<'_>) {
        if self.mode == MetricsMode::Prometheus {
            return family.record(labels.into_iter().map(str::to_owned).collect(), metric.value);
        }
        let text = metric_text(&family.declaration, &labels, false, metric.value);
        if let (Some(log), Some(text)) = (&self.log, text) {
            log.push(MetricLogEntry::Model { text, requests: metric.requests.to_owned() });
        }
    }
}
