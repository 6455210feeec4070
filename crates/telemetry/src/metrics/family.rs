//! A metric of TorchServe's kind: how `metrics.yaml` declares it, and all its series.
//!
//! The default declarations are TorchServe's own file; the cli reads another one. A metric that is not declared is
//! neither shown nor logged. The series of the host itself is recorded without a lock, for the hot path; all
//! others are behind one and not on that path. Their number is bounded: labels come from handlers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The library's default bounds of a histogram.
pub(super) const BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// MetricSeries of one metric at most.
const SERIES_MAX: usize = 4096;

/// A time as the values of metrics in microseconds.
pub(super) fn micros(time: Duration) -> f64 {
    time.as_micros() as f64
}

/// The same in milliseconds.
pub(super) fn millis(time: Duration) -> f64 {
    micros(time) / 1000.0
}

/// One series: a total, a level or a histogram.
#[derive(Debug, Default)]
pub(super) struct MetricSeries {
    /// The bits of the total, the level or the sum.
    value: AtomicU64,
    touched: AtomicBool,
    /// One per bound and one for the rest; only used by histograms.
    buckets: [AtomicU64; BOUNDS.len() + 1],
}

impl MetricSeries {
    fn record(&self, kind: MetricKind, value: f64) {
        match kind {
            MetricKind::Gauge => self.value.store(value.to_bits(), Relaxed),
            MetricKind::Counter => self.add(value),
            MetricKind::Histogram => {
                let bucket = BOUNDS.partition_point(|bound| *bound < value);
                self.buckets[bucket].fetch_add(1, Relaxed);
                self.add(value);
            }
        }
        self.touched.store(true, Relaxed);
    }

    fn add(&self, value: f64) {
        let sum = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The function always gives a new value, so this cannot fail.
        let _ = self.value.fetch_update(Relaxed, Relaxed, sum);
    }

    /// The total, the level or the sum.
    pub(super) fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Relaxed))
    }

    /// How many fell into each bucket of a histogram.
    pub(super) fn counts(&self) -> [u64; BOUNDS.len() + 1] {
        std::array::from_fn(|index| self.buckets[index].load(Relaxed))
    }
}

/// A metric and its series.
#[derive(Debug)]
pub(super) struct MetricFamily {
    pub(super) declaration: MetricDeclaration,
    host: MetricSeries,
    /// By the values of the labels but the host's name.
    series: Mutex<BTreeMap<Vec<String>, MetricSeries>>,
}

impl MetricFamily {
    pub(super) fn new(declaration: MetricDeclaration) -> Self {
        Self { declaration, host: MetricSeries::default(), series: Mutex::default() }
    }

    /// Records a value of the host's own series.
    pub(super) fn record_host(&self, value: f64) {
        self.host.record(self.declaration.kind, value);
    }

    /// Records a value of the series with these labels; one too many is ignored.
    pub(super) fn record(&self, labels: Vec<String>, value: f64) {
        let mut series = self.lock();
        if series.len() < SERIES_MAX || series.contains_key(&labels) {
            series.entry(labels).or_default().record(self.declaration.kind, value);
        }
    }

