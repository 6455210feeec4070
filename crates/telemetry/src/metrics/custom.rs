//! Metrics that definitions in Python count for themselves (`jitney.Counter` and its like).
//!
//! Workers print what has changed since the last time, one series a line, and the numbers of all workers of a
//! version are added up here. A level is the one that was set last, or what its mode says ([`super::levels`]). Names
//! and labels come from the model, so the number of both is bounded.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jitney_engine::observer::PrintedBy;
use serde::Deserialize;

use super::family::MetricKind;
use super::levels::{LevelMode, Levels};
use super::own::ModelSnapshot;
use super::page::{HistogramCounts, MetricsPage};

/// Metrics at most.
const METRICS_MAX: usize = 256;
/// Series of one metric at most.
const SERIES_MAX: usize = 1024;
/// Bounds of a histogram at most.
const BOUNDS_MAX: usize = 64;
/// Labels that the server adds.
const ADDED: [&str; 4] = ["model_name", "model_version", "hostname", "le"];

/// What a worker printed about one series.
#[derive(Debug, Deserialize)]
struct SeriesUpdate {
    name: String,
    kind: String,
    #[serde(default)]
    help: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// How much a total or a sum has grown, or what a level is.
    value: f64,
    /// Of a level: how those of several processes become one.
    #[serde(default)]
    mode: Option<String>,
    /// The process, for those that are shown of each.
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    bounds: Vec<f64>,
    /// How many more fell into each bucket.
    #[serde(default)]
    counts: Vec<u64>,
}

/// Model, version and labels.
type SeriesKey = (String, String, BTreeMap<String, String>);

#[derive(Debug)]
struct CustomMetric {
    kind: MetricKind,
    mode: LevelMode,
    help: String,
    bounds: Vec<f64>,
    series: BTreeMap<SeriesKey, CustomSeries>,
}

#[derive(Debug, Default)]
struct CustomSeries {
    /// A total or a sum.
    value: f64,
    levels: Levels,
    counts: Vec<u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct CustomMetrics(Mutex<BTreeMap<String, CustomMetric>>);

impl CustomMetrics {
    /// Takes what a worker of this model version printed.
    ///
    /// # Errors
    /// A sentence for the log about what is not taken.
    pub(super) fn update(&self, by: PrintedBy<'_>, line: &str) -> Result<(), String> {
        let update: SeriesUpdate =
            serde_json::from_str(line).map_err(|error| format!("not a metric: {error}"))?;
        let (kind, mode) = (update.check()?, update.level_mode()?);
        let mut metrics = self.lock();
        if metrics.len() >= METRICS_MAX && !metrics.contains_key(&update.name) {
            return Err(format!("there are {METRICS_MAX} metrics of models already"));
        }
        let SeriesUpdate { name, help, labels, value, bounds, counts, pid, .. } = update;
        let metric = metrics.entry(name.clone()).or_insert_with(|| CustomMetric {
            kind,
            mode,
            help,
            bounds: bounds.clone(),
            series: BTreeMap::new(),
        });
        if (metric.kind, metric.mode) != (kind, mode) || metric.bounds != bounds {
            return Err(format!(
                "{name} is another kind of metric elsewhere, or has other buckets"
            ));
        }
        let key = (by.model.to_owned(), by.version.to_owned(), labels);
        if metric.series.len() >= SERIES_MAX && !metric.series.contains_key(&key) {
            return Err(format!("{name} has {SERIES_MAX} series already"));
        }
        let series = metric.series.entry(key).or_default();
        match kind {
            MetricKind::Gauge => series.levels.set((by.worker, by.start), pid, value),
            MetricKind::Counter | MetricKind::Histogram => series.value += value,
        }
        series.counts.resize(counts.len(), 0);
        series.counts.iter_mut().zip(counts).for_each(|(total, more)| *total += more);
        Ok(())
    }

    /// A process of a worker has ended, and prints nothing more.
    pub(super) fn ended(&self, by: PrintedBy<'_>) {
        for metric in self.lock().values_mut() {
            let of = |key: &SeriesKey| key.0 == by.model && key.1 == by.version;
            for (_, series) in metric.series.iter_mut().filter(|(key, _)| of(key)) {
                series.levels.end((by.worker, by.start), metric.mode);
            }
        }
    }

