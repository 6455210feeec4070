//! A meter by itself, without a server.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use jitney_engine::{ModelTag, Observer};

use super::*;
use crate::spool::sink::TestSink;

/// The lines without what changes from run to run.
fn lines(sink: &TestSink) -> Vec<String> {
    let shorten = |line: &str| {
        let (_, rest) = line.split_once(" - ").unwrap();
        rest.rsplit_once(",timestamp:").unwrap().0.to_owned()
    };
    sink.text().lines().map(shorten).collect()
}

fn declared() -> MetricDeclarations {
    let mut declared = MetricDeclarations::default();
    let listed =
        MetricDeclaration::new(MetricKind::Counter, "Listed", "count", &["ModelName", "Level"]);
    declared.model.push(listed);
    declared
}

fn meter(mode: MetricsMode, auto_detect: bool) -> (Arc<Meter>, TestSink, TestSink) {
    let (server, model) = (TestSink::default(), TestSink::default());
    let sinks = MetricSinks { server: Box::new(server.clone()), model: Box::new(model.clone()) };
    let hostname = "h".to_owned();
    let plan = MeterPlan {
        mode,
        declared: declared(),
        auto_detect,
        hostname,
        log_time: WriteTime::Soon,
        sinks: Some(sinks),
        ..MeterPlan::default()
    };
    (Arc::new(Meter::new(plan).unwrap()), server, model)
}

/// What the engine tells it to.
fn observer(meter: &Arc<Meter>) -> EngineObserver {
    EngineObserver { meter: Arc::clone(meter), tracer: None }
}

fn print(meter: &Arc<Meter>, name: &str, value: &str) {
    let labels = "ModelName:m,Level:Model";
    let kind = "|#type:COUNTER|#hostname:other,1735689600,id-a,id-b";
    observer(meter).metric_printed(&format!("{name}.Count:{value}|#{labels}{kind}"));
}

/// Every series of the handlers' metrics, as `name=value`.
fn reported(meter: &Meter) -> Vec<String> {
    let mut reported = Vec::new();
    for family in meter.handlers.families() {
        family.each(|labels, series| {
            let (name, labels) = (&family.declaration.name, labels.join(","));
            reported.push(format!("{name}({labels})={}", series.value()));
        });
    }
    reported
}

#[test]
fn a_handlers_declared_metric_adds_up_and_another_is_dropped() {
    let (meter, ..) = meter(MetricsMode::Prometheus, false);
    for (name, value) in [("Listed", "2"), ("Listed", "3"), ("Unlisted", "1"), ("Listed", "x")] {
        print(&meter, name, value);
    }
    observer(&meter).metric_printed("Listed.Count:1|#ModelName:m|#type:COUNTER|#hostname:h,1");
    assert_eq!(reported(&meter), ["Listed(m,Model)=5"]);
}

#[test]
fn detection_takes_metrics_as_they_come_but_no_names_of_ours_and_not_without_end() {
    let (meter, ..) = meter(MetricsMode::Prometheus, true);
    for name in ["Fresh", "Requests2XX", "jitney_waiting", "Fresh"] {
        print(&meter, name, "1");
    }
    assert_eq!(reported(&meter), ["Fresh(m,Model)=2"]);
    (0..1000).for_each(|number| print(&meter, &format!("Flood{number}"), "1"));
    assert!(reported(&meter).len() <= 256);
}

#[test]
fn in_log_mode_everything_becomes_lines() {
    let (meter, server, model) = meter(MetricsMode::Log, false);
    let tag = Arc::new(ModelTag { name: "m".into(), version: "1".into(), python: true });
    meter.responded(StatusCode::OK);
    meter.responded(StatusCode::NOT_FOUND);
    meter.responded(StatusCode::FOUND);
    observer(&meter).worker_loaded(&tag, 9000, Duration::from_micros(1500));
    meter.system(SystemSample { cpu_percent: Some(5.0), ..SystemSample::default() });
    print(&meter, "Listed", "2");
    print(&meter, "Unlisted", "2");
    meter.finish();
    let expected = [
        "Requests2XX.Count:1.0|#Level:Host|#hostname:h",
        "Requests4XX.Count:1.0|#Level:Host|#hostname:h",
        "Requests5XX.Count:1.0|#Level:Host|#hostname:h",
        "WorkerLoadTime.Milliseconds:1.5|#WorkerName:W-9000-m_1,Level:Host|#hostname:h",
        "CPUUtilization.Percent:5.0|#Level:Host|#hostname:h",
    ];
    assert_eq!(lines(&server), expected);
    let line = "Listed.count:2.0|#ModelName:m,Level:Model|#hostname:h,requestID:id-a,id-b";
    assert_eq!(lines(&model), [line]);
}

#[test]
fn in_prometheus_mode_nothing_is_logged() {
    let (meter, server, model) = meter(MetricsMode::Prometheus, false);
    meter.responded(StatusCode::OK);
    print(&meter, "Listed", "2");
    meter.finish();
    assert!(lines(&server).is_empty() && lines(&model).is_empty());
}

#[test]
fn workers_are_told_the_declared_metrics_by_type() {
    let (meter, ..) = meter(MetricsMode::Log, false);
    let declared = observer(&meter).model_metrics();
    assert_eq!(declared["gauge"][1]["name"], "PredictionTime");
    let listed = serde_json::json!([
        {"name": "Listed", "unit": "count", "dimensions": ["ModelName", "Level"]}
    ]);
    assert_eq!(declared["counter"], listed);
}

#[test]
fn what_is_not_declared_is_not_recorded() {
    let declared = MetricDeclarations::nothing();
    let meter = Arc::new(Meter::new(MeterPlan { declared, ..MeterPlan::default() }).unwrap());
    meter.responded(StatusCode::OK);
    meter.system(SystemSample { cpu_percent: Some(5.0), ..SystemSample::default() });
    print(&meter, "Listed", "2");
    assert!(reported(&meter).is_empty());
}

#[test]
fn the_memory_of_workers_is_that_of_the_last_look() {
    let (meter, ..) = meter(MetricsMode::Prometheus, false);
    let snapshot = |pid| SystemSample { workers: [(pid, 7)].into(), ..SystemSample::default() };
    meter.system(snapshot(1));
    meter.system(snapshot(2));
    assert_eq!((meter.memory(1), meter.memory(2)), (None, Some(7)));
}
