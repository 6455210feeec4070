//! Metrics that handlers report: whether they are wanted, and under which labels.
//!
//! Called on the threads that read the workers' output, never on a request's way, so it may lock. A
//! handler can fill its own metrics and nobody else's, and only so many of them.

use std::sync::{Arc, PoisonError};

use super::declared::MetricDeclaration;
use super::family::MetricFamily;
use super::journal::MetricEntry;
use super::line::PrintedMetric;
use super::{Meter, MetricsMode, written};

/// Metrics of handlers, declared and detected.
const METRICS_MAX: usize = 256;

impl Meter {
    /// Records a line that a worker printed, if it is a metric that somebody wants.
    pub(super) fn printed(&self, line: &str) {
        let Some(line) = PrintedMetric::parse(line) else {
            tracing::debug!(line, "not a metric");
            return;
        };
        let Some(family) = self.family(&line) else { return };
        let value = |name: &String| line.dimensions.iter().find(|(known, _)| known == name);
        let found = family.declaration.dimensions.iter().map(|name| value(name).map(|(_, v)| *v));
        match found.collect::<Option<Vec<&str>>>() {
            Some(labels) => self.report(&family, &labels, &line),
            None => tracing::debug!(metric = line.name, "metric without its dimensions"),
        }
    }

    /// The family that a handler's metric belongs to.
    fn family(&self, line: &PrintedMetric<'_>) -> Option<Arc<MetricFamily>> {
        let find = |families: &[Arc<MetricFamily>]| {
            families.iter().find(|known| known.declaration.name == line.name).cloned()
        };
        let found = find(&self.model.read().unwrap_or_else(PoisonError::into_inner));
        if found.is_some() || !self.auto_detect || self.is_taken(line.name) {
            return found;
        }
        let mut families = self.model.write().unwrap_or_else(PoisonError::into_inner);
        // Another worker may have been first.
        let found = find(&families);
        if found.is_some() || families.len() >= METRICS_MAX {
            return found;
        }
        let names: Vec<&str> = line.dimensions.iter().map(|(name, _)| *name).collect();
        let declaration = MetricDeclaration::new(line.kind, line.name, line.unit, &names);
        families.push(Arc::new(MetricFamily::new(declaration)));
        families.last().cloned()
    }

    /// MetricNames of the server's own, which a handler cannot take.
    fn is_taken(&self, name: &str) -> bool {
        name.starts_with("jitney_")
            || self.server.iter().any(|known| known.declaration.name == name)
    }

    fn report(&self, family: &MetricFamily, labels: &[&str], line: &PrintedMetric<'_>) {
        if self.mode == MetricsMode::Prometheus {
            return family.record(labels, line.value);
        }
        let text = written::text(&family.declaration, labels, false, line.value);
        if let (Some(journal), Some(text)) = (&self.journal, text) {
            journal.push(MetricEntry::Model { text, requests: line.requests.to_owned() });
        }
    }
}