    /// Writes them, and forgets those of versions that have gone.
    pub(super) fn write(
        &self,
        page: &mut MetricsPage<'_>,
        snapshots: &[ModelSnapshot],
        hostname: &str,
    ) {
        let mut metrics = self.lock();
        let is = |model: &str, version: &str, snapshot: &ModelSnapshot| {
            snapshot.model.name() == model && snapshot.model.version() == version
        };
        for (name, metric) in metrics.iter_mut() {
            metric.series.retain(|(model, version, _), _| {
                snapshots.iter().any(|snapshot| is(model, version, snapshot))
            });
            if metric.series.is_empty() || !page.begin(name, metric.kind, &metric.help) {
                continue;
            }
            for ((model, version, own), series) in &metric.series {
                let mut labels = vec![("model_name", &**model), ("model_version", &**version)];
                labels.extend(own.iter().map(|(name, value)| (&**name, &**value)));
                labels.push(("hostname", hostname));
                match metric.kind {
                    MetricKind::Histogram => {
                        let buckets = &series.counts;
                        let counts = HistogramCounts { buckets, sum: series.value, fine: None };
                        page.histogram(&labels, metric.bounds.iter().copied(), counts);
                    }
                    MetricKind::Counter => page.sample(&labels, series.value),
                    MetricKind::Gauge => write_levels(page, labels, series, metric.mode),
                }
            }
        }
        metrics.retain(|_, metric| !metric.series.is_empty());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, CustomMetric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The levels of one series, each with its process where the mode shows each.
fn write_levels<'a>(
    page: &mut MetricsPage<'_>,
    labels: Vec<(&'a str, &'a str)>,
    series: &CustomSeries,
    mode: LevelMode,
) {
    for (pid, value) in series.levels.shown(mode) {
        let pid = pid.map(|pid| pid.to_string());
        let mut labels: Vec<(&str, &str)> = labels.clone();
        if let Some(pid) = &pid {
            labels.retain(|(name, _)| *name != "pid");
            labels.push(("pid", pid));
        }
        page.sample(&labels, value);
    }
}

impl SeriesUpdate {
    /// How levels become one: as their mode says, and without one the last stands.
    fn level_mode(&self) -> Result<LevelMode, String> {
        let mode = self.mode.as_deref().unwrap_or("mostrecent");
        let unknown = || format!("{}: there is no multiprocess mode {mode:?}", self.name);
        LevelMode::named(mode).ok_or_else(unknown)
    }

    /// Its kind, if Prometheus can read it.
    fn check(&self) -> Result<MetricKind, String> {
        let name = &self.name;
        let kind = match &*self.kind {
            "counter" => MetricKind::Counter,
            "gauge" => MetricKind::Gauge,
            "histogram" => MetricKind::Histogram,
            other => return Err(format!("{name}: there is no kind of metric {other:?}")),
        };
        let reserved = ["jitney_", "ts_", "process_"].iter().any(|it| name.starts_with(it));
        if reserved || !is_name(name, true) {
            return Err(format!("{name:?} cannot be the name of a model's metric"));
        }
        let label = |label: &&String| ADDED.contains(&label.as_str()) || !is_name(label, false);
        if let Some(label) = self.labels.keys().find(label) {
            return Err(format!("{name}: {label:?} cannot be the name of a label"));
        }
        let rises = self.bounds.is_sorted_by(|a, b| a < b) && self.bounds.len() <= BOUNDS_MAX;
        let counted = kind == MetricKind::Histogram;
        let buckets = if counted { self.bounds.len() + 1 } else { 0 };
        if !rises || self.counts.len() != buckets {
            return Err(format!("{name}: these are no buckets of a histogram"));
        }
        if kind == MetricKind::Counter && self.value < 0.0 {
            return Err(format!("{name}: a counter does not sink"));
        }
        Ok(kind)
    }
}

fn is_name(text: &str, colons: bool) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || colons && byte == b':';
    text.bytes().all(fits) && !text.is_empty() && !text.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(metrics: &CustomMetrics, line: &str) -> Result<(), String> {
        metrics.update(by(1), line)
    }

