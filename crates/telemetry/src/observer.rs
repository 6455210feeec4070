//! What the engine tells goes to the meter, and to the tracer where there is one.

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::observer::{BatchEnded, BatchFinished};
use jitney_engine::{ModelTag, Observer};

use crate::metrics::Meter;
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
        self.meter.worker_loaded(model, worker, took);
    }

    fn batch_finished(&self, batch: &BatchFinished<'_>) {
        self.meter.batch_finished(batch);
    }

    fn wants_marks(&self) -> bool {
        self.tracer.is_some()
    }

    fn batch_ended(&self, batch: &BatchEnded<'_>) {
        if let Some(tracer) = &self.tracer {
            trace::batch_ended(tracer, batch);
        }
    }

    fn model_metrics(&self) -> serde_json::Value {
        self.meter.model_metrics()
    }

    fn wants_metric_ids(&self) -> bool {
        self.meter.wants_metric_ids()
    }

    fn own_metric_printed(&self, model: &str, version: &str, line: &str) {
        self.meter.own_metric_printed(model, version, line);
    }

    fn metric_printed(&self, line: &str) {
        self.meter.metric_printed(line);
    }
}
