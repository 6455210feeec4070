//! What stands on the metrics page, and in which order: TorchServe's metrics as they were declared,
//! those of handlers, then Jitney's own.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use jitney_engine::{Engine, Traffic};

use super::declared::{Declaration, Kind};
use super::family::{BOUNDS, Cell, Family};
use super::own::{self, Look};
use super::page::Page;
use super::{Meter, Mode, is_timed};

impl Meter {
    /// The page, or only the metrics that are named.
    pub(crate) fn page(&self, engine: &Engine, wanted: Vec<&str>) -> String {
        if self.mode == Mode::Log {
            return String::new();
        }
        let looks = looks(engine);
        let mut page = Page::new(wanted);
        for (index, family) in self.server.iter().enumerate() {
            self.server_metric(&mut page, index, family, &looks);
        }
        if self.mode == Mode::Prometheus {
            let families = self.model.read().unwrap_or_else(PoisonError::into_inner).clone();
            families.iter().for_each(|family| self.model_metric(&mut page, family, &looks));
        }
        own::write(&mut page, &looks, &self.hostname);
        page.finish()
    }

    /// Counters that stand elsewhere are read there; the others have a family of series.
    fn server_metric(&self, page: &mut Page<'_>, index: usize, family: &Family, looks: &[Look]) {
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
            self.traffic(page, &family.declaration, looks, read);
        } else if self.mode == Mode::Legacy {
            // Everything else is logged.
        } else if let Some(class) = answers {
            self.answers(page, &family.declaration, class);
        } else if begin(page, &family.declaration, family.declaration.kind) {
            family.each(|labels, cell| self.cell(page, family, labels, true, cell));
        }
    }

    fn traffic(
        &self,
        page: &mut Page<'_>,
        declaration: &Declaration,
        looks: &[Look],
        read: fn(&Traffic) -> &AtomicU64,
    ) {
        if !begin(page, declaration, Kind::Counter) {
            return;
        }
        for look in looks {
            let (name, version) = (look.model.name(), look.model.version());
            for (named, label) in [(false, "default"), (true, version)] {
                let traffic = look.model.traffic(named);
                if traffic.requests.load(Relaxed) > 0
                    && let Some(labels) = self.labels(declaration, &[name, label], true)
                {
                    page.sample(&labels, read(traffic).load(Relaxed) as f64);
                }
            }
        }
    }

    fn answers(&self, page: &mut Page<'_>, declaration: &Declaration, class: usize) {
        let count = self.answers.0[class].load(Relaxed);
        if begin(page, declaration, Kind::Counter)
            && count > 0
            && let Some(labels) = self.labels(declaration, &["Host"], true)
        {
            page.sample(&labels, count as f64);
        }
    }

    fn model_metric(&self, page: &mut Page<'_>, family: &Family, looks: &[Look]) {
        let declaration = &family.declaration;
        if !begin(page, declaration, declaration.kind) {
            return;
        }
        let mut shown: HashSet<String> = HashSet::new();
        family.each(|labels, cell| {
            self.cell(page, family, labels, false, cell);
            shown.insert(labels.join(","));
        });
        if is_timed(declaration) && declaration.kind == Kind::Gauge {
            for look in looks.iter().filter(|look| look.model.tag().python) {
                self.last_time(page, declaration, look, &mut shown);
            }
        }
    }

    /// The time of a model's last batch, unless its handler reports it itself. The label does not
    /// tell versions apart, so the default one goes first and is the one that is shown.
    fn last_time(
        &self,
        page: &mut Page<'_>,
        declaration: &Declaration,
        look: &Look,
        shown: &mut HashSet<String>,
    ) {
        let values = [look.model.name(), "Model"];
        if let Some(last_us) = look.measures.compute_last_us
            && shown.insert(values.join(","))
            && let Some(labels) = self.labels(declaration, &values, false)
        {
            page.sample(&labels, last_us as f64 / 1000.0);
        }
    }

    fn cell(
        &self,
        page: &mut Page<'_>,
        family: &Family,
        labels: &[&str],
        host_declared: bool,
        cell: &Cell,
    ) {
        let Some(labels) = self.labels(&family.declaration, labels, host_declared) else { return };
        match family.declaration.kind {
            Kind::Counter | Kind::Gauge => page.sample(&labels, cell.value()),
            Kind::Histogram => {
                page.histogram(&labels, BOUNDS.into_iter(), &cell.counts(), cell.value());
            }
        }
    }

    /// Names and values, the host's last. Nothing if the declaration has other labels than there
    /// are values.
    fn labels<'a>(
        &'a self,
        declaration: &'a Declaration,
        values: &[&'a str],
        host_declared: bool,
    ) -> Option<Vec<(&'a str, &'a str)>> {
        let added = if host_declared { None } else { Some("Hostname") };
        let names = declaration.dimensions.iter().map(String::as_str).chain(added);
        let values = values.iter().copied().chain([self.hostname.as_str()]);
        names.clone().count().eq(&values.clone().count()).then(|| names.zip(values).collect())
    }
}

fn begin(page: &mut Page<'_>, declaration: &Declaration, kind: Kind) -> bool {
    let (word, unit) = (kind.as_str(), &declaration.unit);
    let help = format!("Torchserve prometheus {word} metric with unit: {unit}");
    page.begin(&declaration.name, kind, &help)
}

/// Every version of every model, the default one of each first.
fn looks(engine: &Engine) -> Vec<Look> {
    let mut looks = Vec::new();
    for default in engine.models() {
        let mut versions = engine.versions(default.name()).unwrap_or_default();
        versions.sort_by_key(|model| model.version() != default.version());
        for model in versions {
            looks.push(Look { status: model.status(), measures: model.measures(), model });
        }
    }
    looks
}
