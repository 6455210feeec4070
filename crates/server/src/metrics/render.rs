//! What stands on the metrics page, and in which order: TorchServe's metrics as they were declared,
//! those of handlers, then Jitney's own.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use jitney_engine::{Engine, Traffic};

use super::declared::{MetricDeclaration, MetricKind};
use super::family::{BOUNDS, MetricFamily, Series};
use super::own::{self, ModelSnapshot};
use super::page::MetricsPage;
use super::{Meter, MetricsMode, is_timed};

impl Meter {
    /// The page, or only the metrics that are named.
    pub(crate) fn page(&self, engine: &Engine, wanted: Vec<&str>) -> String {
        if self.mode == MetricsMode::Log {
            return String::new();
        }
        let snapshots = snapshots(engine);
        let mut page = MetricsPage::new(wanted);
        for (index, family) in self.server.iter().enumerate() {
            self.server_metric(&mut page, index, family, &snapshots);
        }
        if self.mode == MetricsMode::Prometheus {
            let families = self.model.read().unwrap_or_else(PoisonError::into_inner).clone();
            families.iter().for_each(|family| self.model_metric(&mut page, family, &snapshots));
        }
        own::write(&mut page, &snapshots, &self.hostname);
        page.finish()
    }

    /// Counters that stand elsewhere are read there; the others have a family of series.
    fn server_metric(
        &self,
        page: &mut MetricsPage<'_>,
        index: usize,
        family: &MetricFamily,
        snapshots: &[ModelSnapshot],
    ) {
        let known = &self.known;
        let this = Some(index);
        let traffic: Option<fn(&Traffic) -> &AtomicU64> = if this == known.requests {
            Some(|traffic| &traffic.requests)
        } else if this == known.latency {
            Some(|traffic| &traffic.latency_us)
        } else if this == known.queue {
            Some(|traffic| &traffic.queue_us)
        } else {
            None
        };
        let answers = known.answers.iter().position(|at| *at == this);
        if let Some(read) = traffic {
            self.traffic(page, &family.declaration, snapshots, read);
        } else if self.mode == MetricsMode::Legacy {
            // Everything else is logged.
        } else if let Some(class) = answers {
            self.answers(page, &family.declaration, class);
        } else if begin(page, &family.declaration, family.declaration.kind) {
            family.each(|labels, series| self.series(page, family, labels, true, series));
        }
    }

    fn traffic(
        &self,
        page: &mut MetricsPage<'_>,
        declaration: &MetricDeclaration,
        snapshots: &[ModelSnapshot],
        read: fn(&Traffic) -> &AtomicU64,
    ) {
        if !begin(page, declaration, MetricKind::Counter) {
            return;
        }
        for snapshot in snapshots {
            let (name, version) = (snapshot.model.name(), snapshot.model.version());
            for (named, label) in [(false, "default"), (true, version)] {
                let traffic = snapshot.model.traffic(named);
                if traffic.requests.load(Relaxed) > 0
                    && let Some(labels) = self.labels(declaration, &[name, label], true)
                {
                    page.sample(&labels, read(traffic).load(Relaxed) as f64);
                }
            }
        }
    }

    fn answers(&self, page: &mut MetricsPage<'_>, declaration: &MetricDeclaration, class: usize) {
        let count = self.answers.0[class].load(Relaxed);
        if begin(page, declaration, MetricKind::Counter)
            && count > 0
            && let Some(labels) = self.labels(declaration, &["Host"], true)
        {
            page.sample(&labels, count as f64);
        }
    }

    fn model_metric(
        &self,
        page: &mut MetricsPage<'_>,
        family: &MetricFamily,
        snapshots: &[ModelSnapshot],
    ) {
        let declaration = &family.declaration;
        if !begin(page, declaration, declaration.kind) {
            return;
        }
        let mut shown: HashSet<String> = HashSet::new();
        family.each(|labels, series| {
            self.series(page, family, labels, false, series);
            shown.insert(labels.join(","));
        });
        if is_timed(declaration) && declaration.kind == MetricKind::Gauge {
            for snapshot in snapshots.iter().filter(|snapshot| snapshot.model.tag().python) {
                self.last_time(page, declaration, snapshot, &mut shown);
            }
        }
    }

    /// The time of a model's last batch, unless its handler reports it itself. The label does not
    /// tell versions apart, so the default one goes first and is the one that is shown.
    fn last_time(
        &self,
        page: &mut MetricsPage<'_>,
        declaration: &MetricDeclaration,
        snapshot: &ModelSnapshot,
        shown: &mut HashSet<String>,
    ) {
        let values = [snapshot.model.name(), "Model"];
        if let Some(last_us) = snapshot.measures.compute_last_us
            && shown.insert(values.join(","))
            && let Some(labels) = self.labels(declaration, &values, false)
        {
            page.sample(&labels, last_us as f64 / 1000.0);
        }
    }

    fn series(
        &self,
        page: &mut MetricsPage<'_>,
        family: &MetricFamily,
        labels: &[&str],
        host_declared: bool,
        series: &Series,
    ) {
        let Some(labels) = self.labels(&family.declaration, labels, host_declared) else { return };
        match family.declaration.kind {
            MetricKind::Counter | MetricKind::Gauge => page.sample(&labels, series.value()),
            MetricKind::Histogram => {
                page.histogram(&labels, BOUNDS.into_iter(), &series.counts(), series.value());
            }
        }
    }

    /// MetricNames and values, the host's last. Nothing if the declaration has other labels than there
    /// are values.
    fn labels<'a>(
        &'a self,
        declaration: &'a MetricDeclaration,
        values: &[&'a str],
        host_declared: bool,
    ) -> Option<Vec<(&'a str, &'a str)>> {
        let added = if host_declared { None } else { Some("Hostname") };
        let names = declaration.dimensions.iter().map(String::as_str).chain(added);
        let values = values.iter().copied().chain([self.hostname.as_str()]);
        names.clone().count().eq(&values.clone().count()).then(|| names.zip(values).collect())
    }
}

fn begin(page: &mut MetricsPage<'_>, declaration: &MetricDeclaration, kind: MetricKind) -> bool {
    let (word, unit) = (kind.as_str(), &declaration.unit);
    let help = format!("Torchserve prometheus {word} metric with unit: {unit}");
    page.begin(&declaration.name, kind, &help)
}

/// Every version of every model, the default one of each first.
fn snapshots(engine: &Engine) -> Vec<ModelSnapshot> {
    let mut snapshots = Vec::new();
    for default in engine.models() {
        let mut versions = engine.versions(default.name()).unwrap_or_default();
        versions.sort_by_key(|model| model.version() != default.version());
        for model in versions {
            snapshots.push(ModelSnapshot {
                status: model.status(),
                measures: model.measures(),
                model,
            });
        }
    }
    snapshots
}
