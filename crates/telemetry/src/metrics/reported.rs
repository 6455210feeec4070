//! What the engine reports: workers, batches, and metrics that handlers print. It goes to the meter, and to the
//! tracer where there is one.

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::observer::{BatchEnded, BatchFinished, PrintedBy};
use jitney_engine::{ModelTag, Observer};

use super::family::{MetricFamily, millis};
use super::log::{MetricLogEntry, metric_text};
use super::printed::PrintedMetric;
use super::subject::MetricSubject;
use super::{Meter, MetricKind, MetricsMode};
use crate::trace::{self, Tracer};

/// The one observer of an engine.
#[derive(Debug)]
pub struct EngineObserver {
    /// Counts and times.
    pub meter: Arc<Meter>,
    /// Traces requests, if anything does.
    pub tracer: Option<Arc<Tracer>>,
}

impl Observer for EngineObserver {
    fn worker_loaded(&self, model: &Arc<ModelTag>, worker: u32, took: Duration) {
        let subject = MetricSubject::Worker { model: Arc::clone(model), worker };
        self.meter.record(self.meter.server.worker_load_time, millis(took), subject);
    }

    fn batch_finished(&self, batch: &BatchFinished<'_>) {
        self.meter.record_host(self.meter.server.worker_thread_time, millis(batch.handling));
        if !batch.model.python {
            return;
        }
        let (name, millis) = (&batch.model.name, millis(batch.compute));
        // Gauges are read from the models when the page is requested.
        if self.meter.mode == MetricsMode::Prometheus {
            let not_read = |known: &&Arc<MetricFamily>| known.declaration.kind != MetricKind::Gauge;
            for family in self.meter.handlers.timed.iter().filter(not_read) {
                family.record(vec![name.clone(), "Model".to_owned()], millis);
            }
        } else if let Some(log) = &self.meter.log {
            let ids: Vec<&str> = batch.request_ids().collect();
            let (model, requests) = (Arc::clone(batch.model), ids.join(","));
            log.push(MetricLogEntry::Batch { model, millis, requests });
        }
    }

    fn model_metrics(&self) -> serde_json::Value {
        self.meter.handlers.declarations()
    }

    fn wants_metric_ids(&self) -> bool {
        self.meter.mode != MetricsMode::Prometheus && self.meter.log.is_some()
    }

    fn own_metric_printed(&self, by: PrintedBy<'_>, line: &str) {
        if let Err(why) = self.meter.custom.update(by, line) {
            let PrintedBy { model, version, .. } = by;
            tracing::debug!(model, version, why, "a metric was not taken");
        }
    }

    fn printing_ended(&self, by: PrintedBy<'_>) {
        self.meter.custom.ended(by);
    }

    fn metric_printed(&self, line: &str) {
        let Some(metric) = PrintedMetric::parse(line) else {
            tracing::debug!(line, "not a metric");
            return;
        };
        let reserved =
            |name: &str| name.starts_with("jitney_") || self.meter.server.find(name).is_some();
        let Some(family) = self.meter.handlers.family(&metric, reserved) else { return };
        let value = |name: &String| metric.dimensions.iter().find(|(known, _)| known == name);
        let found = family.declaration.dimensions.iter().map(|name| value(name).map(|(_, v)| *v));
        match found.collect::<Option<Vec<&str>>>() {
            Some(labels) => self.meter.handler_value(&family, labels, &metric),
            None => tracing::debug!(metric = metric.name, "metric without its dimensions"),
        }
    }

    fn wants_marks(&self) -> bool {
        self.tracer.is_some()
    }

    fn batch_ended(&self, batch: &BatchEnded<'_>) {
        if let Some(tracer) = &self.tracer {
            trace::batch_ended(tracer, batch);
        }
    }
}

impl Meter {
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
