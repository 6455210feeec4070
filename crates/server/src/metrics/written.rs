//! What a metric snapshots like in the log:
//! `2025-01-01T00:00:00,123 - Name.Unit:1.0|#Dim:value|#hostname:h,requestID:…,timestamp:1735689600`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use super::declared::MetricDeclaration;
use super::journal::{MetricEntry, MetricNames, MetricSinks, MetricSubject};
use super::number::JavaDouble;

/// MetricLines that are ready to be written.
#[derive(Default)]
pub(super) struct MetricLines {
    server: String,
    model: String,
}

impl MetricLines {
    pub(super) fn add(&mut self, names: &MetricNames, now: Duration, entry: &MetricEntry) {
        match entry {
            MetricEntry::Server { metric, value, subject } => {
                let Some(declaration) = names.server.get(*metric) else { return };
                let labels = subject.labels();
                if let Some(text) = text(declaration, &labels, true, *value) {
                    line(&mut self.server, &text, &names.host, "", now);
                }
            }
            MetricEntry::Model { text, requests } => {
                line(&mut self.model, text, &names.host, requests, now);
            }
            MetricEntry::Batch { model, millis, requests } => {
                for declaration in &names.timed {
                    let labels = [model.name.clone(), "Model".to_owned()];
                    if let Some(text) = text(declaration, &labels, false, *millis) {
                        line(&mut self.model, &text, &names.host, requests, now);
                    }
                }
            }
        }
    }

    pub(super) fn write_to(&mut self, sinks: &mut MetricSinks) {
        let places = [(&mut self.server, &mut sinks.server), (&mut self.model, &mut sinks.model)];
        for (text, sink) in places {
            if let Err(error) = sink.write_all(text.as_bytes()).and_then(|()| sink.flush()) {
                tracing::warn!(%error, "cannot log metrics");
            }
            text.clear();
        }
    }
}

impl MetricSubject {
    fn labels(&self) -> Vec<String> {
        match self {
            Self::Host => vec!["Host".to_owned()],
            Self::Gpu { index } => vec!["Host".to_owned(), index.to_string()],
            Self::Model { model, version_named } => {
                let version = if *version_named { &model.version } else { "default" };
                vec![model.name.clone(), version.to_owned()]
            }
            Self::Worker { model, worker } => {
                vec![super::worker_name(model, *worker), "Host".to_owned()]
            }
        }
    }
}

/// `Name.Unit:value|#Dim:value,…`: all labels but the host's name, which the server's own metrics
/// have as their last one. Nothing if the labels are not those that were declared.
pub(super) fn text(
    declaration: &MetricDeclaration,
    labels: &[impl AsRef<str>],
    host_declared: bool,
    value: f64,
) -> Option<String> {
    let MetricDeclaration { name, unit, dimensions, .. } = declaration;
    if dimensions.len() != labels.len() + usize::from(host_declared) {
        return None;
    }
    let mut text = format!("{name}.{unit}:{}|#", JavaDouble(value));
    for (index, (dimension, label)) in dimensions.iter().zip(labels).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{dimension}:{}", label.as_ref());
    }
    Some(text)
}

fn line(lines: &mut String, text: &str, host: &str, requests: &str, now: Duration) {
    let mut clock = humantime::format_rfc3339_millis(UNIX_EPOCH + now).to_string();
    clock.truncate("2025-01-01T00:00:00.123".len());
    let clock = clock.replace('.', ",");
    let _ = write!(lines, "{clock} - {text}|#hostname:{host}");
    if !requests.is_empty() {
        let _ = write!(lines, ",requestID:{requests}");
    }
    let _ = writeln!(lines, ",timestamp:{}", now.as_secs());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jitney_engine::ModelTag;

    use super::super::declared::{MetricDeclarations, MetricKind};
    use super::*;

    fn names() -> MetricNames {
        let MetricDeclarations { server, model } = MetricDeclarations::default();
        MetricNames { server, timed: model, host: "h".to_owned() }
    }

    fn tag() -> Arc<ModelTag> {
        Arc::new(ModelTag { name: "noop".into(), version: "1.11".into(), python: true })
    }

    fn lines(entry: &MetricEntry) -> (String, String) {
        let mut lines = MetricLines::default();
        lines.add(&names(), Duration::from_millis(1_735_689_600_123), entry);
        (lines.server, lines.model)
    }

    fn server(metric: &str, value: f64, subject: MetricSubject) -> String {
        let metric = names().server.iter().position(|known| known.name == metric).unwrap();
        lines(&MetricEntry::Server { metric, value, subject }).0
    }

    #[test]
    fn the_servers_lines_read_as_torchserves() {
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#hostname:h,timestamp:1735689600\n";
        let model = |version_named| MetricSubject::Model { model: tag(), version_named };
        for (line, text) in [
            (server("Requests2XX", 1.0, MetricSubject::Host), "Requests2XX.Count:1.0|#Level:Host"),
            (
                server("ts_inference_requests_total", 1.0, model(false)),
                "ts_inference_requests_total.Count:1.0|#model_name:noop,model_version:default",
            ),
            (
                server("ts_queue_latency_microseconds", 12.0, model(true)),
                "ts_queue_latency_microseconds.Microseconds:12.0|#model_name:noop,model_version:1.11",
            ),
            (
                server("GPUUtilization", 37.0, MetricSubject::Gpu { index: 1 }),
                "GPUUtilization.Percent:37.0|#Level:Host,DeviceId:1",
            ),
            (
                server(
                    "WorkerLoadTime",
                    99.5,
                    MetricSubject::Worker { model: tag(), worker: 9000 },
                ),
                "WorkerLoadTime.Milliseconds:99.5|#WorkerName:W-9000-noop_1.11,Level:Host",
            ),
        ] {
            assert_eq!(line, format!("{start}{text}{end}"));
        }
    }

    #[test]
    fn a_models_lines_name_their_requests() {
        let entry = MetricEntry::Batch { model: tag(), millis: 1.5, requests: "a,b".to_owned() };
        let start = "2025-01-01T00:00:00,123 - ";
        let end = "|#ModelName:noop,Level:Model|#hostname:h,requestID:a,b,timestamp:1735689600\n";
        let expected = format!("{start}HandlerTime.ms:1.5{end}{start}PredictionTime.ms:1.5{end}");
        assert_eq!(lines(&entry).1, expected);
    }

    #[test]
    fn labels_that_were_not_declared_so_are_not_written() {
        let odd = MetricDeclaration::new(MetricKind::Gauge, "X", "ms", &["OnlyOne"]);
        assert_eq!(text(&odd, &["a", "b"], false, 1.0), None);
        assert_eq!(text(&odd, &["a"], true, 1.0), None);
    }
}
