//! TorchServe's settings about metrics, and its `metrics.yaml`.

use std::path::Path;
use std::time::Duration;

use jitney_settings::Values;
use jitney_settings::torchserve::{
    ASYNC_LOGGING, DISABLE_SYSTEM_METRICS, METRIC_TIME_INTERVAL, METRICS_CONFIG, METRICS_MODE,
    MODEL_METRICS_AUTO_DETECT, SYSTEM_METRICS_CMD,
};
use jitney_telemetry::WriteTime;
use jitney_telemetry::metrics::{
    MeterPlan, MetricDeclaration, MetricDeclarations, MetricKind, MetricsMode,
};
use serde::Deserialize;

/// What the values say. A file that makes no sense costs TorchServe's metrics and a remark, not the
/// start, as upstream.
pub fn plan(values: &Values, remarks: &mut Vec<String>) -> MeterPlan {
    if values.has(&SYSTEM_METRICS_CMD) {
        let why = "accepted without effect, the server looks at the machine itself";
        remarks.push(format!("{why}: system_metrics_cmd"));
    }
    MeterPlan {
        mode: mode(values),
        declared: declared(values, remarks),
        auto_detect: values.flag(&MODEL_METRICS_AUTO_DETECT),
        log_time: log_time(values),
        ..MeterPlan::default()
    }
}

/// Lines are written soon, off the request's way, as TorchServe does with `async_logging=true`. Who has
/// written `async_logging=false` finds them when the answer comes.
fn log_time(values: &Values) -> WriteTime {
    let at_once = values.has(&ASYNC_LOGGING) && !values.flag(&ASYNC_LOGGING);
    if at_once { WriteTime::AtOnce } else { WriteTime::Soon }
}

/// How often the machine is sampled, if at all.
pub fn sample_every(values: &Values) -> Option<Duration> {
    let every: Duration = values.value(&METRIC_TIME_INTERVAL);
    (!values.flag(&DISABLE_SYSTEM_METRICS)).then(|| every.max(Duration::from_secs(1)))
}

/// Anything that is no mode means the log, as upstream.
fn mode(values: &Values) -> MetricsMode {
    match values.show(&METRICS_MODE).map(|mode| mode.to_ascii_lowercase()).as_deref() {
        Some("prometheus") => MetricsMode::Prometheus,
        Some("legacy") => MetricsMode::Legacy,
        _ => MetricsMode::Log,
    }
}

fn declared(values: &Values, remarks: &mut Vec<String>) -> MetricDeclarations {
    let Some(path) = values.show(&METRICS_CONFIG) else { return MetricDeclarations::default() };
    read(Path::new(&path)).unwrap_or_else(|why| {
        remarks.push(format!("metrics_config={path}: {why}; there are no metrics of its kind"));
        MetricDeclarations::nothing()
    })
}

fn read(path: &Path) -> Result<MetricDeclarations, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    parse(&text)
}

/// The sections of the file; `dimensions` only holds what others refer to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    ts_metrics: Option<Section>,
    model_metrics: Option<Section>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Section {
    counter: Option<Vec<MetricEntry>>,
    gauge: Option<Vec<MetricEntry>>,
    histogram: Option<Vec<MetricEntry>>,
}

#[derive(Debug, Deserialize)]
struct MetricEntry {
    name: Option<String>,
    unit: Option<String>,
    dimensions: Option<Vec<String>>,
}

fn parse(text: &str) -> Result<MetricDeclarations, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    Ok(MetricDeclarations {
        server: section(file.ts_metrics)?,
        model: section(file.model_metrics)?,
    })
}

fn section(section: Option<Section>) -> Result<Vec<MetricDeclaration>, String> {
    let Section { counter, gauge, histogram } = section.unwrap_or_default();
    let kinds = [
        (MetricKind::Counter, counter),
        (MetricKind::Gauge, gauge),
        (MetricKind::Histogram, histogram),
    ];
    let mut all: Vec<MetricDeclaration> = Vec::new();
    for (kind, entries) in kinds {
        for entry in entries.unwrap_or_default() {
            let metric = declaration(kind, entry)?;
            if all.iter().any(|known| known.name == metric.name) {
                return Err(format!("{} is declared twice", metric.name));
            }
            all.push(metric);
        }
    }
    Ok(all)
}

fn declaration(kind: MetricKind, entry: MetricEntry) -> Result<MetricDeclaration, String> {
    let MetricEntry { name, unit, dimensions } = entry;
    let (Some(name), Some(unit)) = (name, unit) else {
        return Err(format!("a {} lacks its name or its unit", kind.as_str()));
    };
    let dimensions = dimensions.unwrap_or_default();
    if let Some(odd) = dimensions.iter().chain([&name]).find(|word| !is_name(word)) {
        return Err(format!("{odd:?} of metric {name:?} is no name"));
    }
    Ok(MetricDeclaration { name, unit, kind, dimensions })
}

/// What Prometheus allows as a name.
fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(word) && text.starts_with(|c: char| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
dimensions:
  - &model_name "ModelName"
  - &level "Level"
  - &host "Hostname"
ts_metrics:
  counter:
    - name: Requests2XX
      unit: Count
      dimensions: [*level, *host]
model_metrics:
  histogram:
    - name: PredictionTime
      unit: ms
      dimensions: [*model_name, *level]
  gauge:
"#;

    #[test]
    fn a_file_with_anchors_declares_its_metrics() {
        let declared = parse(FILE).expect("reads");
        let expected = MetricDeclarations {
            server: vec![MetricDeclaration::new(
                MetricKind::Counter,
                "Requests2XX",
                "Count",
                &["Level", "Hostname"],
            )],
            model: vec![MetricDeclaration::new(
                MetricKind::Histogram,
                "PredictionTime",
                "ms",
                &["ModelName", "Level"],
            )],
        };
        assert_eq!(declared, expected);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_rejected_as_a_whole() {
        for (text, why) in [
            ("ts_metrics: {counter: [{name: A}]}", "lacks"),
            ("ts_metrics: {counter: [{unit: ms}]}", "lacks"),
            ("model_metrics: {gauge: [{name: A, unit: ms}, {name: A, unit: s}]}", "twice"),
            ("model_metrics: {gauge: [{name: 'a b', unit: ms}]}", "no name"),
            ("model_metrics: {gauge: [{name: A, unit: ms, dimensions: ['x\"']}]}", "no name"),
            ("ts_metrics: [", ""),
            ("ts_metrics: 5", ""),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(parse("{}"), Ok(MetricDeclarations::nothing()));
    }
}
