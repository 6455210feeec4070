//! Metrics that handlers report: the declared ones, then those that were detected.
//!
//! Used by the threads that read the workers' output, never by a request, so it may lock. A handler can
//! fill only its own metrics, and only so many of them.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};

use super::family::{MetricDeclaration, MetricDeclarations, MetricFamily, MetricKind};
use super::printed::PrintedMetric;

/// Metrics of handlers at most, declared and detected.
const METRICS_MAX: usize = 256;

/// The metric that holds the time of a batch of a Python model. `HandlerTime` beside it is reported by
/// handlers that are based on TorchServe's, and by nobody else.
const TIMED: &str = "PredictionTime";

/// The declarations, with the time of a batch among them where metrics are detected and nobody has
/// declared it.
pub(super) fn with_detected(mut declared: MetricDeclarations) -> MetricDeclarations {
    if !declared.model.iter().chain(&declared.server).any(|metric| metric.name == TIMED) {
        let dimensions = ["ModelName", "Level"];
        let detected =
            MetricDeclaration::new(MetricKind::Gauge, TIMED, "Milliseconds", &dimensions);
        declared.model.push(detected);
    }
    declared
}

#[derive(Debug)]
pub(super) struct HandlerMetrics {
    families: RwLock<Vec<Arc<MetricFamily>>>,
    /// Those among the declared ones that hold the time of a batch.
    pub(super) timed: Vec<Arc<MetricFamily>>,
    /// Whether metrics that are not declared are taken as they come.
    auto_detect: bool,
}

impl HandlerMetrics {
    pub(super) fn new(declared: Vec<MetricDeclaration>, auto_detect: bool) -> Self {
        let families: Vec<_> =
            declared.into_iter().map(|metric| Arc::new(MetricFamily::new(metric))).collect();
        let timed = families.iter().filter(|family| is_timed(&family.declaration));
        Self { timed: timed.cloned().collect(), families: RwLock::new(families), auto_detect }
    }

    pub(super) fn families(&self) -> Vec<Arc<MetricFamily>> {
        self.families.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The family of a metric that a handler printed; a new one where metrics are detected and the
    /// name is not `reserved`.
    pub(super) fn family(
        &self,
        metric: &PrintedMetric<'_>,
        reserved: impl Fn(&str) -> bool,
    ) -> Option<Arc<MetricFamily>> {
        let find = |families: &[Arc<MetricFamily>]| {
            families.iter().find(|known| known.declaration.name == metric.name).cloned()
        };
        let found = find(&self.families.read().unwrap_or_else(PoisonError::into_inner));
        if found.is_some() || !self.auto_detect || reserved(metric.name) {
            return found;
        }
        let mut families = self.families.write().unwrap_or_else(PoisonError::into_inner);
        // Another worker may have been first.
        let found = find(&families);
        if found.is_some() || families.len() >= METRICS_MAX {
            return found;
        }
        let names: Vec<&str> = metric.dimensions.iter().map(|(name, _)| *name).collect();
        let declaration = MetricDeclaration::new(metric.kind, metric.name, metric.unit, &names);
        families.push(Arc::new(MetricFamily::new(declaration)));
        families.last().cloned()
    }

    /// The declarations as workers read them.
    pub(super) fn declarations(&self) -> Value {
        let mut kinds = serde_json::Map::new();
        for family in self.families() {
            let MetricDeclaration { name, unit, kind, dimensions } = &family.declaration;
            let metric = json!({"name": name, "unit": unit, "dimensions": dimensions});
            let list = kinds.entry(kind.as_str()).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(metric);
            }
        }
        kinds.into()
    }
}

/// Whether it holds the time of a batch; with other labels than usual, only handlers fill it.
pub(super) fn is_timed(metric: &MetricDeclaration) -> bool {
    metric.name == TIMED && metric.dimensions == ["ModelName", "Level"]
}