    fn by(worker: u32) -> PrintedBy<'static> {
        PrintedBy { model: "m", version: "1.0", worker, start: 0 }
    }

    #[test]
    fn what_several_workers_print_is_added_up() {
        let metrics = CustomMetrics::default();
        for (value, level) in [(2, 7), (3, 5)] {
            let words = format!(
                r#"{{"name": "words", "kind": "counter", "labels": {{"l": "en"}}, "value": {value}}}"#
            );
            take(&metrics, &words).expect("a counter");
            let level = format!(r#"{{"name": "level", "kind": "gauge", "value": {level}}}"#);
            take(&metrics, &level).expect("a gauge");
            let sizes = r#"{"name": "sizes", "kind": "histogram", "value": 4.5, "bounds": [1, 2], "counts": [1, 0, 2]}"#;
            take(&metrics, sizes).expect("a histogram");
        }
        let all = metrics.lock();
        let of = |name: &str| {
            let series = all[name].series.values().next().expect("a series");
            let level = series.levels.shown(all[name].mode).first().map(|(_, level)| *level);
            (level.unwrap_or(series.value), series.counts.clone())
        };
        assert_eq!(of("words"), (5.0, vec![]));
        assert_eq!(of("level"), (5.0, vec![]));
        assert_eq!(of("sizes"), (9.0, vec![2, 0, 4]));
    }

    #[test]
    fn the_levels_of_workers_are_put_together_as_their_mode_says() {
        let metrics = CustomMetrics::default();
        let line = |value: u32| {
            format!(
                r#"{{"name": "level", "kind": "gauge", "mode": "livesum", "pid": 7, "value": {value}}}"#
            )
        };
        let level = || {
            let all = metrics.lock();
            let series = all["level"].series.values().next().expect("a series");
            series.levels.shown(all["level"].mode)
        };
        metrics.update(by(1), &line(3)).expect("a gauge");
        metrics.update(by(2), &line(4)).expect("a gauge");
        assert_eq!(level(), [(None, 7.0)]);
        metrics.ended(by(1));
        assert_eq!(level(), [(None, 4.0)]);
        let other = line(1).replace("livesum", "max");
        assert!(metrics.update(by(2), &other).is_err(), "a gauge has one mode");
    }

    #[test]
    fn what_prometheus_could_not_read_is_left_out() {
        let metrics = CustomMetrics::default();
        for line in [
            "words",
            r#"{"name": "jitney_x", "kind": "counter", "value": 1}"#,
            r#"{"name": "two words", "kind": "counter", "value": 1}"#,
            r#"{"name": "a", "kind": "sum", "value": 1}"#,
            r#"{"name": "a", "kind": "gauge", "mode": "most", "value": 1}"#,
            r#"{"name": "a", "kind": "counter", "value": -1}"#,
            r#"{"name": "a", "kind": "gauge", "labels": {"le": "1"}, "value": 1}"#,
            r#"{"name": "a", "kind": "histogram", "value": 1, "bounds": [2, 1], "counts": [0, 0, 1]}"#,
            r#"{"name": "a", "kind": "histogram", "value": 1, "bounds": [1], "counts": [1]}"#,
        ] {
            assert!(take(&metrics, line).is_err(), "{line}");
        }
        assert!(metrics.lock().is_empty());
    }

    #[test]
    fn there_are_not_more_than_a_few() {
        let metrics = CustomMetrics::default();
        let line = |name: &str, label: usize| {
            format!(
                r#"{{"name": "{name}", "kind": "gauge", "labels": {{"at": "{label}"}}, "value": 1}}"#
            )
        };
        assert!((0..SERIES_MAX).all(|at| take(&metrics, &line("a", at)).is_ok()));
        assert!(take(&metrics, &line("a", SERIES_MAX)).is_err());
        assert!(take(&metrics, &line("a", 0)).is_ok(), "what is there goes on");
        for at in 1..METRICS_MAX {
            take(&metrics, &line(&format!("m{at}"), 0)).expect("one more");
        }
        assert!(take(&metrics, &line("b", 0)).is_err());
    }
}
