//! The metrics page over HTTP, compared with the documentation.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitney_server::ServerParts;
use jitney_telemetry::Meter;
use jitney_telemetry::metrics::{MeterPlan, MetricsMode};

use crate::fixture::{Server, ask, config, send};

const DOCUMENTATION: &str = include_str!("../../../../docs/reference/metrics.md");

async fn page(server: &Server, query: &str) -> String {
    ask(server.metrics(), "GET", &format!("/metrics{query}")).await.body
}

/// Name and type of every metric that a page announces.
fn announced(page: &str) -> BTreeMap<String, String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split_once(' ')).map(|(n, t)| (n.into(), t.into())).collect()
}

/// The cells of the table's rows: name, type, labels.
fn documented() -> Vec<(String, String, Vec<String>)> {
    let rows = DOCUMENTATION.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    let metrics = cells.filter(|row| ["counter", "gauge", "histogram"].contains(&row[1].as_str()));
    metrics
        .map(|row| {
            let labels = row[2].split(", ").map(str::to_owned).collect();
            (row[0].trim_end_matches('`').to_owned(), row[1].clone(), labels)
        })
        .collect()
}

#[tokio::test]
async fn the_documentation_names_what_the_server_exposes() {
    let server = Server::start().await.with_magika().await;
    send(server.inference(), "POST", "/predictions/magika", &[], b"print('hi')").await;
    let page = page(&server, "").await;
    let documented = documented();
    let types = documented.iter().map(|(name, kind, _)| (name.clone(), kind.clone())).collect();
    assert_eq!(announced(&page), types);
    for (name, kind, labels) in documented {
        let suffix = if kind == "histogram" { "_count" } else { "" };
        let start = format!("{name}{suffix}{{");
        for line in page.lines().filter(|line| line.starts_with(&start)) {
            let inside = &line[start.len()..line.find('}').unwrap()];
            let shown: Vec<&str> =
                inside.split("\",").filter_map(|l| l.split('=').next()).collect();
            assert_eq!(shown[..labels.len()], labels, "{line}");
        }
    }
}

#[tokio::test]
async fn requests_are_counted_by_the_version_they_name() {
    let server = Server::start().await.with_magika().await;
    let version = server.engine.models()[0].version().to_owned();
    for path in ["/predictions/magika".to_owned(), format!("/predictions/magika/{version}")] {
        send(server.inference(), "POST", &path, &[], b"print('hi')").await;
        send(server.inference(), "POST", &path, &[], b"print('hi')").await;
    }
    let page = page(&server, "?name[]=ts_inference_requests_total").await;
    for version in ["default", &version] {
        let line = format!(
            "ts_inference_requests_total{{model_name=\"magika\",model_version=\"{version}\",hostname=\"localhost\",}} 2.0"
        );
        assert!(page.lines().any(|known| known == line), "{line} is not in\n{page}");
    }
    assert_eq!(announced(&page).len(), 1);
}

#[tokio::test]
async fn answers_and_rejections_are_measured() {
    let server = Server::start().await.with_magika().await;
    send(server.inference(), "POST", "/predictions/magika", &[], b"print('hi')").await;
    let model = server.engine.models()[0].clone();
    model.scale(0, 0).await.unwrap();
    send(server.inference(), "POST", "/predictions/magika", &[], b"print('hi')").await;
    let page = page(&server, "").await;
    let labels = format!("model_name=\"magika\",model_version=\"{}\",", model.version());
    let host = "hostname=\"localhost\",";
    for line in [
        format!("jitney_queue_seconds_count{{{labels}{host}}} 1.0"),
        format!("jitney_compute_seconds_bucket{{{labels}{host}le=\"+Inf\",}} 1.0"),
        format!("jitney_batch_items_bucket{{{labels}{host}le=\"1.0\",}} 1.0"),
        format!("jitney_batch_items_sum{{{labels}{host}}} 1.0"),
        format!("jitney_rejections_total{{{labels}reason=\"no_worker\",{host}}} 1.0"),
        format!("jitney_rejections_total{{{labels}reason=\"queue_full\",{host}}} 0.0"),
        format!("jitney_workers_min{{{labels}{host}}} 0.0"),
    ] {
        assert!(page.lines().any(|known| known == line), "{line} is not in\n{page}");
    }
}

#[tokio::test]
async fn untouched_metrics_are_announced_and_have_no_samples() {
    let server = Server::start().await;
    let page = page(&server, "?name[]=Requests5XX&name[]=QueueTime&name[]=GPUUtilization").await;
    assert_eq!(announced(&page).len(), 3);
    assert!(page.lines().all(|line| line.starts_with("# ")), "{page}");
}

#[tokio::test]
async fn the_mode_decides_what_stands_on_the_page() {
    for (mode, theirs, ours) in
        [(MetricsMode::Log, false, false), (MetricsMode::Legacy, false, true)]
    {
        let meter = Meter::new(MeterPlan { mode, ..MeterPlan::default() }).unwrap();
        let parts = ServerParts { meter: Arc::new(meter), ..ServerParts::default() };
        let server = Server::with_parts(config(), parts).await.with_magika().await;
        send(server.inference(), "POST", "/predictions/magika", &[], b"print('hi')").await;
        let page = page(&server, "").await;
        assert_eq!(page.contains("Requests2XX"), theirs, "{page}");
        assert_eq!(page.contains("\nts_inference_requests_total{"), ours, "{page}");
        assert_eq!(page.contains("\njitney_batches_total{"), ours, "{page}");
    }
}