    /// Shows every series that was recorded: the values of its labels and the series.
    pub(super) fn each(&self, mut show: impl FnMut(&[&str], &MetricSeries)) {
        if self.host.touched.load(Relaxed) {
            show(&["Host"], &self.host);
        }
        for (labels, series) in self.lock().iter() {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            show(&labels, series);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, MetricSeries>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How values of a metric add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// The last value stands.
    Gauge,
    /// How often values were how large.
    Histogram,
}

impl MetricKind {
    /// Its name in the Prometheus text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDeclaration {
    /// Its name.
    pub name: String,
    /// Its unit, as it is shown.
    pub unit: String,
    /// How its values add up.
    pub kind: MetricKind,
    /// The names of its labels, in order.
    pub dimensions: Vec<String>,
}

impl MetricDeclaration {
    /// A declaration.
    pub fn new(kind: MetricKind, name: &str, unit: &str, dimensions: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            kind,
            dimensions: dimensions.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// All metrics of TorchServe's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDeclarations {
    /// What the server measures (`ts_metrics`).
    pub server: Vec<MetricDeclaration>,
    /// What handlers report (`model_metrics`); the host's name is added to their labels.
    pub model: Vec<MetricDeclaration>,
}

impl MetricDeclarations {
    /// Nothing at all.
    pub fn nothing() -> Self {
        Self { server: Vec::new(), model: Vec::new() }
    }
}

/// TorchServe 0.12's `metrics.yaml`.
impl Default for MetricDeclarations {
    fn default() -> Self {
        let model = ["ModelName", "Level"];
        Self {
            server: server_defaults(),
            model: ["HandlerTime", "PredictionTime"]
                .map(|name| MetricDeclaration::new(MetricKind::Gauge, name, "ms", &model))
                .into(),
        }
    }
}

fn server_defaults() -> Vec<MetricDeclaration> {
    use MetricKind::{Counter, Gauge};
    let host: &[&str] = &["Level", "Hostname"];
    let model: &[&str] = &["model_name", "model_version", "hostname"];
    let worker: &[&str] = &["WorkerName", "Level", "Hostname"];
    let device: &[&str] = &["Level", "DeviceId", "Hostname"];
    let table = [
        (Counter, "Requests2XX", "Count", host),
        (Counter, "Requests4XX", "Count", host),
        (Counter, "Requests5XX", "Count", host),
        (Counter, "ts_inference_requests_total", "Count", model),
        (Counter, "ts_inference_latency_microseconds", "Microseconds", model),
        (Counter, "ts_queue_latency_microseconds", "Microseconds", model),
        (Gauge, "QueueTime", "Milliseconds", host),
        (Gauge, "WorkerThreadTime", "Milliseconds", host),
        (Gauge, "WorkerLoadTime", "Milliseconds", worker),
        (Gauge, "CPUUtilization", "Percent", host),
        (Gauge, "MemoryUsed", "Megabytes", host),
        (Gauge, "MemoryAvailable", "Megabytes", host),
        (Gauge, "MemoryUtilization", "Percent", host),
        (Gauge, "DiskUsage", "Gigabytes", host),
        (Gauge, "DiskUtilization", "Percent", host),
        (Gauge, "DiskAvailable", "Gigabytes", host),
        (Gauge, "GPUMemoryUtilization", "Percent", device),
        (Gauge, "GPUMemoryUsed", "Megabytes", device),
        (Gauge, "GPUUtilization", "Percent", device),
    ];
    let declare =
        |(kind, name, unit, dimensions)| MetricDeclaration::new(kind, name, unit, dimensions);
    table.into_iter().map(declare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: MetricKind, values: &[f64]) -> (f64, Vec<u64>) {
        let family = MetricFamily::new(MetricDeclaration::new(kind, "X", "ms", &["Level"]));
        values.iter().for_each(|value| family.record(vec!["a".to_owned()], *value));
        let mut shown = (0.0, Vec::new());
        family.each(|_, series| shown = (series.value(), series.counts().to_vec()));
        shown
    }

    #[test]
    fn counters_add_gauges_forget_and_histograms_count() {
        assert_eq!(shown(MetricKind::Counter, &[2.0, 3.5]).0, 5.5);
        assert_eq!(shown(MetricKind::Gauge, &[2.0, 3.5]).0, 3.5);
        let (sum, counts) = shown(MetricKind::Histogram, &[0.005, 0.006, 99.0]);
        assert!((sum - 99.011).abs() < 1e-9);
        assert_eq!((counts[0], counts[1], counts[14]), (1, 1, 1));
    }

    #[test]
    fn a_series_exists_once_it_is_recorded_and_their_number_is_bounded() {
        let family =
            MetricFamily::new(MetricDeclaration::new(MetricKind::Counter, "X", "ms", &["Level"]));
        let count = || {
            let mut count = 0;
            family.each(|_, _| count += 1);
            count
        };
        assert_eq!(count(), 0);
        family.record_host(1.0);
        for number in 0..SERIES_MAX + 10 {
            family.record(vec![number.to_string()], 1.0);
        }
        assert_eq!(count(), SERIES_MAX + 1);
    }
}
