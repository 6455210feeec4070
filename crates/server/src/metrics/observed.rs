//! What the engine tells the meter.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jitney_engine::observer::BatchFinished;
use jitney_engine::{ModelTag, Observer};
use serde_json::json;

use super::declared::{MetricDeclaration, MetricKind};
use super::journal::{MetricEntry, MetricSubject};
use super::{Meter, MetricsMode, millis, worker_name};

impl Observer for Meter {
    fn worker_loaded(&self, model: &Arc<ModelTag>, worker: u32, took: Duration) {
        let metric = self.known.worker_load_time;
        match (self.mode, metric) {
            (MetricsMode::Prometheus, Some(metric)) => {
                self.server[metric].record(&[&worker_name(model, worker), "Host"], millis(took));
            }
            _ => self.log(metric, millis(took), || MetricSubject::Worker {
                model: Arc::clone(model),
                worker,
            }),
        }
    }

    fn batch_finished(&self, batch: &BatchFinished<'_>) {
        self.host(self.known.worker_thread_time, millis(batch.handling));
        if !batch.model.python {
            return;
        }
        // As gauges they are read from the models when the page is asked for.
        if self.mode == MetricsMode::Prometheus {
            for family in
                self.timed.iter().filter(|known| known.declaration.kind != MetricKind::Gauge)
            {
                family.record(&[&batch.model.name, "Model"], millis(batch.compute));
            }
        } else if let Some(journal) = &self.journal {
            let ids: Vec<&str> = batch.request_ids().collect();
            let (model, requests) = (Arc::clone(batch.model), ids.join(","));
            journal.push(MetricEntry::Batch { model, millis: millis(batch.compute), requests });
        }
    }

    fn model_metrics(&self) -> serde_json::Value {
        let mut kinds = serde_json::Map::new();
        for family in self.model.read().unwrap_or_else(PoisonError::into_inner).iter() {
            let MetricDeclaration { name, unit, kind, dimensions } = &family.declaration;
            let metric = json!({"name": name, "unit": unit, "dimensions": dimensions});
            let list = kinds.entry(kind.as_str()).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(metric);
            }
        }
        kinds.into()
    }

    fn metric_printed(&self, line: &str) {
        self.printed(line);
    }
}
