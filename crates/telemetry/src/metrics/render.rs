//! Writes metrics on the page: of the server, of handlers, of Jitney.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use jitney_engine::{Engine, Traffic};

use super::custom::CustomMetrics;
use super::family::{BOUNDS, MetricDeclaration, MetricFamily, MetricKind, MetricSeries};
use super::format::PageFormat;
use super::handlers::is_timed;
use super::named;
use super::own::{self, ModelSnapshot};
use super::page::{HistogramCounts, MetricsPage};
use super::process::ProcessReader;
use super::whole::ServerSnapshot;

/// A page, and what its metrics are read from.
pub(super) struct PageRenderer<'a> {
    page: MetricsPage<'a>,
    hostname: &'a str,
    snapshots: Vec<ModelSnapshot>,
    server: ServerSnapshot,
}

impl<'a> PageRenderer<'a> {
    /// An empty page for these metrics, or for all if none is named.
    pub(super) fn new(
        names: Vec<&'a str>,
        format: PageFormat,
        hostname: &'a str,
        snapshots: Vec<ModelSnapshot>,
        server: ServerSnapshot,
    ) -> Self {
        Self { page: MetricsPage::new(names, format), hostname, snapshots, server }
    }

    /// What models count for themselves, and what is known by other names.
    pub(super) fn models(&mut self, custom: &CustomMetrics) {
        custom.write(&mut self.page, &self.snapshots, self.hostname);
        named::write(&mut self.page, &self.snapshots);
    }

    /// The page with Jitney's own metrics at its end.
    pub(super) fn finish(mut self) -> Vec<u8> {
        own::write(&mut self.page, &self.snapshots, self.hostname);
        self.server.write(&mut self.page, self.hostname);
        self.page.finish()
    }

    /// A counter that the models hold.
    pub(super) fn traffic(
        &mut self,
        declaration: &MetricDeclaration,
        read: fn(&Traffic) -> &AtomicU64,
    ) {
        if !self.begin(declaration, MetricKind::Counter) {
            return;
        }
        let mut names = HashSet::new();
        for ModelSnapshot { model, .. } in &self.snapshots {
            // The versions of a name share what named none of them.
            let unnamed = names.insert(model.name()).then_some((false, "default"));
            for (named, label) in unnamed.into_iter().chain([(true, model.version())]) {
                let traffic = model.traffic(named);
                if traffic.requests.load(Relaxed) > 0
                    && let Some(labels) =
                        labels(declaration, &[model.name(), label], self.hostname, true)
                {
                    self.page.sample(&labels, read(traffic).load(Relaxed) as f64);
                }
            }
        }
    }

    /// A counter of the host.
    pub(super) fn host_counter(&mut self, declaration: &MetricDeclaration, count: u64) {
        if self.begin(declaration, MetricKind::Counter)
            && count > 0
            && let Some(labels) = labels(declaration, &["Host"], self.hostname, true)
        {
            self.page.sample(&labels, count as f64);
        }
    }

    /// All series of a metric of the server.
    pub(super) fn server_family(&mut self, family: &MetricFamily) {
        if self.begin(&family.declaration, family.declaration.kind) {
            family.each(|labels, series| self.series(family, labels, true, series));
        }
    }

    /// All series of a metric of handlers. The time of a model's last batch is added unless its
    /// handler reports it. That label does not tell versions apart, so the default one is shown.
    pub(super) fn handler_family(&mut self, family: &MetricFamily) {
        let declaration = &family.declaration;
        if !self.begin(declaration, declaration.kind) {
            return;
        }
        let mut shown: HashSet<String> = HashSet::new();
        family.each(|labels, series| {
            self.series(family, labels, false, series);
            shown.insert(labels.join(","));
        });
        if !is_timed(declaration) || declaration.kind != MetricKind::Gauge {
            return;
        }
        for snapshot in self.snapshots.iter().filter(|snapshot| snapshot.model.tag().python) {
            let values = [snapshot.model.name(), "Model"];
            if let Some(last_us) = snapshot.measures.compute_last_us
                && shown.insert(values.join(","))
                && let Some(labels) = labels(declaration, &values, self.hostname, false)
            {
                self.page.sample(&labels, last_us as f64 / 1000.0);
            }
        }
    }

    fn begin(&mut self, declaration: &MetricDeclaration, kind: MetricKind) -> bool {
        let (kind_name, unit) = (kind.as_str(), &declaration.unit);
        let help = format!("Torchserve prometheus {kind_name} metric with unit: {unit}");
        self.page.begin(&declaration.name, kind, &help)
    }

    fn series(
        &mut self,
        family: &MetricFamily,
        values: &[&str],
        host_declared: bool,
        series: &MetricSeries,
    ) {
        let MetricFamily { declaration, .. } = family;
        let Some(labels) = labels(declaration, values, self.hostname, host_declared) else {
            return;
        };
        match declaration.kind {
            MetricKind::Counter | MetricKind::Gauge => self.page.sample(&labels, series.value()),
            MetricKind::Histogram => {
                let (buckets, sum) = (series.counts(), series.value());
                let counts = HistogramCounts { buckets: &buckets, sum, fine: None };
                self.page.histogram(&labels, BOUNDS.into_iter(), counts);
            }
        }
    }
}

/// Names and values, the host's last. Nothing if the declaration has other labels than there are
/// values.
fn labels<'a>(
    declaration: &'a MetricDeclaration,
    values: &[&'a str],
    hostname: &'a str,
    host_declared: bool,
) -> Option<Vec<(&'a str, &'a str)>> {
    let added = if host_declared { None } else { Some("Hostname") };
    let names = declaration.dimensions.iter().map(String::as_str).chain(added);
    let values = values.iter().copied().chain([hostname]);
    names.clone().count().eq(&values.clone().count()).then(|| names.zip(values).collect())
}

/// Every version of every model, the default one of each first.
pub(super) fn snapshots(engine: &Engine, processes: &dyn ProcessReader) -> Vec<ModelSnapshot> {
    let mut snapshots = Vec::new();
    for default in engine.models() {
        let mut versions = engine.versions(default.name()).unwrap_or_default();
        versions.sort_by_key(|model| model.version() != default.version());
        for model in versions {
            let (status, measures) = (model.status(), model.measures());
            let usage = |pid: Option<u32>| pid.and_then(|pid| processes.usage(Some(pid)));
            let usage = status.workers.iter().map(|worker| usage(worker.pid)).collect();
            let endpoints = model.endpoint_measures();
            snapshots.push(ModelSnapshot { status, measures, endpoints, usage, model });
        }
    }
    snapshots
}
